"""The study of the shard cache: what it costs, how fast it fetches, what it keeps.

In: a converted data set and an S3 server of this host. Out: figures of each variant.
Never here: parts of tfpipe that are not public.
"""
