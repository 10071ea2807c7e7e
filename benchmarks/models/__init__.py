"""The models of the benchmark, and published speeds of accelerators.

In: the name of a model or an accelerator. Out: the model, or published figures.
Never here: data, loops.
"""
