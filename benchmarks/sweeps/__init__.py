"""Sweeps: the list of runs, how each is started and stored, and how the rate scales.

In: a list of settings. Out: one JSON file a run, and tables over all runs.
Never here: measuring; each run is a process of its own.
"""
