"""A conversion: it is planned, its shards are written, and the data set is published.

In: named images, a policy and a seed. Out: shards, side files, catalog and index.
Never here: flags, and how worker processes are run.
"""
