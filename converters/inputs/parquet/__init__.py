"""Byte strings of a Parquet file, found page by page.

In: a local Parquet file, and the name of a column of byte strings.
Out: the file, offset and size of each value: in place, or among unpacked pages.
No value is read, and a page that is not compressed is not copied.
"""
