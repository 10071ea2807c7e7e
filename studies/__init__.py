"""The experiments behind the claims of the README.

In: a data set. Out: a table and a JSON object; `studies/results` keeps stored objects.
A study is a command, `python -m studies.X`; no package of the wheel imports a study.
"""
