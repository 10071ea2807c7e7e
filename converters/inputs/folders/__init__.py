"""Input folders on a disk and by URL: what is in them, and bytes of their files.

In: a path or a URL. Out: names and sizes, and parts of files. Both kinds give the same
names in the same order. Never here: what a name means, and what a file holds.
"""
