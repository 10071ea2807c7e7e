"""Steady state: whether timed steps show the storage, or records read in advance.

In: the begins of the windows of a rank, and the timed steps of all ranks. Out: the
number of steps before timing may begin, and the section `steady_state` of the result.

A rank reads whole shuffle windows: the window after the window in use. Steps with the
first windows, read while the model is built, are as fast as memory. A slow storage then
gives window after window, so that a rate over few windows depends on its begin and end.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.results.train_result import SteadyState

if TYPE_CHECKING:  # a trace has the examples that were read ahead
    from benchmarks.training.recorder import Trace

# Timing may begin and end anywhere in a window, and with batches made in advance. The
# error of the rate is then a window, or the batches, over all timed steps.
LEAST_WINDOWS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadAhead:
    """Examples that a rank reads in advance, and the necessary length of a run.

    Attributes:
        num_examples: Largest number of examples read before the first example is used;
            0 if nothing is read.
        num_warmup_steps: Number of whole steps with these examples. Timing may begin
            after the steps.
        num_timed_steps: Number of steps to time, for `LEAST_WINDOWS` windows and as
            many times the batches made in advance.
    """

    num_examples: int = 0
    num_warmup_steps: int = 0
    num_timed_steps: int = 0


def read_ahead(
    starts: Iterator[int], batch_size: int, *, num_batches: int
) -> ReadAhead:
    """Returns the examples that a rank reads in advance.

    `starts` are the numbers of records before each window, nothing without windows, see
    `tfpipe.TFRecordSource.window_starts`.
    """
    if next(starts, None) is None:
        return ReadAhead()
    # The batches made in advance do not use up the window in use.
    buffered = num_batches * batch_size
    ends = itertools.dropwhile(lambda end: end <= buffered, starts)
    _, ahead, *others = itertools.islice(ends, 2 + LEAST_WINDOWS)
    return ReadAhead(
        num_examples=ahead,
        num_warmup_steps=ahead // batch_size,
        num_timed_steps=max(
            math.ceil((others[-1] - ahead) / batch_size), LEAST_WINDOWS * num_batches
        ),
    )


def windows_begun(starts: Iterator[int], batch_size: int) -> Iterator[int]:
    """Yields for each step the number of windows that begin in the step."""
    begins = itertools.groupby(starts, lambda start: start // batch_size)
    last = -1
    for step, windows in begins:
        yield from itertools.repeat(0, step - last - 1)
        yield len(list(windows))
        last = step
    yield from itertools.repeat(0)


def describe(traces: Sequence[Trace], *, remedy: str = "") -> dict[str, Any]:
    """Returns whether a run was in a steady state, with a sentence.

    drift is the rate of all ranks in the last third of the timed steps over the rate in
    the first third; None if there are fewer than three steps.

    Args:
        traces: The measurements of the ranks, also of unequal numbers of timed steps.
        remedy: What to do about a run that is too short; "" for more steps.
    """
    # A run is as steady as its least steady rank.
    aheads = [trace.read_ahead for trace in traces]
    most = max(aheads, key=lambda ahead: ahead.num_examples)
    num_warmup = min(trace.num_warmup_steps for trace in traces)
    num_timed = min(len(trace.timed) for trace in traces)
    # Step k of all ranks is over when its last rank is done.
    ends = np.max([trace.end_seconds[:num_timed] for trace in traces], axis=0)
    third, drift = num_timed // 3, None
    if third:
        drift = float(ends[third - 1] / (ends[-1] - ends[-third - 1]))
    is_even = SteadyState(drift=drift).is_even
    state = "In a steady state" if is_even else "At an uneven rate"
    obstacle = _obstacle(most, num_warmup, num_timed, remedy)
    text = f"{state}: {_proof(most, num_timed)}"
    if obstacle:
        text = f"Not in a steady state: {obstacle}"
    if not is_even:
        text += (
            f" The last third of the timed steps had {drift:.2f} times the rate of the "
            "first third."
        )
    return {
        "read_ahead_examples_per_rank": [ahead.num_examples for ahead in aheads],
        "num_examples_before_timing_per_rank": [
            int(t.steps["num_examples"].sum()) - t.num_examples for t in traces
        ],
        "reached": not obstacle,
        "drift": drift,
        "text": text,
    }


def _obstacle(ahead: ReadAhead, num_warmup: int, num_timed: int, remedy: str) -> str:
    """Returns why the rate may not be steady; "" for a steady rate."""
    if num_warmup < ahead.num_warmup_steps:
        remedy = remedy or "give more steps or epochs, and no --num_warmup_steps"
        return (
            f"{remedy}. Timing began after step {num_warmup}, but a rank may have read "
            f"{ahead.num_examples:,} examples ahead, which last for "
            f"{ahead.num_warmup_steps} steps. Their rate is not that of the storage."
        )
    if num_timed < ahead.num_timed_steps:
        remedy = remedy or f"give --num_steps={ahead.num_timed_steps} or more epochs"
        return (
            f"{remedy}. {num_timed} steps were timed, but {LEAST_WINDOWS} shuffle "
            f"windows last for {ahead.num_timed_steps} steps, and records are read in "
            "whole windows."
        )
    return ""


def _proof(ahead: ReadAhead, num_timed: int) -> str:
    if not ahead.num_examples:
        return "nothing is read."
    error = ahead.num_timed_steps / num_timed / LEAST_WINDOWS
    return (
        f"the {ahead.num_examples:,} examples that a rank reads "
        f"ahead were used before timing began, and {num_timed} steps were timed. Their "
        f"rate is that of the input within {error:.1%}."
    )
