"""Progress on stderr: bars by tqdm on a terminal, lines every 10 s elsewhere.

In: the finished units of work, or the phase of a run and its steps. Out: a bar, or
lines such as "[ 30 s] timed: step 240 of 1000, 483.9 images/s, waited 4.4 %, 32 s
left". A thread prints the lines, also while the main thread waits. A process without a
terminal never imports tqdm.
"""

import contextlib
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import tqdm


class NoBar:
    """The progress bar without a terminal: shows and counts nothing."""

    n: float = 0
    total: float | None = 0

    def update(self, n: float | None = 1) -> None:
        """Shows nothing."""

    def clear(self) -> None:
        """Shows nothing."""

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        """Shows nothing."""


# NoBar or a bar of tqdm.
Bar: TypeAlias = "NoBar | tqdm.tqdm[Any]"


@contextlib.contextmanager
def bar(
    total: float | None, unit: str, *, done: float = 0, is_shown: bool = True
) -> Iterator[Bar]:
    """Shows a progress bar on stderr during the block, if stderr is a terminal.

    Args:
        total: Number of units; None if the number is not known yet.
        unit: Name of a unit. "B" is shown with prefixes such as M.
        done: Units of an earlier run.
        is_shown: Whether the process shows the bar.

    Yields:
        The bar, with `update`, `set_postfix_str`, `n` and `total`.
    """
    if not is_shown or not sys.stderr.isatty():
        yield NoBar()
        return
    import tqdm  # takes a tenth of the time of a small command

    # The bar is updated often enough without tqdm's thread, and a process with a
    # second thread cannot fork its workers.
    tqdm.tqdm.monitor_interval = 0
    with tqdm.tqdm(
        total=total,
        initial=done,
        unit=unit,
        unit_scale=unit == "B",
        file=sys.stderr,
        dynamic_ncols=True,
    ) as shown:
        yield shown


def say(line: str) -> None:
    """Prints a line on stderr, above a shown bar."""
    if "tqdm" in sys.modules:
        import tqdm

        tqdm.tqdm.write(line, file=sys.stderr)
    else:
        print(line, file=sys.stderr, flush=True)


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
