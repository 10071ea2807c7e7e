"""The cache: records or images kept in RAM or on disk after they were made once.

In: the stages of a pipeline before the cache. Out: their elements, read from a store.
Never here: an op whose result may differ between epochs; such an op is refused.
"""
