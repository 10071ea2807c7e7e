"""The pulse of a process: times in which it did not run at all.

In: a thread with a short, regular sleep. Out: begin and end of the silences, in which
the thread did not wake up and the process used no core: the process was stopped, its
machine was paused, or no core was free. A process with busy cores is not silent.
"""

import threading
import time
from collections.abc import Callable

_INTERVAL_SECONDS = 0.02
LEAST_SECONDS = 0.1  # a busy host delays a thread by less


class Pulse:
    """Finds the silences of the process within a `with` block."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock, self._cpu_clock = clock, cpu_clock
        self._last = clock(), cpu_clock()
        self._silences: list[tuple[float, float]] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def __enter__(self) -> "Pulse":
        self._last = self._clock(), self._cpu_clock()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def take(self) -> list[tuple[float, float]]:
        """Returns begin and end of the silences since the last call."""
        self.beat()
        with self._lock:
            taken, self._silences = self._silences, []
        return taken

    def beat(self) -> None:
        """Looks at the clocks; records a silence since the last look.

        Any thread may call the method.
        """
        with self._lock:
            (then, cpu), now = self._last, (self._clock(), self._cpu_clock())
            self._last = now
            seconds = now[0] - then - _INTERVAL_SECONDS
            if seconds >= LEAST_SECONDS and now[1] - cpu < seconds / 2:
                self._silences.append((now[0] - seconds, now[0]))

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_SECONDS):
            self.beat()
