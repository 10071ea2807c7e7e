"""The time limit of a search, for any pipeline, also for a blocked one.

In: a limit in seconds. Out: the seconds until then, a progress bar, and work that is
left alone when its time is over. Nothing can interrupt a blocked element, so the work
runs in a thread of its own, until its element has come.
"""

import math
import sys
import threading
import time
from collections.abc import Callable

import tqdm

# Part of the limit for ending a race and for the result.
_RESERVE = 0.04


class Deadline:
    """The time for a search, shown as a progress bar.

    Args:
        limit: Seconds.
        clock: Returns seconds.
    """

    def __init__(
        self, limit: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self.limit = limit
        self.is_given_up = False
        self._start = clock()
        total = max(1, math.ceil(limit))
        self.bar = tqdm.tqdm(total=total, unit="s", file=sys.stderr, disable=None)

    def show(self, what: str) -> None:
        """Shows the present work."""
        self.bar.set_description(what)
        passed = min(self.clock() - self._start, self.limit)
        self.bar.update(max(0, round(passed) - int(self.bar.n)))

    def left(self, part: float = 1.0) -> float:
        """Returns the seconds until a part of the limit is over, less a reserve.

        Args:
            part: 0 to 1.
        """
        if self.is_given_up:
            return -math.inf
        end = part * (1 - _RESERVE) * self.limit
        return self._start + end - self.clock()

    def keep(self, work: Callable[[], None]) -> bool:
        """Runs the work in a thread; returns whether the work ended in time.

        Late work goes on until it asks `left`, and then finds no time.

        Raises:
            BaseException: Any error of the work.
        """
        raised: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=run, daemon=True, name="search")
        thread.start()
        try:
            latest = self._start + self.limit - self.clock()
            thread.join(max(0.0, min(latest, threading.TIMEOUT_MAX)))
        finally:  # also after Ctrl-C
            self.is_given_up = thread.is_alive()
        if raised:
            raise raised[0]
        return not self.is_given_up
