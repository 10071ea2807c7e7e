"""Options that one command alone has: its flags, and the frozen configs they make.

In: the command line. Out: a `Config` of the command, whose values fit together.
Never here: flags that two commands share, and the work of a command.
"""
