"""Images and their labels in any form, as named byte strings.

In: folders, tars, label lists, box annotations. Out: classes, and images with labels.
No image is opened here; only names, sizes and places matter. Every function may raise a
ValueError about an input or an option that is not as it must be, an OSError of the file
system and a RemoteError of a store. Docstrings name all other errors.
"""
