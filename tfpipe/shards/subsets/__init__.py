"""The parts of a subset of a data set.

In: columns that name records. Out: the chosen records of a split, sorted and checked.
Never here: the file of a subset, the index, the order of reading.
"""
