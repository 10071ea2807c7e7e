"""Exports of a data set: its images and labels in the formats of other tools.

In: a data set with an index, and a choice of its records. Out: files of another format.
Never here: flags, and any change to an image's bytes.
"""
