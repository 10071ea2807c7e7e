"""HeadspaceFigures: how far the input is from holding a training step back.

In: a pipeline and a training step. Out: the rate of the step with the pipeline, its
rate with one cached batch, and the rate of the pipeline without a step; all of them
again with fewer cores. A step that a cached batch does not speed up is not held back
by its input.
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
from tfpipe.pages import page
from tfpipe.pipeline import Pipeline
from tfpipe.profiling import prefixes, timed_reader
from tfpipe.service.paying import ServicePayoff

Step = Callable[[Any], Any]

# A step that goes this much slower than with a cached batch is held back.
_HELD_BACK = 0.97


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """Rates per second with a number of cores, medians of the rounds.

    Attributes:
        num_cores: Cores that the process had.
        with_cached_batch: Steps per second with the same batch again and again.
        with_pipeline: Steps per second with the pipeline.
        of_pipeline: Batches per second of the pipeline without a step.
        ratio: with_pipeline divided by with_cached_batch, the median of the rounds.
    """

    num_cores: int
    with_cached_batch: float
    with_pipeline: float
    of_pipeline: float
    ratio: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadspaceFigures:
    """The rates of a step and its input.

    Example:
        >>> from tfpipe.training.headspace import HeadspaceFigures
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4)
        >>> options = {"seconds": 0.01, "num_rounds": 1, "fewer_cores": False}
        >>> result = tfpipe.headspace(pipeline, len, **options)
        >>> isinstance(result, HeadspaceFigures), len(result.rates)
        (True, 1)

    Attributes:
        rates: The rates with all cores, then with fewer and fewer.
    """

    rates: Sequence[Rates]

    @property
    def ratio(self) -> float:
        """Fraction of the step's rate that is left with the pipeline; 1 is all."""
        return self.rates[0].ratio

    @property
    def times_faster(self) -> float:
        """How many times as fast as this step the pipeline is without a step."""
        return self.rates[0].of_pipeline / self.rates[0].with_cached_batch

    @property
    def num_spare_cores(self) -> int:
        """Cores that can be taken away before the input holds the step back."""
        enough = [rates for rates in self.rates if rates.ratio >= _HELD_BACK]
        if not enough or enough[0] is not self.rates[0]:
            return 0
        return self.rates[0].num_cores - min(rates.num_cores for rates in enough)

    @property
    def service(self) -> ServicePayoff:
        """Whether a `Service` would pay for this step."""
        first = self.rates[0]
        return ServicePayoff(
            rate=first.of_pipeline,
            num_cores=first.num_cores,
            demand=first.with_cached_batch,
            unit="batches",
        )

    @property
    def sentence(self) -> str:
        """The result in words."""
        first = self.rates[0]
        if self.ratio < _HELD_BACK:
            return (
                f"The input holds the step back: {first.with_pipeline:.1f} steps/s of "
                f"{first.with_cached_batch:.1f} with a cached batch ({self.ratio:.0%})."
                f" {self.service.sentence}"
            )
        spare = self.num_spare_cores
        return (
            f"The input does not hold the step back ({self.ratio:.0%} of the rate with "
            f"a cached batch): alone the input is {self.times_faster:.1f} times "
            f"as fast as the step, and {spare or 'none'} of {first.num_cores} cores "
            "can be taken away."
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

    def _repr_html_(self) -> str:
        return page.printed(str(self))

    def as_json(self) -> dict[str, Any]:
        """The figures as plain values."""
        return {
            "rates": [dataclasses.asdict(rates) for rates in self.rates],
            "ratio_to_cached_batch": self.ratio,
            "times_faster": self.times_faster,
            "num_spare_cores": self.num_spare_cores,
            "sentence": self.sentence,
            "service": self.service.as_json(),
        }


def headspace(
    pipeline: Pipeline,
    step: Step,
    *,
    seconds: float = 2.0,
    num_rounds: int = 3,
    fewer_cores: bool = True,
) -> HeadspaceFigures:
    """Measures a training step with a cached batch and with the pipeline, in turns.

    Cores are taken from all threads of the process, halving their number until the
    input holds the step back. Each thread gets its own cores back at the end, and a
    pinned thread never gets others. A step on fewer cores is slower by itself, so it is
    compared with the cached batch on as many. A pipeline that ends begins again.

    Example:
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4)
        >>> step = tf.function(lambda batch: tf.reduce_sum(batch["label"]))
        >>> options = {"seconds": 0.01, "num_rounds": 1, "fewer_cores": False}
        >>> tfpipe.headspace(pipeline, step, **options).num_spare_cores
        0

    Args:
        pipeline: Its elements are the batches that the step takes.
        step: Trains on a batch and returns when that is done, or returns tensors. It is
            called a few times to warm up.
        seconds: Seconds of a turn.
        num_rounds: Turns of each kind.
        fewer_cores: Whether to take cores away.

    Raises:
        ValueError: If a number is not positive, or the pipeline is empty.
    """
    errors.require_kind("", "pipeline", pipeline, Pipeline)
    errors.require_callable("", "step", step)
    errors.require_number("", "seconds", seconds, above=0)
    errors.require_int("", "num_rounds", num_rounds, least=1)
    errors.require_bool("", "fewer_cores", fewer_cores)
    dataset = prefixes.endless(pipeline).build(num_epochs=None)
    # A batch again and again, and the batches of the pipeline.
    sources = iter(dataset.take(1).cache().repeat()), iter(dataset)
    bench = Bench(*sources, step, seconds=seconds, num_rounds=num_rounds)
    bench.warm_up()
    cores = sorted(os.sched_getaffinity(0))

    def measure(num_cores: int) -> Rates:
        with _only(cores[:num_cores]):
            return bench.rates(num_cores)

    return HeadspaceFigures(
        rates=with_fewer(measure, len(cores), fewer_cores=fewer_cores)
    )


def with_fewer(
    measure: Callable[[int], Rates], num_cores: int, *, fewer_cores: bool = True
) -> list[Rates]:
    """Returns the rates with all cores, then with half of them again and again.

    Ends when the input holds the step back, since fewer cores tell nothing more then.
    """
    found = [measure(num_cores)]
    while fewer_cores and num_cores > 1 and found[-1].ratio >= _HELD_BACK:
        num_cores //= 2
        found.append(measure(num_cores))
    return found


@dataclasses.dataclass(frozen=True)
class Bench:
    """Measures how fast a step goes with either source of batches.

    Args:
        cached: The same batch again and again.
        pipeline: The batches of the pipeline.
        step: See `headspace`.
        seconds: Seconds of a turn.
        num_rounds: Turns of each kind.
        clock: Returns seconds.
    """

    cached: Iterator[Any]
    pipeline: Iterator[Any]
    step: Step
    seconds: float
    num_rounds: int
    clock: Callable[[], float] = time.perf_counter

    def warm_up(self) -> None:
        """Makes a step with each source, which compiles it and fills the cache."""
        for source in (self.cached, self.pipeline):
            self._run(source, self.step, 0.0)

    def rates(self, num_cores: int) -> Rates:
        """Measures all rates; `num_cores` is the number of cores at present."""
        cached: list[float] = []
        fed: list[float] = []
        alone: list[float] = []
        for _ in range(self.num_rounds):
            for source, rates in ((self.cached, cached), (self.pipeline, fed)):
                # Uses up the batches that were made during the other turns.
                self._run(source, self.step, self.seconds / 3)
                rates.append(self._run(source, self.step, self.seconds))
            alone.append(self._run(self.pipeline, lambda batch: None, self.seconds))
        return Rates(
            num_cores=num_cores,
            with_cached_batch=statistics.median(cached),
            with_pipeline=statistics.median(fed),
            of_pipeline=statistics.median(alone),
            ratio=statistics.median(a / b for a, b in zip(fed, cached, strict=True)),
        )

    def _run(self, source: Iterator[Any], step: Step, seconds: float) -> float:
        """Returns the steps per second, from one step at least."""
        count, start = 0, self.clock()
        while not count or self.clock() - start < seconds:
            if (batch := next(source, None)) is None:
                raise ValueError(timed_reader.EMPTY)
            _wait_for(step(batch))
            count += 1
        return count / max(self.clock() - start, 1e-9)


def _wait_for(result: Any) -> None:
    """Waits until the tensors that a step returned are computed."""
    for tensor in tf.nest.flatten(result):
        if isinstance(tensor, tf.Tensor):
            tensor.numpy()


@contextlib.contextmanager
def _only(cores: Sequence[int]) -> Iterator[None]:
    """Limits each thread of this process to those of its cores that are in `cores`.

    A thread that is pinned to other cores stays there: with its cores changed it would
    run slower than in the training that is measured.
    """
    mine, before = os.sched_getaffinity(0), _kept_to(set(cores))
    try:
        yield
    finally:
        for thread in _threads():
            # A thread that was started meanwhile has the cores of its parent.
            limited = _affinity(thread) == mine & set(cores)
            own = before.get(thread, mine if limited else set())
            if own:
                _set_affinity(thread, own)


def _kept_to(cores: set[int]) -> dict[int, set[int]]:
    """Limits every thread to `cores`; returns the cores that each had before."""
    before: dict[int, set[int]] = {}
    # A thread that starts meanwhile may have the cores of one that was not seen yet.
    while new := [thread for thread in _threads() if thread not in before]:
        for thread in new:
            before[thread] = _affinity(thread)
            if left := before[thread] & cores:
                _set_affinity(thread, left)
    return before


def _threads() -> list[int]:
    return [int(path.name) for path in pathlib.Path("/proc/self/task").iterdir()]


def _affinity(thread: int) -> set[int]:
    """Returns the cores of a thread; none if it has ended."""
    try:
        return os.sched_getaffinity(thread)
    except ProcessLookupError:
        return set()


def _set_affinity(thread: int, cores: set[int]) -> None:
    with contextlib.suppress(ProcessLookupError):  # the thread has ended
        os.sched_setaffinity(thread, cores)
