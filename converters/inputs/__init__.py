"""Images and their labels in any form, as named byte strings.

In: folders, tars, label lists, box annotations. Out: classes, and images with labels.
Image files are never opened to decide something; only names, sizes and places count.
"""
