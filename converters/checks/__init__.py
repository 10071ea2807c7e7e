"""Checks of a data set: its files, its shards and every record in them.

In: a data set, and the images it was made of if they are there. Out: faults by place.
Never here: a change of a shard; a repair runs the job again.
"""
