"""The experiments behind the claims of the README.

In: a data set. Out: a table and one JSON object, kept in `benchmarks/results`.
Each is a command, `python -m benchmarks.studies.X`; nothing else imports one.
"""
