"""The order in which records are read, and who reads them on which path.

In: an index, a seed, a rank, a state, and the stages of a pipeline. Out: datasets of
windows of records, and `ReadPath`: native or TensorFlow, whole batches or examples.
Never here: pixels; `order`, `draws` and `sampling` import no TensorFlow.
"""
