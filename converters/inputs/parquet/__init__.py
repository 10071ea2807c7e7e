"""Byte strings of a Parquet file, found where they are, so that nothing is copied.

In: a local Parquet file, and the name of an uncompressed column of byte strings.
Out: offset and size of each value in the file.
No value is read, and no compressed column is unpacked.
"""
