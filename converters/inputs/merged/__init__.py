"""Several inputs as a single tree: named images, mapped classes.

In: trees of images with the names of their sources. Out: a tree of classes.
Never here: opening an image, and changing a file of an input.
"""
