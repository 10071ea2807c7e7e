"""Pages: one kit for HTML pages that need no other file.

In: tables and values, declared as data, and the templates of a room. Out: one string of
HTML. Never here: TensorFlow, the command line, figures of a run or a data set.
"""
