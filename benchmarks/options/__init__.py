"""Options of the benchmarks: flags are read once and become frozen configurations.

In: the command line. Out: one frozen, checked value a command.
Never here: measurements.
"""
