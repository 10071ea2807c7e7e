"""Data at rest: the records of shards, the index and the catalog beside them.

In: paths of a data set. Out: its index, its catalog, its records with their places.
Never here: TensorFlow, the order of reading, decoded pixels.
"""
