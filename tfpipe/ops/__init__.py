"""Ops: each turns one example, or one batch, into another.

In: a dictionary of features. Out: a new dictionary of features.
Never here: datasets, files, threads; a random number comes from a seed in the example.
"""
