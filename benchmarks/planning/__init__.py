"""Needs and limits of a run, published figures, and sweeps of many runs.

In: figures of results, flags and built-in tables; a list of settings. Out: images a
second, the resource that binds, and what would pay; the runs of a sweep.
Never here: measuring; every run of a sweep is a process of its own.
"""
