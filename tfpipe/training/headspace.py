"""Headspace: how far the input is from holding a training step back.

In: a pipeline and a training step. Out: how fast the step goes with the pipeline, how
fast with one batch that is always there, how fast the pipeline goes without a step, and
all of that with fewer cores. What a cached batch does not speed up, no pipeline does.
"""

import contextlib
import dataclasses
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfpipe import errors
from tfpipe.pipeline import Pipeline
from tfpipe.profiling import prefixes, timed_reader

Step = Callable[[Any], Any]

# A step that goes this much slower than with a cached batch is held back.
_HELD_BACK = 0.97


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """Steps per second with so many cores, medians of the rounds.

    Attributes:
        num_cores: Cores that the process had.
        with_cached_batch: Of the step, with one batch again and again.
        with_pipeline: Of the step, with the pipeline.
        of_pipeline: Of the pipeline, without a step.
        ratio: Of with_pipeline to with_cached_batch, the median over the rounds.
    """

    num_cores: int
    with_cached_batch: float
    with_pipeline: float
    of_pipeline: float
    ratio: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Headspace:
    """What was measured, all cores first.

    Attributes:
        rates: With all cores, then with fewer and fewer.
    """

    rates: Sequence[Rates]

    @property
    def ratio(self) -> float:
        """Of the step's rate, what the input leaves of it; 1 is all."""
        return self.rates[0].ratio

    @property
    def times_faster(self) -> float:
        """How many times as fast a step the pipeline could feed, beside this one."""
        return self.rates[0].of_pipeline / self.rates[0].with_cached_batch

    @property
    def num_spare_cores(self) -> int:
        """Cores that can be taken away before the input holds the step back."""
        enough = [rates for rates in self.rates if rates.ratio >= _HELD_BACK]
        if not enough or enough[0] is not self.rates[0]:
            return 0
        return self.rates[0].num_cores - min(rates.num_cores for rates in enough)

    @property
    def sentence(self) -> str:
        """What came of it."""
        first = self.rates[0]
        if self.ratio < _HELD_BACK:
            return (
                f"The input holds the step back: {first.with_pipeline:.1f} steps/s of "
                f"{first.with_cached_batch:.1f} with a cached batch ({self.ratio:.0%})."
            )
        spare = self.num_spare_cores
        return (
            f"The input does not hold the step back ({self.ratio:.0%} of the rate with "
            f"a cached batch): alone it goes {self.times_faster:.1f} times as fast as "
            f"the step, and {spare or 'none'} of {first.num_cores} cores can be taken "
            "away."
        )

    def __str__(self) -> str:
        lines = [
            f"{'cores':>5} {'cached':>10} {'pipeline':>10} {'ratio':>7} {'alone':>10}"
        ]
        lines += [
            f"{rates.num_cores:5} {rates.with_cached_batch:10.1f} "
            f"{rates.with_pipeline:10.1f} {rates.ratio:7.2f} {rates.of_pipeline:10.1f}"
            for rates in self.rates
        ]
        return "\n".join([*lines, self.sentence])

    def as_json(self) -> dict[str, Any]:
        """The figures as plain values."""
        return {
            "rates": [dataclasses.asdict(rates) for rates in self.rates],
            "ratio_to_cached_batch": self.ratio,
            "times_faster": self.times_faster,
            "num_spare_cores": self.num_spare_cores,
            "sentence": self.sentence,
        }


def headspace(
    pipeline: Pipeline,
    step: Step,
    *,
    seconds: float = 2.0,
    num_rounds: int = 3,
    fewer_cores: bool = True,
) -> Headspace:
    """RecordRanges a training step with a cached batch and with the pipeline, in turns.

    Cores are taken from all threads of the process, halving their number until the
    input holds the step back. Each thread gets its own back at the end; one that is
    pinned never gets others. A step on fewer cores is slower by itself, so it is
    compared with itself on as many. A pipeline that ends begins again.

    Args:
        pipeline: Its elements are what the step takes.
        step: Trains on a batch and returns when that is done, or returns tensors; it is
            called some times to warm up.
        seconds: Of a turn.
        num_rounds: Turns of each.
        fewer_cores: Whether to take cores away.

    Raises:
        ValueError: If a number is not positive, or the pipeline is empty.
    """
    errors.require_kind("", "pipeline", pipeline, Pipeline)
    errors.require_callable("", "step", step)
    errors.require_number("", "seconds", seconds, above=0)
    errors.require_int("", "num_rounds", num_rounds, least=1)
    errors.require_bool("", "fewer_cores", fewer_cores)
    sources = _sources(pipeline)
    for source in sources.values():
        _run(source, step, 0.0)  # compiles, and fills the cache
    cores = sorted(os.sched_getaffinity(0))
    rates: list[Rates] = []
    number = len(cores)
    while number:
        with _only(cores[:number]):
            rates.append(_measure(sources, step, seconds, num_rounds, number))
        if not fewer_cores or rates[-1].ratio < _HELD_BACK:
            break
        number //= 2
    return Headspace(rates=rates)


def _sources(pipeline: Pipeline) -> dict[str, Iterator[Any]]:
    """One batch again and again, and the pipeline without end."""
    dataset = prefixes.endless(pipeline).build(num_epochs=None)
    cached = dataset.take(1).cache().repeat()
    return {"cached": iter(cached), "pipeline": iter(dataset)}


def _measure(
    sources: dict[str, Iterator[Any]],
    step: Step,
    seconds: float,
    num_rounds: int,
    num_cores: int,
) -> Rates:
    cached: list[float] = []
    fed: list[float] = []
    alone: list[float] = []
    for _ in range(num_rounds):
        for source, rates in (("cached", cached), ("pipeline", fed)):
            _run(sources[source], step, seconds / 3)  # what was prepared in the pause
            rates.append(_run(sources[source], step, seconds))
        alone.append(_run(sources["pipeline"], lambda batch: None, seconds))
    return Rates(
        num_cores=num_cores,
        with_cached_batch=statistics.median(cached),
        with_pipeline=statistics.median(fed),
        of_pipeline=statistics.median(alone),
        ratio=statistics.median(a / b for a, b in zip(fed, cached, strict=True)),
    )


def _run(source: Iterator[Any], step: Step, seconds: float) -> float:
    """Steps per second, of one step at least."""
    count, start = 0, time.perf_counter()
    while not count or time.perf_counter() - start < seconds:
        if (batch := next(source, None)) is None:
            raise ValueError(timed_reader.NOTHING)
        _wait_for(step(batch))
        count += 1
    return count / (time.perf_counter() - start)


def _wait_for(result: Any) -> None:
    """Returns when what a step returned is there."""
    for tensor in tf.nest.flatten(result):
        if isinstance(tensor, tf.Tensor):
            tensor.numpy()


@contextlib.contextmanager
def _only(cores: Sequence[int]) -> Iterator[None]:
    """Keeps each thread of this process on those of its own cores that are among these.

    A thread that was pinned to other cores stays there: elsewhere it would be slower
    than the training that is measured.
    """
    mine, before = os.sched_getaffinity(0), _kept_to(set(cores))
    try:
        yield
    finally:
        for thread in _threads():
            # One that was born meanwhile has what its parent had then.
            limited = _affinity(thread) == mine & set(cores)
            own = before.get(thread, mine if limited else set())
            if own:
                _set_affinity(thread, own)


def _kept_to(cores: set[int]) -> dict[int, set[int]]:
    """Takes all other cores from every thread; the cores that each had before."""
    before: dict[int, set[int]] = {}
    # A thread that is born meanwhile may have the cores of one that was not seen yet.
    while new := [thread for thread in _threads() if thread not in before]:
        for thread in new:
            before[thread] = _affinity(thread)
            if left := before[thread] & cores:
                _set_affinity(thread, left)
    return before


def _threads() -> list[int]:
    return [int(path.name) for path in pathlib.Path("/proc/self/task").iterdir()]


def _affinity(thread: int) -> set[int]:
    """The cores of a thread; none if it has ended."""
    try:
        return os.sched_getaffinity(thread)
    except ProcessLookupError:
        return set()


def _set_affinity(thread: int, cores: set[int]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.sched_setaffinity(thread, cores)
