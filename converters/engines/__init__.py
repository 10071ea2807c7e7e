"""Engines that run tasks: worker processes of this host, and locks between processes.

In: a function and its tasks. Out: the results, in the order of the tasks.
Never here: what a task does.
"""
