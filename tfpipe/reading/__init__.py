"""The order in which records are read, and the reading of them.

In: an index, a seed, a rank and a state. Out: datasets of windows of records.
Never here: parsed examples, pixels; `order` and `philox` import no TensorFlow.
"""
