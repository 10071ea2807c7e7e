"""Several inputs as one: their images under one name each, their classes mapped.

In: trees of images, each with the name of its source. Out: one tree of classes.
Never here: an image that is opened, and a file of an input that is changed.
"""
