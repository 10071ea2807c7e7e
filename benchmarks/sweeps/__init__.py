"""Many runs: which there are, how each is started and kept, and how the rate scales.

In: a list of settings. Out: one JSON file a run, and tables over all of them.
Never here: measuring; each run is a process of its own.
"""
