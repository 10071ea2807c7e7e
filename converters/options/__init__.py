"""Options of the commands: flags are read once and become frozen values.

In: the command line. Out: frozen options, and the ending that all commands share.
Never here: work on images or shards.
"""
