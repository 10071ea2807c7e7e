"""Questions about a data set: which records, how many, what they look like, in SQL.

In: a data set with an index and a catalog, and expressions of SQL. Out: the chosen
records, figures, pictures, a page, and the plan of shards of their own.
Never here: flags, and a change of the data set that is asked about.
"""
