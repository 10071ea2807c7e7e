"""Decides from the bytes of one image file what is stored for it.

In: the bytes of one file and a policy. Out: the bytes to store, or why it is rejected.
File names, shards and other images have no effect here.
"""
