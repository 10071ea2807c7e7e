"""Reading records of local shards with the native op, after `Batch`.

In: windows of records. Out: the place of each record, which `ops.Parse` reads. Never
here: reading a record; decoding; other file systems than those of this machine.
"""
