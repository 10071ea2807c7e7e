"""Options of commands that share a kind of input, and their flags.

In: flags, and a function that lists one file. Out: a `Job`. Never here: what is in a
file.
"""
