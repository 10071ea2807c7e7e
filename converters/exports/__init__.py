"""A data set in another form: other tools' formats, and copies of its shards.

In: a data set with an index, in a folder or at a URL, and a choice of its records.
Out: files of another format, or a job for copies and its shards.
Never here: flags; how a job is run or published; changes to the images of an export.
"""
