"""The study of the shard cache: its cost, its rate of fetching, its hits.

In: a converted data set and an S3 server of this host. Out: figures of all variants.
Never here: private parts of tfpipe, but in `belady`, the judge of the hits.
"""
