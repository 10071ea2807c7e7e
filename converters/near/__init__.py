"""Images that look alike: found by a hash of their pixels, and reported.

In: a data set with an index. Out: groups of names, with the distance of their hashes.
Never here: an image that is left out or changed.
"""
