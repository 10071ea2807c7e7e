"""One conversion of images: from a reader and options to a job and its summary.

In: the reader of an input, and the options of a command. Out: a data set.
Never here: flags, and work on images or shards.
"""
