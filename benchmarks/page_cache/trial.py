"""A trial: can the page cache be known on a file system?

In: files. Out: whether the kernel counts the bytes of the file system, whether pages
stay after reading, and the storage beneath the page cache.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

from benchmarks.page_cache.files import OpenFiles, evict_file
from benchmarks.system import mounts

_TRIAL_BYTES = 1 << 20


def trial(files: Sequence[str]) -> dict[str, Any]:
    """Evicts the first megabyte of one of the files, reads it and opens the file anew.

    The megabyte is evicted again if it was not in memory before.

    Returns:
        counts_reads: whether read_bytes of /proc/self/io grew by the megabyte; None if
        the bytes may not have left the page cache. keeps_pages: whether the megabyte
        was in the page cache after the read, and after the file was opened anew; None
        if the kernel does not tell. beneath, is_memory: see `mounts.Beneath`.
    """
    path = next((path for path in files if os.stat(path).st_size), None)
    if path is None:
        return {}
    below = mounts.beneath(path)
    below_it = {"beneath": below.text, "is_memory": below.is_memory}
    if below.is_memory:
        return below_it
    held = OpenFiles([path])
    num_bytes = min(_TRIAL_BYTES, held.num_bytes)
    with open(path, "rb", buffering=0) as file:
        descriptor = file.fileno()
        # Without it the kernel reads beyond the megabyte.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        was_out = held.resident_bytes(num_bytes) == 0
        evict_file(descriptor, num_bytes)
        is_out = held.resident_bytes(num_bytes) == 0
        before = bytes_read()
        os.pread(descriptor, num_bytes, 0)
        counted = bytes_read() - before >= num_bytes
        kept = held.resident_bytes(num_bytes)
        os.close(os.open(path, os.O_RDONLY))
        again = held.resident_bytes(num_bytes)
        if was_out:
            evict_file(descriptor, num_bytes)
    return {
        **below_it,
        "counts_reads": counted if counted or is_out else None,
        "keeps_pages": None if kept is None else kept == again == num_bytes,
    }


def bytes_read() -> int:
    """Returns the bytes from storage for the process so far."""
    lines = pathlib.Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])
