"""Real training and real measurements of its input; a command line is one module.

In: a converted data set. Out: one JSON document a run, and pages over many of them.
Never here: private modules of tfpipe; a benchmark uses what its users can use.
"""
