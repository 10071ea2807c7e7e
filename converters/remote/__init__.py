"""Data sets by URL: how a conversion gets to such a place, and how it is read again.

In: the files at a URL. Out: the data set there, uploaded; or its bytes, for the checks.
Never here: what is in a shard.
"""
