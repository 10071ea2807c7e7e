"""The study of queries: how long the command takes on a catalog of ImageNet's size.

In: a number of rows. Out: seconds of the command and of its query, as JSON.
Never here: pictures; the shards are empty files of the right size.
"""
