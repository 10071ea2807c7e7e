"""Searches for the settings that make a pipeline fastest.

In: a pipeline, budgets and a time limit. Out: a `Tuning` and the figures behind it.
Never here: a change of the order of the records, or of what the pipeline delivers.
"""
