"""The models of the benchmark, and the rates of emulated accelerators.

In: the name of a model, or the settings of an accelerator. Out: the model, or a rate.
Never here: data, loops, published figures.
"""
