"""The study of cores: what a second core gains, and what several ranks on a host cost.

In: a data set in the page cache. Out: images/s of all cores over those of one, and the
CPU-seconds of an image with several ranks over those with one.
Never here: training; the ranks only read and decode.
"""
