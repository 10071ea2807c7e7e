"""The rate of a pipeline without a training step, by the rules of a timed run.

In: a pipeline and the ranks. Out: the figures of one iterator: the records read ahead
are used before the timing begins, ten shuffle windows are timed, and the reads of the
page cache are measured meanwhile. Where the time does not suffice, the result says so.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.page_cache import labels, states
from benchmarks.page_cache.reads import Meter
from benchmarks.system import telemetry
from benchmarks.system.telemetry import Sampler
from benchmarks.training import caches, steady_state
from benchmarks.training.caches import Batches
from benchmarks.training.critical_path import StepTimes
from benchmarks.training.recorder import Recorder, Step, StepResult, Trace
from benchmarks.training.setting import read_ahead
from benchmarks.training.steady_state import ReadAhead

_REPEATS = 3  # parts of the timed batches, for the lowest and the highest rate
_PATIENCE = 20  # times the wanted seconds that a steady state may take
_REMEDY = "give more --seconds"


def time_batches(
    batches: Iterable[Any],
    ahead: ReadAhead,
    *,
    batch_size: int,
    steps_per_epoch: int,
    seconds: float,
    most_seconds: float = math.inf,
    begin: Callable[[], object] = lambda: None,
    after: Callable[[int], object] = lambda num_batches: None,
) -> tuple[Trace, float]:
    """Reads the batches that were made in advance, then times batches.

    Args:
        seconds: The least time of the timed batches.
        most_seconds: The longest time, also if more are needed for a steady state.
        begin: Called when the timing begins.
        after: Called after each timed batch, with the number of batches so far.

    Returns:
        The batches as steps, and the seconds to the first batch.
    """
    recorder, num_warmup = Recorder(0, ahead), max(1, ahead.num_warmup_steps)
    result, nothing = StepResult(batch_size), np.empty(0, np.int64)
    ready = start = time.perf_counter()
    for count, _ in enumerate(batches, start=1):
        fed = time.perf_counter()
        times = StepTimes(ready, fed, fed, fed, fed)
        recorder.add(Step(times, result, nothing), (count - 1) // steps_per_epoch)
        if count == 1:
            first_seconds = fed - ready
        if count > num_warmup:
            after(count)
            is_steady = count - num_warmup >= ahead.num_timed_steps
            if fed - start >= seconds and (is_steady or fed - start >= most_seconds):
                break
        ready = time.perf_counter()
        if count == num_warmup:
            begin()
            recorder.start_timing()
            ready = start = time.perf_counter()
    return recorder.trace(), first_seconds


def throughput(trace: Trace, first_seconds: float) -> dict[str, Any]:
    """Returns the section `throughput`: rates and costs of a batch."""
    count = len(trace.timed)
    ends = np.concatenate([[0.0], trace.end_seconds])
    borders = np.unique(np.linspace(0, count, _REPEATS + 1).astype(int))
    rates = np.diff(borders) / np.maximum(np.diff(ends[borders]), 1e-9)
    return {
        "elements_per_second": count / trace.seconds,
        "elements_per_second_least": float(rates.min()),
        "elements_per_second_most": float(rates.max()),
        "cpu_seconds_per_element": trace.cpu_seconds / count,
        "seconds_to_first_element": first_seconds,
        "num_elements": count,
        "examples_per_element": trace.num_examples // count,
        "examples_per_second": trace.num_examples / trace.seconds,
    }


def text(figures: Mapping[str, Any]) -> str:
    """Returns the section `throughput` as a sentence."""
    batch = figures["examples_per_element"]
    least, most = (figures[f"elements_per_second_{end}"] for end in ("least", "most"))
    cost = figures["cpu_seconds_per_element"]
    return (
        f"{figures['examples_per_second']:,.1f} examples/s ({least * batch:,.1f} to "
        f"{most * batch:,.1f}), {cost / batch * 1e3:.3f} CPU-ms each, the first after "
        f"{figures['seconds_to_first_element']:.2f} s"
    )


def measure(
    pipeline: tfpipe.Pipeline, ranks: Ranks, *, seconds: float, most_seconds: float
) -> dict[str, Any]:
    """Measures the rate of a pipeline over files or a shard cache; all ranks call it.

    The sections of the result are of all ranks, and `throughput` is of the rank.
    """
    source: Any = pipeline.source
    num_bytes, files = caches.split_bytes(source), caches.local_files(source)
    before = states.prepare("as_is", files, ranks) if files else ()
    batches, steps = Batches(pipeline), source.steps_per_epoch
    record_bytes = num_bytes / source.index.num_records(source.split)
    fetched = source.cache_statistics
    meter = Meter(files, ranks, fetched=fetched, record_bytes=record_bytes)
    with Sampler() as sampler:
        trace, first_seconds = _time(
            pipeline, batches, seconds, most_seconds, (meter, sampler)
        )
        epochs = [
            [each for each in own if each.consumed_bytes]
            for own in meter.finish(trace.examples_of)
        ]
    traces, sampled = zip(*ranks.gather((trace, sampler.figures())), strict=True)
    load = telemetry.host_load(sampled)
    others = (load["others_cpu_fraction"] or 0.0) * (os.cpu_count() or 1)
    rates = [each.num_examples / each.seconds for each in traces]
    sections = {
        "throughput": {**throughput(trace, first_seconds), "others_cores": others},
        "examples_per_second": sum(rates),
        "examples_per_second_per_rank": rates,
        "batch_size": source.batch_size,
        "steady_state": steady_state.describe(traces, remedy=_REMEDY),
        "host_load": load,
    }
    if before:  # else no local file is read
        # The ranks end after equal times, and not after equal numbers of epochs.
        shared = [own[: min(map(len, epochs))] for own in epochs]
        joined = labels.join(shared, before)
        cache = labels.section(before, joined, data_bytes=num_bytes, num_steps=steps)
        memory = cache["size_rule"]["ram_bytes_of_hosts"]
        sections |= {"cache": cache, "fits_in_memory": num_bytes < memory}
    return sections


def _time(
    pipeline: tfpipe.Pipeline,
    batches: Batches,
    seconds: float,
    most_seconds: float,
    watches: tuple[Meter, Sampler],
) -> tuple[Trace, float]:
    """Reads a pipeline with one iterator."""
    source: Any = pipeline.source
    (meter, sampler), steps = watches, source.steps_per_epoch
    ahead = read_ahead(pipeline, tfpipe.State())

    def begin() -> None:
        # All ranks begin together.
        meter.start(tfpipe.State(epoch=max(1, ahead.num_warmup_steps) // steps))
        sampler.start_timing()

    def after(num_batches: int) -> None:
        if num_batches % steps == 0:
            state = tfpipe.State(epoch=num_batches // steps)
            meter.end_epoch(state, contextlib.nullcontext, is_last=False)

    def read() -> Iterator[Any]:
        batches.start(tfpipe.State(), None)  # within the time to the first batch
        yield from batches

    return time_batches(
        read(),
        ahead,
        batch_size=source.batch_size,
        steps_per_epoch=steps,
        seconds=min(seconds, most_seconds),
        most_seconds=min(most_seconds, _PATIENCE * seconds),
        begin=begin,
        after=after,
    )
