"""Conversions: the plan, the shards, and the publishing of the data set.

In: named images, a policy and a seed. Out: shards, side files, catalog and index.
Never here: flags, and how worker processes are run.
"""
