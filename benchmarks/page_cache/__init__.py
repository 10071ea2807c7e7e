"""The origin of the bytes of a run: the page cache, or the storage beneath.

In: the files of the data, and counters of the kernel. Out: a label for each epoch, with
the proof or with the reason why nothing is known. A page cache belongs to a machine.
Never here: training, flags, pages.
"""
