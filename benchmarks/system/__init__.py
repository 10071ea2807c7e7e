"""Figures of the host: CPU, memory, network, storage, the page cache, GPUs.

In: psutil, /proc, /sys and system calls. Out: counters and their differences.
Never here: knowledge of a run.
"""
