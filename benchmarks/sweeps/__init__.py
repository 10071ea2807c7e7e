"""Sweeps: the list of runs, their start, their results, and the scaling of the rate.

In: a list of settings. Out: a JSON file for every run, and tables over all runs.
Never here: measuring; every run is a process of its own.
"""
