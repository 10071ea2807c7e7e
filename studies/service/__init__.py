"""The study of a service: what it costs to let other processes prepare the images.

In: a data set. Out: images per CPU-second of all processes, with a service and without.
Never here: the servers; `benchmarks.service` starts them.
"""
