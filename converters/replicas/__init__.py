"""Copies of a data set: their number, their plan, and the shards with other bytes.

In: a data set with an index, in a folder or at a URL. Out: a job, and its shards.
Never here: flags, and how a job is run or published.
"""
