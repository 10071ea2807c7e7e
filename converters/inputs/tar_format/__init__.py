"""The format of tars: members and their places.

In: a function that reads bytes of a tar, from a disk or by URL. Out: its members. Never
here: data of members, and what they mean.
"""
