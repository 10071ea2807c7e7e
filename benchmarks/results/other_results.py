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
    """A way to read a storage, and its figures; `skipped` says why there are none."""

    what: str = ""
    state: str = ""
    num_processes: int = 1
    num_threads: int = 1
    skipped: str = ""
    is_again: bool = False
    is_proven: bool | None = None
    resident_fraction: float | None = None
    megabytes_per_second: float | None = None
    reads_per_second: float | None = None
    latency_seconds: ReadLatency = ReadLatency()


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
    cores_share: float | None = None
    first_epoch_images_per_second: float | None = None
    first_epoch_binding: str = ""
    first_epoch_storage_bytes_per_second: float | None = None
    ceilings: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    first_epoch_ceilings: Mapping[str, float | None] = dataclasses.field(
        default_factory=dict
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatedFact:
    """A fact of a prediction."""

    value: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdviceResult(MeasuredResult):
    """A result of benchmarks.advise."""

    rows: tuple[PredictedRow, ...] = ()
    sentences: _Texts = ()
    doubts: _Texts = ()
    facts: Mapping[str, StatedFact] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweptPoint:
    """The scaling of a number of ranks; None where a necessary run is missing."""

    num_ranks: int
    examples_per_second: float
    num_hosts: int | None = None
    num_repeats: int = 1
    examples_per_second_interval: float | None = None
    efficiency: float | None = None
    efficiency_low: float | None = None
    efficiency_high: float | None = None
    speedup: float | None = None
    accelerator_utilization: float | None = None
    ideal_examples_per_second: float | None = None
    binding: str = ""
    critical_path: Mapping[str, float] = dataclasses.field(default_factory=dict)
    host_cpu_fraction: float | None = None
    network_utilization: float | None = None
    received_mb_per_second_per_host: Numbers = ()

    @property
    def name(self) -> str:
        """Hosts x ranks of each host."""
        hosts = self.num_hosts or 1
        return f"{hosts} x {self.num_ranks / hosts:g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweptSeries:
    """Runs of a sweep that differ in their ranks only."""

    model: str = ""
    scaling: str = ""
    data_dir: str = ""
    batch_size: int | None = None
    accelerator: str = ""
    points: tuple[SweptPoint, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweptTier:
    """The same runs on a tier of storage."""

    tier: str = ""
    model: str = ""
    mode: str = ""
    batch_size: int | None = None
    accelerator: str = ""
    num_ranks: int = 1
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
class PublishedFigures:
    """A published row beside a row of a sweep."""

    source: str = ""
    accelerator: str = ""
    num_accelerators: int | None = None
    images_per_second_per_accelerator: float | None = None
    storage_megabytes_per_second: float | None = None
    host_cpu_fraction: float | None = None
    accelerator_busy_fraction: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweptRow:
    """The figures of equal runs of a sweep, and the nearest published row."""

    model: str = ""
    mode: str = ""
    kind: str = ""
    precision: str = ""
    tier: str = ""
    data_dir: str = ""
    cache: str = ""
    accelerator: str = ""
    scaling: str = ""
    batch_size: int | None = None
    num_ranks: int = 1
    num_hosts: int | None = None
    examples_per_second: float | None = None
    examples_per_second_per_rank: float | None = None
    consumed_megabytes_per_second: float | None = None
    storage_megabytes_per_second: float | None = None
    host_cpu_fraction: float | None = None
    accelerator_busy_fraction: float | None = None
    gates_met: bool | None = None
    published: PublishedFigures = PublishedFigures()
    not_compared: str = ""
    rate_over_published: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundRanks:
    """The answer of a search for ranks."""

    model: str = ""
    text: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundAnswers:
    """The answers of all searches of a sweep."""

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
