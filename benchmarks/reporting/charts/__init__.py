"""Charts of a page: Vega-Lite specifications, with their numbers as a table.

In: groups of results. Out: a `Chart`, or None where the data for it is missing.
Never here: HTML, and the reading of files.
"""
