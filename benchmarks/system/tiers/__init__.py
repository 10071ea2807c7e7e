"""Storage tiers: where the records of a run are, and how much each place gave.

In: flags, a pipeline, and counts of bytes. Out: shard caches, caches in RAM, and the
section `storage` of a result. Never here: reading records.
"""
