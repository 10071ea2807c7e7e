"""Consumers: forms of a pipeline's batches for those that train and predict with them.

In: batches, and what the index says about classes and files. Out: (x, y, sample_weight)
for Keras, a Keras layer of the device ops, NumPy arrays, names and counts of classes.
Never here: reading, decoding or an order of records; `Pipeline` calls these functions.
"""
