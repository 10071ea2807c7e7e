"""The parts of the shard cache: pieces of remote shards in a folder of this host.

In: the files of a data set, and the records that are read next. Out: these records at
their byte offsets in local files. `tfpipe.remote.shard_cache` is their only user.
Never here: TensorFlow, the order of reading, the names of public classes.
"""
