"""Options of the commands: flags are read once and become frozen values.

In: the command line. Out: frozen options, the job, the summary and the exit code.
Never here: work on images or shards.
"""
