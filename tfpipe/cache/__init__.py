"""The cache: records or images that are kept in RAM or on disk.

In: the stages of a pipeline before the cache. Out: the same elements, read from
a store once they were made.
Never here: an op whose result may differ between epochs; such an op is refused.
"""
