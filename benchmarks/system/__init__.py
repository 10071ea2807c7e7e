"""What the kernel says: CPU, memory, network, storage, the page cache, GPUs.

In: /proc, /sys and system calls. Out: counters and their differences.
Never here: knowledge of a run.
"""
