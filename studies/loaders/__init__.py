"""Other loaders beside ours: the same images and the same work.

In: a data set and copies of its images in other forms. Out: CPU-seconds and rates.
The command: `python -m studies.loaders`.
"""
