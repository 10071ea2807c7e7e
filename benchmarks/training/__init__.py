"""A training run: its setting, its loops, its steps, and the figures of its ranks.

In: a `Config` and the ranks. Out: the result document of the run.
Never here: flags, files of results, pages.
"""
