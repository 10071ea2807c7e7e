"""One conversion of images: from a reader and options to a job, its summary and answer.

In: the reader of an input, and the options of a command. Out: a data set, and lines for
its user. Never here: flags, and work on images or shards.
"""
