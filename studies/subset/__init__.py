"""The study of subsets: how fast a view of a few records is beside the whole data.

In: a data set in the page cache. Out: images/s of views of some shares, and ratios.
Never here: choosing records by a query; records are drawn at random.
"""
