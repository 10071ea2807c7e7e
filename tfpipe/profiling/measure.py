"""Measures: how fast a dataset is, and what each stage of a pipeline costs.

In: any dataset, or a `Pipeline`. Out: frozen figures. Elements are read inside tf.data,
so that Python costs nothing. A stage costs what the pipeline up to it costs more than
that up to the stage before (a prefix, with one thread and everything in turn), in
CPU-seconds, which hold on a busy host too.
"""

import dataclasses
import math
import mmap
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from tfpipe import errors, host
from tfpipe.pipeline import Pipeline
from tfpipe.profiling import limits, prefixes, profile_runs, timed_reader
from tfpipe.profiling.limits import Host, StageCost
from tfpipe.profiling.prefixes import Step
from tfpipe.profiling.profile import Profile, Rate, Storage
from tfpipe.profiling.profile_runs import Plan, Whole
from tfpipe.profiling.timed_reader import Spent, TimedReader
from tfpipe.tuning import AUTOTUNE

# Of its CPU time: less is the noise of threads that hand over to each other.
_LEAST_WAIT = 0.25

# Times the bandwidth of the storage: more is not its noise.
_CACHED = 1.2

# Bytes for an output that are not the doing of this process' own bookkeeping.
_LEAST_READ = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Throughput:
    """How fast a dataset is, without a training step.

    Attributes:
        elements_per_second: The median of the repeats.
        elements_per_second_least, elements_per_second_most: Of the repeats.
        cpu_seconds_per_element: CPU time of the whole process, the median.
        seconds_to_first_element: From the making of the iterator on.
        num_elements: In a repeat.
        examples_per_element: Batch size, if it is static: the first dimension that all
            tensors share, one of them having no other. None is not known.
    """

    elements_per_second: float
    elements_per_second_least: float
    elements_per_second_most: float
    cpu_seconds_per_element: float
    seconds_to_first_element: float
    num_elements: int
    examples_per_element: int | None

    @property
    def examples_per_second(self) -> float | None:
        """The median rate times the batch size, if that is known."""
        if self.examples_per_element is None:
            return None
        return self.elements_per_second * self.examples_per_element

    def as_json(self) -> dict[str, Any]:
        """The figures as plain values, with units in the names."""
        return dataclasses.asdict(self) | {
            "examples_per_second": self.examples_per_second
        }

    def __str__(self) -> str:
        count = self.examples_per_element or 1
        unit = "examples" if self.examples_per_element else "elements"
        return (
            f"{self.elements_per_second * count:,.1f} {unit}/s "
            f"({self.elements_per_second_least * count:,.1f} to "
            f"{self.elements_per_second_most * count:,.1f}), "
            f"{self.cpu_seconds_per_element / count * 1e3:.3f} CPU-ms each, "
            f"the first after {self.seconds_to_first_element:.2f} s"
        )


def throughput(
    dataset: tf.data.Dataset,
    *,
    num_elements: int | None = None,
    seconds: float = 3.0,
    num_warmup: int | None = None,
    repeats: int = 3,
) -> Throughput:
    """Reads a dataset as fast as it goes. One that ends begins again.

    Args:
        dataset: Any.
        num_elements: Elements to read in a repeat; None is as many as `seconds` take.
        seconds: About how long all repeats take together.
        num_warmup: Elements to read first; None is half of `num_elements`.
        repeats: Times to measure, one after the other.

    Raises:
        ValueError: If the dataset is empty, or a number is out of range.
    """
    errors.require_kind("", "dataset", dataset, tf.data.Dataset)
    _require_extent(num_elements, seconds, repeats)
    errors.require_int("", "num_warmup", num_warmup, least=1, also=[None])
    start = time.perf_counter()
    TimedReader(dataset, 1).pull()
    first = time.perf_counter() - start
    if num_elements is None:
        each = timed_reader.calibrate(dataset, seconds / 10)
        num_elements = max(1, int(seconds / repeats / each))
    # Pulls of a quarter each, so that a repeat is a few of them and warm-up half of it.
    parts = math.gcd(num_elements, 4)
    reader = TimedReader(dataset, num_elements // parts)
    warmup = num_elements / 2 if num_warmup is None else num_warmup
    reader.pull(math.ceil(warmup / reader.group))
    rate = _rate([reader.pull(parts) for _ in range(repeats)])
    return Throughput(
        elements_per_second=rate.median,
        elements_per_second_least=rate.least,
        elements_per_second_most=rate.most,
        cpu_seconds_per_element=rate.cpu_seconds_per_element,
        seconds_to_first_element=first,
        num_elements=num_elements,
        examples_per_element=examples_in(dataset.element_spec),
    )


def profile(
    pipeline: Pipeline,
    *,
    num_elements: int | None = None,
    seconds: float = 1.0,
    repeats: int = 3,
    per_op: bool = False,
    consumer_seconds: float = 0.0,
    storage_bytes_per_second: float | None = None,
    progress: bool = True,
) -> Profile:
    """What each stage of a pipeline costs, and what holds the pipeline back.

    RecordRanges every prefix of the pipeline, in turns, and the whole as it is. Filled caches
    are measured: what was before them costs nothing then. A pipeline that ends begins
    again. It takes about `(number of stages + 3) * repeats * seconds`.

    Args:
        pipeline: Of any stages and elements.
        num_elements: Outputs of the pipeline in a run; None is as many as `seconds`
            take.
        seconds: Of a run of the whole pipeline with one thread.
        repeats: RecordRanges of each prefix and of the whole, of which the median counts.
        per_op: Whether every op of a `Map` is a row of its own.
        consumer_seconds: That the training step takes for an output, if known.
        storage_bytes_per_second: Bandwidth of the storage, if known; None takes the
            one that the reader alone has now, unless all comes from the page cache.
        progress: Whether to show a progress bar on stderr.

    Raises:
        ValueError: If the pipeline has no elements, or a number is out of range.
    """
    _require_profile(pipeline, consumer_seconds, storage_bytes_per_second)
    _require_extent(num_elements, seconds, repeats, per_op=per_op, progress=progress)
    ram_left, steps = host.ram_left(), prefixes.steps(pipeline, per_op=per_op)
    with tqdm.tqdm(
        total=5 + repeats * sum(step.is_measured for step in steps),
        desc="profile",
        unit="run",
        file=sys.stderr,
        disable=None if progress else True,
        leave=False,
    ) as bar:
        task = profile_runs.Task(
            pipeline=pipeline,
            steps=steps,
            prefixes=prefixes.prefixes(pipeline, steps),
            seconds=seconds,
            repeats=repeats,
            bar=bar,
        )
        bandwidth = profile_runs.bandwidth(task)
        plan = profile_runs.plan(task, num_elements)
        spent = profile_runs.rounds(task, plan)
        whole = profile_runs.whole(task, plan)
    if storage_bytes_per_second is not None:
        bandwidth = (storage_bytes_per_second, math.nan)
    rows, here = _judge(steps, plan, spent, whole)
    rate, storage = _rate(whole.spent), _storage(spent[plan.reader], bandwidth)
    return Profile(
        stages=rows,
        rate=rate,
        examples_per_output=examples_in(whole.element_spec),
        num_elements=plan.num_elements,
        host=here,
        storage=storage,
        consumer_seconds=consumer_seconds,
        ram_left_bytes=ram_left,
        memory_bytes=whole.memory_bytes,
        notes=_notes(rows, rate, storage),
        pipeline=pipeline,
    )


def examples_in(spec: Any) -> int | None:
    """The batch size of elements, see `Throughput.examples_per_element`."""
    shapes = [item.shape for item in tf.nest.flatten(spec) if hasattr(item, "shape")]
    if not shapes or any(not shape.rank for shape in shapes):
        return None
    sizes = {shape[0] for shape in shapes}
    if len(sizes) > 1 or all(shape.rank > 1 for shape in shapes):
        return None
    size: int | None = sizes.pop()
    return size


def _require_extent(
    num_elements: int | None, seconds: float, repeats: int, **switches: bool
) -> None:
    errors.require_bools("", **switches)
    errors.require_int("", "num_elements", num_elements, least=1, also=[None])
    errors.require_number("", "seconds", seconds, above=0)
    errors.require_int("", "repeats", repeats, least=1)


def _require_profile(
    pipeline: Pipeline, consumer_seconds: float, bandwidth: float | None
) -> None:
    errors.require_kind("", "pipeline", pipeline, Pipeline)
    errors.require_number("", "consumer_seconds", consumer_seconds, least=0)
    errors.require_number(
        "", "storage_bytes_per_second", bandwidth, above=0, or_none=True
    )


def _rate(spent: Sequence[Spent]) -> Rate:
    rates = [1 / item.wall for item in spent]
    return Rate(
        median=statistics.median(rates),
        least=min(rates),
        most=max(rates),
        cpu_seconds_per_element=statistics.median(item.cpu for item in spent),
    )


def _judge(
    steps: Sequence[Step], plan: Plan, spent: Sequence[Sequence[Spent]], whole: Whole
) -> tuple[list[StageCost], Host]:
    """The rows of a profile: what each step costs more than the one before it."""
    read = _Reading.of(spent[plan.reader])
    rows: list[StageCost] = []
    before: Sequence[Spent] = [Spent(0.0, 0.0)] * max(map(len, spent))
    for position, (step, mine) in enumerate(zip(steps, spent, strict=True)):
        cpu, wait = 0.0, 0.0
        if mine:
            now = mine
            if position > plan.reader:
                now = [read.corrected(item) for item in mine]
            # Within a round, so that a slow spell of the host meets both.
            cpu = statistics.median(
                a.cpu - b.cpu for a, b in zip(now, before, strict=True)
            )
            wait = _median_wait(now) - _median_wait(before)
            before = now
        rows.append(_row(step, position, plan, whole, cpu, wait))
    total = sum(row.cpu_seconds_per_output for row in rows)
    on_all = statistics.median(read.corrected(s).cpu for s in whole.on_all_cores)
    here = Host(
        num_cores=whole.num_cores,
        num_threads=whole.num_threads,
        slowdown=on_all / total if total else 1.0,
        copy_bytes_per_second=_copy_bandwidth(),
    )
    return [_shared(row, total, here) for row in rows], here


@dataclasses.dataclass(frozen=True)
class _Reading:
    """What reading costs: windows are read at once, so that a run has more or less."""

    bytes_per_output: float
    cpu_per_byte: float

    @classmethod
    def of(cls, spent: Sequence[Spent]) -> "_Reading":
        """From the runs of the reader, which are of whole windows."""
        read = statistics.median(item.bytes_read for item in spent)
        if read < _LEAST_READ:
            return cls(0.0, 0.0)
        # Of the read-ahead a run may have had almost none.
        cpu = statistics.median(item.cpu for item in spent)
        return cls(read, cpu / read)

    def corrected(self, spent: Spent) -> Spent:
        """As if it had read what an output takes."""
        excess = spent.bytes_read - self.bytes_per_output
        return dataclasses.replace(spent, cpu=spent.cpu - excess * self.cpu_per_byte)


def _median_wait(spent: Sequence[Spent]) -> float:
    return statistics.median(item.wait for item in spent)


def _row(
    step: Step, position: int, plan: Plan, whole: Whole, cpu: float, wait: float
) -> StageCost:
    how = whole.concurrency[step.number]
    calls = whole.num_threads if how.calls == AUTOTUNE else how.calls
    note = step.note
    if cpu < 0:
        note = f"{cpu * 1e3:.3f} ms: less than can be told"
    cpu, wait = max(0.0, cpu), max(0.0, wait)
    return StageCost(
        number=step.number,
        name=step.name,
        visit_ratio=plan.visits[position],
        cpu_seconds_per_output=cpu,
        wall_seconds_per_output=cpu + (wait if wait > _LEAST_WAIT * cpu else 0.0),
        bytes_in_per_output=plan.num_bytes[position - 1] if position else 0.0,
        bytes_out_per_output=plan.num_bytes[position],
        buffered_bytes=_held(step, position, plan, whole, calls),
        parallelism=calls,
        kind=how.kind,
        share=0.0,
        max_rate=0.0,
        note=note,
    )


def _held(step: Step, position: int, plan: Plan, whole: Whole, calls: int) -> int:
    """What the stage held; what it would hold at most, if TensorFlow does not tell."""
    if whole.buffered_bytes is not None:
        return whole.buffered_bytes[step.number]
    stage, visits = whole.stages[step.number], plan.visits[position]
    size = plan.num_bytes[position] / visits if visits > 0 else 0.0
    if not math.isfinite(size):  # before a full cache nothing passes
        return 0
    if hasattr(stage, "buffer_size"):
        return int(size * max(stage.buffer_size, 2))  # AUTOTUNE begins with 2
    if hasattr(stage, "num_parallel_calls"):
        return int(size * calls)
    windows = plan.num_bytes[position] / plan.visits[0] if plan.visits[0] > 0 else 0.0
    if hasattr(stage, "num_parallel_reads") and math.isfinite(windows):
        return int(2 * windows)  # one is read, one passed on
    return 0


def _shared(row: StageCost, total: float, here: Host) -> StageCost:
    share = row.cpu_seconds_per_output / total if total else 0.0
    rate = limits.stage_rate(row, here)
    return dataclasses.replace(row, share=share, max_rate=rate)


def _copy_bandwidth() -> float:
    """Bytes that a copy into new memory reads and writes in a CPU-second."""
    block, seconds = np.ones(_COPY_BYTES, np.uint8), []
    for _ in range(_NUM_COPIES):
        # Not memory of NumPy, which asks the kernel for larger pages.
        new = np.frombuffer(mmap.mmap(-1, _COPY_BYTES), np.uint8)
        start = time.process_time()
        new[:] = block
        seconds.append(time.process_time() - start)
    return 2 * _COPY_BYTES / statistics.median(seconds)


_COPY_BYTES, _NUM_COPIES = 1 << 24, 5


def _storage(
    spent: Sequence[Spent], bandwidth: tuple[float, float] | None
) -> Storage | None:
    read = _Reading.of(spent).bytes_per_output
    if not read or bandwidth is None:
        return None
    return Storage(
        bytes_per_output=read,
        bytes_per_second=bandwidth[0],
        device_fraction=bandwidth[1],
    )


def _notes(rows: Sequence[StageCost], rate: Rate, storage: Storage | None) -> list[str]:
    notes = []
    if any("less than can be told" in row.note for row in rows):
        notes.append(
            "A cost below zero counts as 0: measure with more seconds or repeats."
        )
    if storage is not None and storage.state != "warm":
        times = rate.median * storage.bytes_per_output / storage.bytes_per_second
        if times > _CACHED:
            notes.append(
                f"It ran at {times:.1f} times what the storage allows: its records "
                "were in the page cache by then."
            )
    return notes
