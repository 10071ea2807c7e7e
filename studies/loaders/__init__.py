"""Other loaders beside ours: the same images and the same work, one process each.

In: a data set and copies of its images in other forms. Out: CPU-seconds and rates.
Run it with `python -m studies.loaders`.
"""
