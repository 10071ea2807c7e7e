"""The typed result of a run: its values, contradictions, repeats and environment.

In: the JSON results of the commands. Out: typed values, the faults of a result, groups
of repeats, and the environment that a run stores. Never here: pages, charts, gates.
"""
