"""The part of the data's files in the page cache while a run goes on.

In: files. Out: the newest measurement, taken by a thread of its own, because a file
server that does not answer blocks it. A measurement of 1 GB takes 15 ms of CPU time
(mincore on all pages), so it is repeated only as often as 1 % of a core allows, and of
a large data set an even sample of the files is measured.
"""

import threading
import time
from collections.abc import Sequence

from benchmarks.system import page_cache
from benchmarks.system.probes import UNREADABLE, Reading

_MAX_BYTES = 16e9  # measured in 0.24 s, so every 24 s
_FIRST_SECONDS = 1.0  # time to wait for the first measurement
COST_LIMIT = 0.01  # largest part of a core that reading a figure again and again takes


class ResidentWatch:
    """Measures the files again and again inside its `with`.

    Args:
        files: Paths of all files of the data.
        num_bytes: Their size together, in bytes.
        interval_seconds: Shortest time between two measurements.
    """

    def __init__(
        self, files: Sequence[str], num_bytes: float, interval_seconds: float
    ) -> None:
        self._files = sample(files, num_bytes)
        self._interval_seconds = interval_seconds
        self._newest: float | None = None
        self._error = "it was not measured yet"
        self._has_first, self._stop = threading.Event(), threading.Event()

    def __enter__(self) -> "ResidentWatch":
        threading.Thread(target=self._run, daemon=True).start()
        self._has_first.wait(_FIRST_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def read(self) -> Reading:
        """Returns the newest part of the files in the page cache, 0 to 1.

        Raises:
            OSError: If it cannot be measured.
        """
        if self._newest is None:
            raise OSError(self._error)
        return Reading(gauges={"resident_fraction": self._newest})

    def _run(self) -> None:
        wait = 0.0
        while not self._stop.wait(wait):
            start = time.thread_time()
            try:
                found = page_cache.measure(self._files)
            except UNREADABLE as error:
                self._newest, self._error = None, str(error)
            else:
                resident, self._error = found["resident_bytes"], found["remark"]
                if resident is not None:
                    self._newest = resident / max(1, found["num_bytes"])
            self._has_first.set()
            if self._newest is None:
                return
            cost = time.thread_time() - start
            wait = max(self._interval_seconds, cost / COST_LIMIT)


def sample(files: Sequence[str], num_bytes: float) -> list[str]:
    """Returns files at even distances that have about 16 GB; all files if these do.

    Args:
        files: Paths of the files, at least one.
        num_bytes: Size of all of them.
    """
    step = max(1, round(num_bytes / _MAX_BYTES))
    return list(files[::step])
