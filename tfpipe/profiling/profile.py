"""A profile: the costs of the stages, the limits of the pipeline, and predictions.

In: the figures of `measure.profile`. Out: a table, a plain dict, and the rate of
another tuning.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from tfpipe.errors import count_of
from tfpipe.pages import page
from tfpipe.pipeline import Pipeline
from tfpipe.profiling import bottleneck, dataset_nodes
from tfpipe.profiling.bottleneck import Bottleneck
from tfpipe.profiling.host_share import HostShare
from tfpipe.profiling.limits import Host, Limit, StageCost, limits, merged
from tfpipe.tuning import Tuning

# CPU time of handing an element from thread to thread. Above this share of the CPU time
# of all stages the handing decides the rate.
_HANDOVER_SECONDS, _MUCH_HANDING = 10e-6, 0.15
# Above the first share of the CPU time the number of reads decides the rate, above the
# second the state of the memory: a pipeline that only copies records was 0.7 to 1.3
# times as fast in other processes, or beside other pipelines.
_MUCH_READING, _MOSTLY_READING = 0.25, 0.5

# Properties of `StageCost` that stand in the JSON beside its fields.
_DERIVED_COSTS = ("cpu_seconds_per_element", "wait_seconds_per_output")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rate:
    """The rate of a dataset with all its threads, from some repeats.

    Attributes:
        median: Median of the repeats, in elements per second.
        least: Lowest of the repeats, in elements per second.
        most: Highest of the repeats, in elements per second.
        cpu_seconds_per_element: CPU-seconds of the process, the median.
    """

    median: float
    least: float
    most: float
    cpu_seconds_per_element: float

    @property
    def num_busy_cores(self) -> float:
        """Number of cores at work, on average."""
        return self.median * self.cpu_seconds_per_element


@dataclasses.dataclass(frozen=True, kw_only=True)
class StorageRead:
    """The bytes that a pipeline reads from files, and their bandwidth.

    Attributes:
        bytes_per_output: Bytes read for an output of the pipeline.
        bytes_per_second: Bandwidth of the reader alone, with all its threads, or from
            the caller.
        device_fraction: Fraction of the bytes from the device, not from the page cache,
            while the bandwidth was measured, 0 to 1; nan if the caller gave the
            bandwidth.
    """

    bytes_per_output: float
    bytes_per_second: float
    device_fraction: float

    @property
    def state(self) -> str:
        """State of the page cache: "warm", "partly warm", "cold", or "as given"."""
        if math.isnan(self.device_fraction):
            return "as given"
        if self.device_fraction < 0.05:
            return "warm"
        return "cold" if self.device_fraction > 0.8 else "partly warm"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineProfile:
    """The costs of a pipeline and its rate.

    An output is an element of the whole pipeline, such as a batch.

    Example:
        >>> from tfpipe.profiling.profile import PipelineProfile
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4, image_size=32)
        >>> profile = tfpipe.profile(pipeline, seconds=0.01, repeats=1)
        >>> isinstance(profile, PipelineProfile), len(profile.stages)
        (True, 6)

    Attributes:
        stages: The costs of the source, then of every stage, or every op.
        rate: The rate of the pipeline as it is.
        examples_per_output: The batch size, if it is static.
        num_elements: Number of outputs in a run.
        host: Cores and threads of the pipeline as it is.
        storage: The bytes read from files; None if there are none or the kernel does
            not tell.
        consumer_seconds: Seconds that the training step takes for an output; 0 if
            unknown.
        ram_left_bytes: Memory available to the process before the profile.
        notes: Remarks about the figures.
        pipeline: The measured pipeline.
        host_share: The part of the host that other processes took during the profile.
    """

    stages: Sequence[StageCost]
    rate: Rate
    examples_per_output: int | None
    num_elements: int
    host: Host
    storage: StorageRead | None
    consumer_seconds: float
    ram_left_bytes: int
    notes: Sequence[str]
    pipeline: Pipeline = dataclasses.field(repr=False, compare=False)
    host_share: HostShare | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether other processes left the host alone, as far as known."""
        return self.host_share is None or self.host_share.is_quiet

    @property
    def costs(self) -> list[StageCost]:
        """The costs of the source and of every stage."""
        return merged(self.stages)

    @property
    def cpu_seconds_per_output(self) -> float:
        """CPU-seconds of all stages for an output, with a single thread."""
        return sum(cost.cpu_seconds_per_output for cost in self.stages)

    @property
    def limits(self) -> list[Limit]:
        """All limits of the pipeline as it is, the lowest rate first."""
        return self._limits(self.stages, self.host)

    @property
    def bound(self) -> float:
        """Outputs per second that the pipeline as it is could reach on this host."""
        return self.limits[0].rate

    @property
    def bottleneck(self) -> Bottleneck:
        """The lowest limit, and the change to make."""
        return bottleneck.find(self)

    def predict(self, tuning: Tuning) -> float:
        """Predicts the outputs per second with another tuning, from its lowest limit.

        Knobs of a stage itself stay as they are. If the CPU limits the pipeline as it
        is, the prediction scales the measured rate, which includes the time that cores
        wait for each other.

        Args:
            tuning: The other tuning.

        Raises:
            ValueError: If the rate cannot be predicted, see `doubt`.
        """
        if doubt := self.doubt(tuning):
            raise ValueError(doubt)
        host, bound = self.host, self.limits[0]
        if bound.resource == "CPU":
            missed = max(1.0, bound.rate / self.rate.median)
            host = dataclasses.replace(host, slowdown=host.slowdown * missed)
        threads = tuning.private_threadpool_size or host.num_cores
        host = dataclasses.replace(host, num_threads=threads)
        tuned = dataclasses.replace(self.pipeline, tuning=tuning).tuned_stages()
        costs = [
            _with_knobs(cost, tuned[cost.number - 1], threads) if cost.number else cost
            for cost in self.stages
        ]
        return self._limits(costs, host)[0].rate

    def doubt(self, tuning: Tuning) -> str:
        """Returns why the rate of another tuning cannot be predicted; empty if it can.

        | pipeline                     | why the rate cannot be predicted             |
        |------------------------------|----------------------------------------------|
        | elements take                | handing elements from thread to thread costs |
        | microseconds                 | more than the stages, and the cost changes   |
        |                              | with threads and calls and from run to run   |
        | hardly more than reading     | the rate is the rate of copying memory, and  |
        |                              | other data share the memory                  |
        | much reading, with another   | only a measurement tells the gain of more    |
        | number of reads              | reads at the same time                       |
        | on a busy host, with another | the measured rate tells what others took     |
        | number of threads            | from as many threads only                    |

        Args:
            tuning: The other tuning.
        """
        why = _doubt(self.costs, self.pipeline.tuning, tuning)
        threads = self.host.num_threads, tuning.num_threads
        if not why and not self.is_quiet and threads[0] != threads[1]:
            why = (
                f"the host was busy, with {count_of(threads[0], 'thread')} of the "
                f"pipeline, not {threads[1]}"
            )
        return why and (
            f"The rate cannot be predicted: {why}. Measure the tuning with "
            "tfpipe.tuner.race.compare."
        )

    def as_json(self) -> dict[str, Any]:
        """Returns the profile as plain values, units in the names; None is unknown."""
        values = {
            "stages": [
                dataclasses.asdict(cost)
                | {name: getattr(cost, name) for name in _DERIVED_COSTS}
                for cost in self.stages
            ],
            "outputs_per_second": self.rate.median,
            "outputs_per_second_least": self.rate.least,
            "outputs_per_second_most": self.rate.most,
            "cpu_seconds_per_output": self.rate.cpu_seconds_per_element,
            "cpu_seconds_per_output_one_thread": self.cpu_seconds_per_output,
            "num_busy_cores": self.rate.num_busy_cores,
            "examples_per_output": self.examples_per_output,
            "num_outputs_measured": self.num_elements,
            "host": dataclasses.asdict(self.host),
            "storage": self.storage
            and {**dataclasses.asdict(self.storage), "page_cache": self.storage.state},
            "consumer_seconds_per_output": self.consumer_seconds or None,
            "ram_left_bytes": self.ram_left_bytes,
            "bound_outputs_per_second": self.bound,
            "limits": [dataclasses.asdict(limit) for limit in self.limits],
            "bottleneck": dataclasses.asdict(self.bottleneck),
            "host_share": self.host_share and dataclasses.asdict(self.host_share),
            "notes": list(self.notes),
        }
        return {key: _finite(value) for key, value in values.items()}

    def __str__(self) -> str:
        return _as_text(self, *self.unit)

    def _repr_html_(self) -> str:
        return page.printed(str(self))

    @property
    def unit(self) -> tuple[int, str]:
        """Number of examples or elements in an output, and the word for them."""
        if self.examples_per_output is None:
            return 1, "elements"
        return self.examples_per_output, "examples"

    def _limits(self, costs: Sequence[StageCost], host: Host) -> list[Limit]:
        lowest = limits(merged(costs), host)
        # The page cache says nothing about the storage. Reading from the page cache is
        # CPU time of a stage.
        if self.storage is not None and self.storage.state != "warm":
            rate = self.storage.bytes_per_second / self.storage.bytes_per_output
            speed = _bytes(self.storage.bytes_per_second)
            what = f"storage at {speed}/s ({self.storage.state})"
            lowest.append(Limit("storage", rate, what))
        if self.consumer_seconds:
            what = f"the consumer with {self.consumer_seconds * 1e3:.1f} ms for each"
            lowest.append(Limit("consumer", 1 / self.consumer_seconds, what))
        return sorted(lowest, key=lambda limit: limit.rate)


def _doubt(costs: Sequence[StageCost], own: Tuning, other: Tuning) -> str:
    reading = sum(cost.share for cost in costs if cost.kind == "reader")
    if reading > _MOSTLY_READING:
        return (
            f"reading takes {reading:.0%} of the CPU, and copying records is as fast "
            "as the memory, which other pipelines and processes share"
        )
    total = sum(cost.cpu_seconds_per_output for cost in costs)
    visits = [cost.visit_ratio for cost in costs if cost.kind == "parallel"]
    passed = sum(ratio for ratio in visits if ratio > 0)
    if (handed := passed * _HANDOVER_SECONDS) > _MUCH_HANDING * total:
        return (
            f"the stages take {total * 1e3:.3g} ms for an output, and handing "
            f"{passed:.0f} elements from thread to thread takes about "
            f"{handed * 1e3:.3g} ms"
        )
    if reading <= _MUCH_READING or own.num_parallel_reads == other.num_parallel_reads:
        return ""
    return (
        f"reading takes {reading:.0%} of the CPU, and was measured with "
        f"{own.num_parallel_reads} reads at a time, not {other.num_parallel_reads}"
    )


def _with_knobs(cost: StageCost, stage: object, num_threads: int) -> StageCost:
    knob = dataset_nodes.concurrency_of_knob(stage, num_threads)
    return dataclasses.replace(cost, parallelism=knob.calls) if knob else cost


def _as_text(profile: PipelineProfile, count: int, unit: str) -> str:
    widths = max(24, *(len(_label(cost)) for cost in profile.stages))
    lines = [
        f"{'for each output':{widths}}  {'elements':>9} {'CPU ms':>9} {'wait ms':>8} "
        f"{'share':>6} {'calls':>5} {unit + '/s':>11} {'in':>9} {'out':>9} {'held':>9}"
    ]
    for cost in profile.stages:
        lines.append(
            f"{_label(cost):{widths}}  {_number(cost.visit_ratio):>9} "
            f"{cost.cpu_seconds_per_output * 1e3:9.3f} "
            f"{cost.wait_seconds_per_output * 1e3:8.3f} {cost.share:6.1%} "
            f"{cost.parallelism:5} {_number(cost.max_rate * count):>11} "
            f"{_bytes(cost.bytes_in_per_output):>9} "
            f"{_bytes(cost.bytes_out_per_output):>9} {_bytes(cost.buffered_bytes):>9}"
            + (f"  {cost.note}" if cost.note else "")
        )
    rate, host = profile.rate, profile.host
    lines.append(
        f"{'all, one thread':{widths}}  {'':9} "
        f"{profile.cpu_seconds_per_output * 1e3:9.3f}"
    )
    lines.append(
        f"{'as it is':{widths}}  {'':9} {rate.cpu_seconds_per_element * 1e3:9.3f} "
        f"{'':8} {'':6} {host.num_threads:5} {_number(rate.median * count):>11} "
        f"({_number(rate.least * count)} to {_number(rate.most * count)}), "
        f"{rate.num_busy_cores:.1f} of {host.num_cores} cores busy; bound "
        f"{_number(profile.bound * count)}"
    )
    if (storage := profile.storage) is not None:
        needed = storage.bytes_per_output * rate.median
        lines.append(
            f"storage: {_bytes(storage.bytes_per_output)} for each output, "
            f"{_bytes(needed)}/s at this rate; the reader alone takes "
            f"{_bytes(storage.bytes_per_second)}/s ({storage.state})"
        )
    return "\n".join([*lines, *profile.notes, profile.bottleneck.sentence])


def _label(cost: StageCost) -> str:
    return f"{cost.number:2} {cost.name}"


def _number(value: float) -> str:
    """Formats a value with four significant digits."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _bytes(count: float) -> str:
    if not math.isfinite(count):
        return "-"
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _finite(value: Any) -> Any:
    """Returns the value with None in place of nan and infinity, unknown to JSON."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
