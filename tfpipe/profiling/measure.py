"""Measures how fast a dataset is, and the costs of the stages of a pipeline.

In: any dataset, or a `Pipeline`. Out: `ThroughputFigures` or a `PipelineProfile`.
Elements are read inside tf.data, so that Python costs nothing. The cost of a stage is
the difference between two prefixes of the pipeline: with the stage as the last stage,
and without the stage. A prefix runs with one thread. Costs are CPU-seconds: they are
reliable on a busy host, too.
"""

import dataclasses
import math
import mmap
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfpipe import errors, host
from tfpipe.pages import page
from tfpipe.pipeline import Pipeline
from tfpipe.profiling import stage_costs, timed_reader
from tfpipe.profiling.host_share import HostWatch
from tfpipe.profiling.process_usage import ProcessMeter, Spent
from tfpipe.profiling.profile import PipelineProfile, Rate
from tfpipe.profiling.profile_runs import ProfileRuns
from tfpipe.profiling.timed_reader import TimedReader


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThroughputFigures:
    """How fast a dataset is, without a training step.

    Example:
        >>> from tfpipe.profiling.measure import ThroughputFigures
        >>> measured = tfpipe.throughput(tf.data.Dataset.range(99), num_elements=50)
        >>> isinstance(measured, ThroughputFigures), measured.num_elements
        (True, 50)

    Attributes:
        elements_per_second: The median rate of the repeats.
        elements_per_second_least: The lowest rate of the repeats.
        elements_per_second_most: The highest rate of the repeats.
        cpu_seconds_per_element: CPU-seconds of the whole process, the median.
        seconds_to_first_element: Time from making the iterator to the first element.
        num_elements: Elements in a repeat.
        examples_per_element: The static batch size: the first dimension of all tensors,
            if at least one tensor has no other dimension. None if unknown.
        others_cores: Number of the cores of the pipeline that other processes had
            meanwhile, on average; 0 if the number is a small part of them.
    """

    elements_per_second: float
    elements_per_second_least: float
    elements_per_second_most: float
    cpu_seconds_per_element: float
    seconds_to_first_element: float
    num_elements: int
    examples_per_element: int | None
    others_cores: float = 0.0

    @property
    def examples_per_second(self) -> float | None:
        """Median rate times the batch size; None if the batch size is unknown."""
        if self.examples_per_element is None:
            return None
        return self.elements_per_second * self.examples_per_element

    def as_json(self) -> dict[str, Any]:
        """Returns the figures as plain values, with units in the names."""
        return dataclasses.asdict(self) | {
            "examples_per_second": self.examples_per_second
        }

    def __str__(self) -> str:
        count = self.examples_per_element or 1
        unit = "examples" if self.examples_per_element else "elements"
        busy = f"; other processes had {self.others_cores:.1f} cores: the host was busy"
        return (
            f"{self.elements_per_second * count:,.1f} {unit}/s "
            f"({self.elements_per_second_least * count:,.1f} to "
            f"{self.elements_per_second_most * count:,.1f}), "
            f"{self.cpu_seconds_per_element / count * 1e3:.3f} CPU-ms each, "
            f"the first after {self.seconds_to_first_element:.2f} s"
            + (busy if self.others_cores else "")
        )

    def _repr_html_(self) -> str:
        return page.printed(str(self))


def throughput(
    dataset: tf.data.Dataset,
    *,
    num_elements: int | None = None,
    seconds: float = 3.0,
    num_warmup: int | None = None,
    repeats: int = 3,
) -> ThroughputFigures:
    """Reads a dataset as fast as possible. A dataset that ends begins again.

    Example:
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4)
        >>> tfpipe.throughput(pipeline.build(), num_elements=4).examples_per_element
        4

    Args:
        dataset: Any dataset.
        num_elements: Elements to read in a repeat; None is as many as fit in `seconds`.
        seconds: About how long all repeats take together.
        num_warmup: Elements to read first; None is half of `num_elements`.
        repeats: Number of measurements, one after the other.

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
    # A repeat is up to four pulls, so that the warm-up can be half of a repeat.
    parts = math.gcd(num_elements, 4)
    reader = TimedReader(dataset, num_elements // parts)
    warmup = num_elements / 2 if num_warmup is None else num_warmup
    reader.pull(math.ceil(warmup / reader.group))
    watch = HostWatch(own_cores=dataset.options().threading.private_threadpool_size)
    rate = _rate([reader.pull(parts) for _ in range(repeats)])
    share = watch.share()
    return ThroughputFigures(
        others_cores=0.0 if share.is_quiet else share.lost_cores,
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
    time_limit: float | None = None,
    progress: bool = True,
) -> PipelineProfile:
    """Measures the costs of the stages of a pipeline, and what limits the pipeline.

    All prefixes of the pipeline run in turns, then the whole pipeline as it is. Caches
    are filled first, so the stages before a cache cost nothing. A pipeline that ends
    begins again. A profile takes about `(number of stages + 4) * repeats * seconds`.

    Example:
        >>> source = tfpipe.TFRecordSource("DIR", "train")
        >>> pipeline = tfpipe.Pipeline(source, [tfpipe.Interleave()])
        >>> tfpipe.profile(pipeline, seconds=0.01, repeats=1).stages[1].number
        1

    Args:
        pipeline: A pipeline of any stages and elements.
        num_elements: Outputs of the pipeline in a run; None is as many as fit in
            `seconds`.
        seconds: Seconds of a run of the whole pipeline with one thread.
        repeats: Runs of each prefix and of the whole pipeline; the median counts.
        per_op: Whether every op of a `Map` is a row of its own.
        consumer_seconds: Seconds that the training step takes for an output; 0 if
            unknown.
        storage_bytes_per_second: Bandwidth of the storage, if known. None takes the
            bandwidth of the reader alone, unless all comes from the page cache.
        time_limit: Seconds after which the profile gives up, at the end of the present
            element; None is as many as the profile needs. With a limit the profile
            makes fewer rounds where the time is short.
        progress: Whether to show a progress bar on stderr.

    Raises:
        TimeoutError: If the profile did not end within `time_limit`.
        ValueError: If the pipeline has no elements, or a number is out of range.
    """
    errors.require_kind("", "pipeline", pipeline, Pipeline)
    for name, value in {
        "time_limit": time_limit,
        "storage_bytes_per_second": storage_bytes_per_second,
    }.items():
        errors.require_number("", name, value, above=0, or_none=True)
    errors.require_number("", "consumer_seconds", consumer_seconds, least=0)
    _require_extent(num_elements, seconds, repeats, per_op=per_op, progress=progress)
    ram_left = host.ram_left()
    watch = HostWatch(own_cores=pipeline.tuning.private_threadpool_size)
    meter = ProcessMeter(time.perf_counter() + (time_limit or math.inf))
    runs = ProfileRuns(
        pipeline, per_op=per_op, seconds=seconds, repeats=repeats, meter=meter
    )
    runs.make(num_elements, is_shown=progress)
    rate, share = _rate(runs.whole), watch.share()
    rows, here = stage_costs.judge(runs, copy_bytes_per_second=_copy_bandwidth())
    known = storage_bytes_per_second and (storage_bytes_per_second, math.nan)
    storage = stage_costs.storage(runs.rounds[runs.reader :], known or runs.bandwidth)
    return PipelineProfile(
        stages=rows,
        rate=rate,
        examples_per_output=examples_in(runs.element_spec),
        num_elements=runs.num_elements,
        host=here,
        storage=storage,
        consumer_seconds=consumer_seconds,
        ram_left_bytes=ram_left,
        notes=stage_costs.notes(rows, rate, storage, share),
        host_share=share,
        pipeline=pipeline,
    )


def examples_in(spec: Any) -> int | None:
    """Returns the batch size, see `ThroughputFigures.examples_per_element`."""
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
    for name, value in switches.items():
        errors.require_bool("", name, value)
    errors.require_int("", "num_elements", num_elements, least=1, also=[None])
    errors.require_number("", "seconds", seconds, above=0)
    errors.require_int("", "repeats", repeats, least=1)


def _rate(spent: Sequence[Spent]) -> Rate:
    rates = [1 / item.wall for item in spent]
    return Rate(
        median=statistics.median(rates),
        least=min(rates),
        most=max(rates),
        cpu_seconds_per_element=statistics.median(item.cpu for item in spent),
    )


def _copy_bandwidth() -> float:
    """Measures the bytes that a copy into new memory moves in a CPU-second."""
    block, seconds = np.ones(_COPY_BYTES, np.uint8), []
    for _ in range(_NUM_COPIES):
        # NumPy would ask the kernel for larger pages than TensorFlow does.
        new = np.frombuffer(mmap.mmap(-1, _COPY_BYTES), np.uint8)
        start = time.process_time()
        new[:] = block
        seconds.append(time.process_time() - start)
    return 2 * _COPY_BYTES / statistics.median(seconds)


_COPY_BYTES, _NUM_COPIES = 1 << 24, 5
