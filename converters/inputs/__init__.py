"""Images and their labels, whatever form they come in, as named byte strings.

In: folders, tars, label lists, box annotations. Out: classes, and images with labels.
Never here: a look inside an image; names and places only.
"""
