"""What an image file really is, and what is stored for it.

In: the bytes of one file and a policy. Out: the bytes to store, or why it is rejected.
Never here: file names, shards, other images.
"""
