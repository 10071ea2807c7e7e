"""Options of the commands: fields that are flags, read once into frozen values.

In: the command line. Out: frozen options whose values fit together.
Never here: work on images or shards.
"""
