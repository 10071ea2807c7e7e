"""The rate of a pipeline without a training step, by the rules of a timed run.

In: a pipeline and the ranks. Out: the figures of one iterator: the records read ahead
are used before the timing begins, ten shuffle windows are timed, and the reads of the
page cache are measured meanwhile. Where the time does not suffice, the result says so.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.page_cache import labels, states
from benchmarks.page_cache.reads import Meter
from benchmarks.reporting import steady_state
from benchmarks.reporting.steady_state import ReadAhead
from benchmarks.system import host_load
from benchmarks.system.telemetry import Sampler
from benchmarks.training.setting import read_ahead

_REPEATS = 3  # parts of the timed batches, for the lowest and the highest rate
_PATIENCE = 20  # times the wanted seconds that a steady state may take


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputRate:
    """The timed batches of a rank."""

    ahead: ReadAhead
    batch_size: int
    num_warmup: int
    end_seconds: list[float]
    cpu_seconds: float
    first_seconds: float

    @property
    def examples_per_second(self) -> float:
        """Examples of all timed batches over their time."""
        return len(self.end_seconds) * self.batch_size / self.end_seconds[-1]

    def num_examples(self, steps_per_epoch: int, epoch: int) -> int:
        """Returns the timed examples of an epoch."""
        start = self.num_warmup
        end = start + len(self.end_seconds)
        first, last = epoch * steps_per_epoch, (epoch + 1) * steps_per_epoch
        return max(0, min(end, last) - max(start, first)) * self.batch_size

    def throughput(self) -> dict[str, Any]:
        ends = np.concatenate([[0.0], self.end_seconds])
        count = len(self.end_seconds)
        borders = np.unique(np.linspace(0, count, _REPEATS + 1).astype(int))
        rates = np.diff(borders) / np.maximum(np.diff(ends[borders]), 1e-9)
        return {
            "elements_per_second": self.examples_per_second / self.batch_size,
            "elements_per_second_least": float(rates.min()),
            "elements_per_second_most": float(rates.max()),
            "cpu_seconds_per_element": self.cpu_seconds / count,
            "seconds_to_first_element": self.first_seconds,
            "num_elements": count,
            "examples_per_element": self.batch_size,
            "examples_per_second": self.examples_per_second,
        }

    def __str__(self) -> str:
        batch, figures = self.batch_size, self.throughput()
        least = figures["elements_per_second_least"] * batch
        most = figures["elements_per_second_most"] * batch
        cost = figures["cpu_seconds_per_element"] / batch
        return (
            f"{self.examples_per_second:,.1f} examples/s ({least:,.1f} to "
            f"{most:,.1f}), {cost * 1e3:.3f} CPU-ms each, the first after "
            f"{self.first_seconds:.2f} s"
        )


def time_batches(
    batches: Iterator[Any],
    ahead: ReadAhead,
    *,
    seconds: float,
    most_seconds: float = math.inf,
    begin: Callable[[], object] = lambda: None,
    after: Callable[[int], object] = lambda num_batches: None,
) -> tuple[int, list[float]]:
    """Reads the batches that were made in advance, then times batches.

    Args:
        seconds: The least time of the timed batches.
        most_seconds: The longest time, also if more are needed for a steady state.

    Returns:
        The number of batches before the timing, and the end of each timed batch.
    """
    num_warmup = max(1, ahead.num_warmup_steps)
    for _ in itertools.islice(batches, num_warmup):
        pass
    begin()
    start = time.perf_counter()
    ends: list[float] = []
    for _ in batches:
        now = time.perf_counter() - start
        ends.append(now)
        after(num_warmup + len(ends))
        if now >= seconds and (
            len(ends) >= ahead.num_timed_steps or now >= most_seconds
        ):
            break
    return num_warmup, ends


def steady_state_of(rates: Sequence[InputRate]) -> dict[str, Any]:
    """Returns the section `steady_state` of the result, of the rates of all ranks."""
    shortest = min(len(rate.end_seconds) for rate in rates)
    return steady_state.describe(
        read_ahead=[rate.ahead for rate in rates],
        num_warmup_steps=min(rate.num_warmup for rate in rates),
        num_warmup_examples=[rate.num_warmup * rate.batch_size for rate in rates],
        end_seconds=[rate.end_seconds[:shortest] for rate in rates],
        remedy="give more --seconds",
    )


def measure(
    pipeline: tfpipe.Pipeline, ranks: Ranks, *, seconds: float, most_seconds: float
) -> tuple[InputRate, dict[str, Any]]:
    """Measures the rate of a pipeline over files or a shard cache; all ranks call it.

    Args:
        most_seconds: The longest time to time.

    Returns:
        The rate of the rank, and the sections `steady_state`, `host_load`, `cache` and
        `examples_per_second_per_rank` of the result.
    """
    source: Any = pipeline.source
    num_bytes = sum(shard.num_bytes for shard in source.index.splits[source.split])
    record_bytes = num_bytes / source.index.num_records(source.split)
    files = [path for path in source.paths if tfpipe.Location(path).is_local]
    before = states.prepare("as_is", files, ranks) if files else ()
    fetched = source.cache_statistics
    meter = Meter(files, ranks, fetched=fetched, record_bytes=record_bytes)
    steps, ahead = source.steps_per_epoch, read_ahead(pipeline, tfpipe.State())

    def begin() -> None:
        # All ranks begin together.
        meter.start(tfpipe.State(epoch=max(1, ahead.num_warmup_steps) // steps))
        sampler.start_timing()

    def after(num_batches: int) -> None:
        if num_batches % steps == 0:
            state = tfpipe.State(epoch=num_batches // steps)
            meter.end_epoch(state, contextlib.nullcontext, is_last=False)

    with Sampler() as sampler:
        rate = _time(pipeline, ahead, seconds, most_seconds, (begin, after))
        epochs = [
            [each for each in own if each.consumed_bytes]
            for own in meter.finish(functools.partial(rate.num_examples, steps))
        ]
    everyone = ranks.gather((rate, sampler.figures()))
    sections = _sections(everyone)
    if before:  # else no local file is read
        # The ranks end after equal times, and not after equal numbers of epochs.
        shared = [own[: min(map(len, epochs))] for own in epochs]
        joined = labels.join(shared, before)
        cache = labels.section(before, joined, data_bytes=num_bytes, num_steps=steps)
        memory = cache["size_rule"]["ram_bytes_of_hosts"]
        sections |= {"cache": cache, "fits_in_memory": num_bytes < memory}
    return rate, sections


def _sections(everyone: Sequence[tuple[InputRate, dict[str, Any]]]) -> dict[str, Any]:
    rates = [rate for rate, _ in everyone]
    return {
        "examples_per_second_per_rank": [rate.examples_per_second for rate in rates],
        "steady_state": steady_state_of(rates),
        "host_load": host_load.summarize([figures for _, figures in everyone]),
    }


def _time(
    pipeline: tfpipe.Pipeline,
    ahead: ReadAhead,
    seconds: float,
    most_seconds: float,
    calls: tuple[Callable[[], object], Callable[[int], object]],
) -> InputRate:
    """Reads a pipeline with one iterator; returns the rate of the rank."""
    cpu_seconds, (begin, after) = 0.0, calls
    source: Any = pipeline.source

    def start() -> None:
        nonlocal cpu_seconds
        begin()
        cpu_seconds = -time.process_time()

    started = time.perf_counter()
    # Nobody trains on the batches: no reminder to apply the device ops.
    batches = iter(dataclasses.replace(pipeline, device_ops=()).build(num_epochs=None))
    first = next(batches)
    first_seconds = time.perf_counter() - started
    num_warmup, ends = time_batches(
        itertools.chain([first], batches),
        ahead,
        seconds=min(seconds, most_seconds),
        most_seconds=min(most_seconds, _PATIENCE * seconds),
        begin=start,
        after=after,
    )
    return InputRate(
        ahead=ahead,
        batch_size=source.batch_size,
        num_warmup=num_warmup,
        end_seconds=ends,
        cpu_seconds=cpu_seconds + time.process_time(),
        first_seconds=first_seconds,
    )
