"""What is trained, and how fast accelerators are known to train it.

In: the name of a model or an accelerator. Out: the model, or published figures.
Never here: data, loops.
"""
