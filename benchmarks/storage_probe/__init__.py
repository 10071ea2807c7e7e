"""How fast a folder or an object store can be read: the probe of benchmarks.storage.

In: a folder or a URL. Out: rates and latencies of each way to read, with the proof
whether the page cache took part, and how many accelerators the rates feed.
Never here: training, decoding, a data set's records.
"""
