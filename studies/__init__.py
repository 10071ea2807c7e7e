"""The experiments behind the claims of the README.

In: a data set. Out: a table and one JSON object, kept in `studies/results`.
Each is a command, `python -m studies.X`; nothing else imports one.
"""
