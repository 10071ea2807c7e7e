"""Experiments about storages: is the probe right?

In: a folder on a disk. Out: paired turns of two programs, and their ratio.
Never here: results without the command that repeats them.
"""
