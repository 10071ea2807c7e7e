"""How fast a folder or an object store can be read: the probe of benchmarks.storage.

In: a place. Out: rates and latencies for each way to read it, with the proof whether
the page cache took part, and how many accelerators these rates feed.
Never here: training, decoding, a data set's records.
"""
