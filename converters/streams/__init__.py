"""Messages with images that arrive, as generations of a growing data set.

In: a watched folder or the URL of a broker. Out: published generations.
Never here: the writing of shards, which is a usual conversion of a batch of messages.
"""
