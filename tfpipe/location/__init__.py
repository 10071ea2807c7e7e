"""Where files are: a path or a URL, and the files of every store by one interface.

In: a path, or the URL of a data set such as s3://bucket/imagenet. Out: its files and
byte ranges, its index and catalog in a local folder. Every error names the URL and
what to do. Never here: TensorFlow, which records are read in which order, credentials
in any text.
"""
