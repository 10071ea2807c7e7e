"""The tuner: it searches for the settings that make a pipeline fastest.

In: a pipeline, budgets and a time limit. Out: a `Tuning` with the proof of its rate.
Never here: a change of the order of the records, or of what the pipeline delivers.
"""
