"""The parts of a subset of a data set.

In: columns that name records; texts for SQL. Out: the chosen records of a split, sorted
and checked; the texts quoted.
Never here: the file of a subset, the index, the order of reading.
"""
