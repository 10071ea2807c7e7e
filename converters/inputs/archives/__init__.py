"""Images in archives of others: tars of samples, and TFRecords of other tools.

In: patterns of files, on a disk or by URL. Out: images by split and class, as places in
these files. Never here: a copy of an image.
"""
