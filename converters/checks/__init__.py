"""Checks of a data set: its files, its shards and every record in them.

In: a data set, and its source images where they are needed. Out: faults with their
place. No shard is changed here; a repair runs the conversion job again.
"""
