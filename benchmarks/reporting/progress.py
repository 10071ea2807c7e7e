"""Progress of a run, as a line on stderr every 10 s, where no bar can be drawn.

In: the phase of the run and its steps, as the loop goes on. Out: lines such as
"[ 30 s] timed: step 240 of 1000, 483.9 images/s, waited 4.4 %, 32 s left". A thread
prints the lines, also while the main thread builds a model or waits.
"""

import contextlib
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

# Tests set the variable, to see lines of short runs.
_INTERVAL_SECONDS = float(os.environ.get("TFPIPE_PROGRESS_SECONDS", "10"))


@dataclasses.dataclass(frozen=True)
class _Work:
    """Work done in a phase up to some time."""

    time: float
    num_steps: int = 0
    num_examples: int = 0
    wait_seconds: float = 0.0


class Progress:
    """The phase of a run and its steps; a call costs about a microsecond.

    A thread sets the phase, and another thread reads the phase.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self.begin("starting")

    def begin(self, phase: str, num_steps: int | None = None) -> None:
        self._phase, self._num_steps = phase, num_steps
        self._first = self._told = self._work = _Work(self._clock())

    def step(self, num_examples: int, wait_seconds: float) -> None:
        work = self._work
        self._work = _Work(
            self._clock(),
            work.num_steps + 1,
            work.num_examples + num_examples,
            work.wait_seconds + wait_seconds,
        )

    def line(self) -> str:
        """Returns a line about now; rates are since the line before, or the phase."""
        work, told, first = self._work, self._told, self._first
        text = f"[{self._clock() - self._start:3.0f} s] {self._phase}"
        if self._num_steps is None:
            return text
        self._told = work
        text += f": step {work.num_steps} of {self._num_steps}"
        seconds = work.time - told.time
        if seconds > 0:
            rate = (work.num_examples - told.num_examples) / seconds
            waited = (work.wait_seconds - told.wait_seconds) / seconds
            text += f", {rate:.1f} images/s, waited {waited:.1%}"
        if work.num_steps:
            left = (self._num_steps - work.num_steps) / work.num_steps
            text += f", {left * (work.time - first.time):.0f} s left"
        return text

    @contextlib.contextmanager
    def shown(self, *, is_first: bool) -> Iterator[None]:
        """Prints a line every 10 s in the block, unless stderr is a terminal."""
        if not is_first or sys.stderr.isatty():
            yield
            return
        has_ended = threading.Event()

        def show() -> None:
            while not has_ended.wait(_INTERVAL_SECONDS):
                print(self.line(), file=sys.stderr, flush=True)

        thread = threading.Thread(target=show, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            has_ended.set()
            thread.join()
