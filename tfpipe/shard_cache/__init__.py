"""The shard cache: pieces of remote shards in a folder of this host.

In: the files of a data set, and the records that are read next. Out: the records at
their byte offsets in local files; `settings` has the public class `ShardCache`.
Never here: TensorFlow, the order of reading.
"""
