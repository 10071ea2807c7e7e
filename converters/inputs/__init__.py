"""Images and their labels in any form, as named byte strings.

In: folders, tars, label lists, box annotations. Out: classes, and images with labels.
No image is opened here; only names, sizes and places matter. In every module an error
of the file system is an OSError, and one of a store a RemoteError.
"""
