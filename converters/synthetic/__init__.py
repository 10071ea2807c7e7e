"""Draws images that cost as much to read as photographs: ImageNet without a download.

In: a seed and numbers. Out: JPEG files, the same for the same seed. No photograph is
used and no network.
"""
