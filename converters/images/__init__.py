"""Decides from the bytes of an image file how to store the image.

In: the bytes of a file and a policy. Out: the bytes to store, or the reject's reason.
File names, shards and other images have no effect here.
"""
