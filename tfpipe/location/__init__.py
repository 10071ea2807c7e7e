"""Where files are: a path or a URL, and the files of every store by one interface.

In: a path, or the URL of a folder such as s3://bucket/imagenet. Out: its files and byte
ranges, files that are written whole or not at all. Every error names the URL and what
to do. Never here: what the files hold, credentials in any text.
"""
