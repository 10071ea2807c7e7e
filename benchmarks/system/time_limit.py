"""Time limit of a command with several parts.

In: the seconds that the command may take, and the start of the command. Out: the
seconds of each part, and the end of a part that takes longer.
"""

import concurrent.futures
import math
import os
import pathlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Result = TypeVar("Result")


class TimeLimit:
    """The seconds that a command may take, from the start of the command on.

    Args:
        used: Seconds since the start of the command.
    """

    def __init__(
        self,
        seconds: float | None,
        *,
        used: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._end = math.inf if seconds is None else clock() - used + seconds

    def left(self) -> float:
        """Returns the remaining seconds; `math.inf` without a limit."""
        return self._end - self._clock()

    def share(self, weights: Mapping[str, float], parts: Sequence[str]) -> float:
        """Returns the seconds for the first of the remaining parts.

        Args:
            weights: Durations of the parts, relative to other parts.
        """
        return self.left() * weights[parts[0]] / sum(weights[part] for part in parts)

    def run(self, function: Callable[[], Result]) -> Result:
        """Calls a function and returns its result.

        Raises:
            TimeoutError: If no time is left, or the function has not returned when the
                time is over. The thread of the function then dies with the process.
        """
        if self.left() == math.inf:
            return function()
        outcome = concurrent.futures.Future[Result]()

        def call() -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_exception(error)

        if self.left() > 0:
            # Not of a pool, whose threads the process waits for at its end.
            threading.Thread(target=call, daemon=True).start()
            concurrent.futures.wait([outcome], self.left())
        if not outcome.done():
            raise TimeoutError
        return outcome.result()


def seconds_since_start() -> float:
    """Returns the age of the process in seconds."""
    # The 22nd field of proc(5), in ticks since the machine started: no wall clock.
    fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
