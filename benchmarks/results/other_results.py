"""Results of benchmarks.input, .storage, .sweep and .advise as typed values.

In: JSON results of any version. Out: the figures that pages and other commands use.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from benchmarks.results.train_result import MeasuredResult, Numbers

_Texts = tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Said:
    """A part of a result with a sentence; None if it has none."""

    sentence: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageShare:
    """The cost of a stage of a pipeline, for each element that leaves the pipeline."""

    name: str = ""
    cpu_seconds_per_output: float | None = None
    wait_seconds_per_output: float | None = None
    max_rate: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfiledPipeline:
    """The stages of a pipeline, and its bottleneck."""

    stages: tuple[StageShare, ...] = ()
    examples_per_output: float | None = None
    bottleneck: Said = Said()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """A setting that a search tried."""

    name: str = "?"
    error: str = ""
    ratio: float | None = None
    against: str = "?"
    elements_per_second: float | None = None
    cpu_seconds_per_element: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedPipeline:
    """The trials of a search for a tuning, and its answer."""

    sentence: str = ""
    trials: tuple[Trial, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputResult(MeasuredResult):
    """A result of benchmarks.input: its parts, empty if they were not asked for."""

    profile: ProfiledPipeline = ProfiledPipeline()
    tune: TunedPipeline = TunedPipeline()
    headspace: Said = Said()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadLatency:
    """Percentiles of the time of a read, in seconds."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    p99_9: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StorageReading:
    """A way to read a storage, and its figures over all hosts.

    Attributes:
        what: "sequential", "random", "shards", "open", "stat" or "write".
        state: "direct", "cold", "warm", "remote" or "durable", see `storage_probe`.
        skipped: The reason why there are no figures, or "".
        seconds: Time from the first to the last read, on the slowest host.
        resident_fraction: Part of the files in the page cache before, on the host that
            is farthest from the state; None if unknown.
        is_proven: Whether the kernel's figures fit the state; None if they do not tell.
        megabytes_per_second_per_host: The rates of several hosts; empty for one host.
    """

    what: str = ""
    state: str = ""
    num_processes: int = 1
    num_threads: int = 1
    is_again: bool = False
    skipped: str = ""
    block_bytes: int | None = None
    num_reads: int | None = None
    num_bytes: int | None = None
    seconds: float | None = None
    megabytes_per_second: float | None = None
    reads_per_second: float | None = None
    latency_seconds: ReadLatency = ReadLatency()
    storage_bytes: int | None = None
    resident_fraction: float | None = None
    is_proven: bool | None = None
    megabytes_per_second_per_host: Numbers = ()

    @property
    def way(self) -> tuple[str, str, int, int]:
        """The way to read, which both tries of a reading share."""
        return self.what, self.state, self.num_processes, self.num_threads


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbedPlace:
    """The place of the files of a probe."""

    mean_record_bytes: float | None = None
    file_system: str = ""
    is_memory: bool = False
    beneath: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StorageResult(MeasuredResult):
    """A result of benchmarks.storage."""

    place: ProbedPlace = ProbedPlace()
    measurements: tuple[StorageReading, ...] = ()
    megabytes_per_second: float | None = None
    write_megabytes_per_second: float | None = None
    sentences: _Texts = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictedRow:
    """The prediction for a number of accelerators; ceilings by resource."""

    num_accelerators: int = 0
    num_hosts: int = 1
    images_per_second: float | None = None
    binding: str = ""
    busy_share: float | None = None
    cores_used: float | None = None
    cores_share: float | None = None
    storage_bytes_per_second: float | None = None
    requests_per_second: float | None = None
    first_epoch_images_per_second: float | None = None
    first_epoch_binding: str = ""
    first_epoch_storage_bytes_per_second: float | None = None
    first_epoch_requests_per_second: float | None = None
    ceilings: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    first_epoch_ceilings: Mapping[str, float | None] = dataclasses.field(
        default_factory=dict
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdviceResult(MeasuredResult):
    """A result of benchmarks.advise; each fact of the prediction has a `value`."""

    rows: tuple[PredictedRow, ...] = ()
    sentences: _Texts = ()
    doubts: _Texts = ()
    facts: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweptSettings:
    """Settings of runs of a sweep that differ only in their ranks.

    Attributes:
        scaling: "weak" keeps the batch size of a rank, "strong" the global batch size.
        batch_size: Batch size of a rank if weak, global batch size if strong; None for
            the model's default.
    """

    scaling: str = ""
    model: str = ""
    batch_size: int | None = None
    data_dir: str | None = None
    mode: str | None = None
    cache: str | None = None
    accelerator: str | None = None
    tier: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweptPoint:
    """The scaling of a number of ranks; None where a necessary run is missing.

    Attributes:
        examples_per_second: Rate of all ranks together, the mean over the repeats.
        examples_per_second_interval: Half the width of the mean's 95 % interval; None
            for a single run.
        efficiency: rate_N / (N * rate_1); None without a run on a single rank.
        efficiency_low: Lower end of the efficiency's 95 % interval; None unless both N
            ranks and a single rank were repeated.
        speedup: rate_N / rate_1; None without a run on a single rank.
        ideal_examples_per_second: Rate of emulated accelerators that never wait.
        cache: The measured state of the page cache, "/" between several states.
    """

    num_ranks: int
    examples_per_second: float
    num_hosts: int | None = None
    num_repeats: int = 1
    examples_per_second_interval: float | None = None
    efficiency: float | None = None
    efficiency_low: float | None = None
    efficiency_high: float | None = None
    speedup: float | None = None
    stall_fraction: float | None = None
    accelerator_utilization: float | None = None
    ideal_examples_per_second: float | None = None
    binding: str = ""
    critical_path: Mapping[str, float] = dataclasses.field(default_factory=dict)
    host_cpu_fraction: float | None = None
    network_utilization: float | None = None
    received_mb_per_second_per_host: Numbers = ()
    cache: str | None = None
    gates_met: bool | None = None

    @property
    def name(self) -> str:
        """Hosts x ranks of each host, or the number of ranks."""
        if self.num_hosts is None:
            return str(self.num_ranks)
        return f"{self.num_hosts} x {self.num_ranks / self.num_hosts:g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweptSeries(SweptSettings):
    """Runs of a sweep that differ in their ranks only."""

    points: tuple[SweptPoint, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweptTier(SweptSettings):
    """The same runs on a tier of storage, means over the repeats.

    Attributes:
        binding: The resource that binds the most runs.
        bytes_from_server: 0 without records, None if a run does not know the bytes; the
            other bytes likewise.
    """

    num_ranks: int = 1
    num_repeats: int = 1
    examples_per_second: float | None = None
    cpu_seconds_per_example: float | None = None
    stall_fraction: float | None = None
    binding: str = ""
    state: str = ""
    bytes_from_server: float | None = None
    bytes_from_disk: float | None = None
    bytes_from_page_cache: float | None = None
    bytes_from_ram_cache: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """A row of a published test; None for what was not published.

    Attributes:
        images_per_second: Rate of all accelerators together.
        is_computed: Whether the rate is computed from published megabytes a second and
            bytes of a record, and not published itself.
        is_local: Whether the data was on a disk of the host.
    """

    source: str = ""
    date: str = "not stated"
    model: str = ""
    mode: str = ""
    accelerator: str = ""
    num_accelerators: int | None = None
    images_per_second: float | None = None
    images_per_second_per_accelerator: float | None = None
    is_computed: bool = False
    batch_size: int | None = None
    image_size: int | None = None
    decodes: bool | None = None
    record_bytes: float | None = None
    storage_megabytes_per_second: float | None = None
    host_cpu_fraction: float | None = None
    accelerator_busy_fraction: float | None = None
    is_local: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweptRow(SweptSettings):
    """The figures of equal runs of a sweep, and the nearest published row.

    Attributes:
        batch_size: Batch size of a rank.
        consumed_megabytes_per_second: Read by the pipeline.
        storage_megabytes_per_second: Given by servers and disks.
        accelerator_busy_of: "gpu", whose use the driver measured, or "steps", the share
            of the time without waits for input.
        not_compared: The reason why the two rates must not be compared, or "".
    """

    kind: str = ""
    precision: str | None = None
    num_ranks: int = 1
    num_hosts: int | None = None
    num_repeats: int = 1
    examples_per_second: float | None = None
    examples_per_second_per_rank: float | None = None
    consumed_megabytes_per_second: float | None = None
    storage_megabytes_per_second: float | None = None
    host_cpu_fraction: float | None = None
    accelerator_busy_fraction: float | None = None
    accelerator_busy_of: str = ""
    gates_met: bool | None = None
    published: PublishedRow | None = None
    not_compared: str = ""
    rate_over_published: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankProbe:
    """A run of a search for ranks, and the sentences of its missed gates."""

    run: str = ""
    num_ranks: int = 1
    missed: _Texts = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundRanks(SweptSettings):
    """The answer of a search for ranks: the most that meet the gates, the next not."""

    num_ranks: int = 0
    num_ranks_not_met: int | None = None
    text: str = ""
    probes: tuple[RankProbe, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundAnswers:
    """The answers of all searches of a sweep, to its gates."""

    gates: _Texts = ()
    rule: str = ""
    answers: tuple[FoundRanks, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class FailedRun:
    """A run without a result, and its error."""

    run: str = "a run"
    error: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepResult(MeasuredResult):
    """A document of benchmarks.sweep."""

    series: tuple[SweptSeries, ...] = ()
    tiers: tuple[SweptTier, ...] = ()
    rows: tuple[SweptRow, ...] = ()
    failed: tuple[FailedRun, ...] = ()
    find_ranks: FoundAnswers = FoundAnswers()
