"""Reading records of local shards, and of the shard cache, with the native op.

In: windows of records. Out: the place of each record, which `ops.Parse` reads, or the
record itself, held in memory. Never here: checking or parsing a record; decoding; other
file systems than those of this machine.
"""
