"""The result of benchmarks.train as typed values.

In: a JSON result of any version. Out: a `TrainResult`. A figure that a run does not
have is None. docs/reference/results.schema.json is the JSON Schema of this tree.
"""

import dataclasses
import statistics
from collections.abc import Mapping
from typing import Any

Numbers = tuple[float | None, ...]

DRIFT_LIMIT = 0.1  # largest change of a rate that is even


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a run that its figures depend on; `config` holds all of them.

    Attributes:
        image_size: Height and width of the images in pixels; None for the model's own.
        cache: The wanted state of the page cache.
    """

    model: str = ""
    mode: str = "train"
    batch_size: int | None = None
    image_size: int | None = None
    precision: str | None = None
    data_dir: str | None = None
    cache: str | None = None
    emulate: str | None = None
    step_time_ms: float | None = None
    synthetic: bool = False
    read_only: bool = False
    elastic: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class DescribedHost:
    """A host of a run: its name, hardware and ranks.

    Attributes:
        machine_id: Digest of name, machine-id, processor, cores and memory: the same
            after a reboot. Results are repeats on equal machines.
        boot_id: Text that the kernel draws at its start. Proofs of the page cache
            belong to a boot.
    """

    name: str = ""
    machine_id: str | None = None
    boot_id: str | None = None
    cpu: str | None = None
    num_cpus: int | None = None
    ram_bytes: float | None = None
    ranks: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSet:
    """The data set of a run: its name, size, and digests.

    Attributes:
        digest: Digest of the names, sizes and digests of all shards.
        index_digest: Digest of index.json when the data set was opened.
        tags: Digest of the ETags of the shards of the split that is read.
    """

    name: str | None = None
    num_records: int | None = None
    num_bytes: int | None = None
    digest: str | None = None
    index_digest: str | None = None
    tags: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """Versions, hardware, hosts and data of a run; None where nothing is known.

    Attributes:
        cpu: Processor of the host of rank 0.
        num_cpus: Number of its cores that rank 0 may use.
        gpus: Names of the GPUs of the host of rank 0.
        cuda: Version that TensorFlow was built with.
        cudnn: Version that TensorFlow was built with.
    """

    tfpipe: str | None = None
    git_revision: str | None = None
    tensorflow: str | None = None
    horovod: str | None = None
    python: str | None = None
    kernel: str | None = None
    cpu: str | None = None
    num_cpus: int | None = None
    ram_bytes: float | None = None
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    tf32: bool | None = None
    hosts: tuple[DescribedHost, ...] = ()
    data: DataSet | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochBytes:
    """The bytes of an epoch: consumed, from storage or a server, and their label."""

    epoch: int
    label: str
    consumed_bytes: float | None = None
    storage_bytes: float | None = None
    server_bytes: float | None = None
    num_requests: float | None = None
    storage_fraction: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SizeRule:
    """Whether the data are too large for the memory of the hosts, and why."""

    met: bool | None = None
    text: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheProof:
    """The measured state of the page cache: its label, the epochs and the size."""

    label: str | None = None
    state: str | None = None
    text: str = ""
    epochs: tuple[EpochBytes, ...] = ()
    size_rule: SizeRule = SizeRule()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceBytes:
    """The tier that fed the timed steps, and the bytes from each source."""

    tier: str = ""
    state: str = ""
    consumed_bytes: float | None = None
    num_requests: float | None = None
    bytes_from_server: float | None = None
    bytes_from_disk: float | None = None
    bytes_from_page_cache: float | None = None
    bytes_from_ram_cache: float | None = None
    text: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SteadyState:
    """Whether the timed steps were steady, if known, and the change of their rate."""

    reached: bool | None = None
    drift: float | None = None
    text: str = ""

    @property
    def is_even(self) -> bool:
        """Whether the rate stayed the same, as far as the drift is known."""
        return self.drift is None or abs(self.drift - 1) <= DRIFT_LIMIT


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostLoad:
    """The load of other processes and machines, and the cores that the run wanted."""

    others_cpu_fraction: float | None = None
    stolen_fraction: float | None = None
    run_queue_wait_fraction: float | None = None
    wanted_cpu_fraction: float | None = None
    text: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampledHosts:
    """Figures of the hosts: use of cores, GPUs and links; waits of sent bytes."""

    num_hosts: int = 1
    host_cpu_fraction: float | None = None
    process_sending_seconds_per_rank: Numbers = ()
    gpu_utilization_mean_per_host: tuple[Numbers | None, ...] = ()
    gpu_energy_joules_per_host: Numbers = ()
    network_received_megabytes_per_second_per_host: Numbers = ()
    network_sent_megabytes_per_second_per_host: Numbers = ()
    network_link_bytes_per_second_max_per_host: Numbers = ()

    @property
    def gpu_utilization(self) -> float | None:
        hosts = self.gpu_utilization_mean_per_host
        used = [gpu for host in hosts for gpu in host or () if gpu is not None]
        return statistics.fmean(used) if used else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeSeries:
    """Figures over time: seconds since the start of timing, and a value for each."""

    seconds: Numbers = ()
    examples_per_second: Numbers = ()
    wait_fraction: Numbers = ()
    storage_megabytes_per_second: Numbers = ()
    resident_fraction: Numbers = ()
    host_cpu_fraction: Numbers = ()
    gpu_utilization: Numbers = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepHistogram:
    """Counts of steps by duration; there is an edge more than counts."""

    edges_seconds: Numbers = ()
    counts: Numbers = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepWaits:
    """Waits of some steps for the input."""

    wait_seconds_p99: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlowestRank:
    """The rank with the longest own time, which is without the wait for other ranks.

    Attributes:
        over_others: Its own time over the median of the others; 1 for a single rank.
        cause: "input", "compute" or "late", the largest part of the difference; None
            if the rank is less than 5 % slower than the others.
    """

    rank: int | None = None
    over_others: float | None = None
    own_seconds_per_step_per_rank: Numbers = ()
    cause: str | None = None
    text: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlowLink:
    """The rank whose bytes wait in the network much longer than those of the others."""

    rank: int = 0
    seconds: float = 0.0
    text: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PathShares:
    """The time of the job along its critical path: shares by part, the slowest rank."""

    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
    slowest: SlowestRank = SlowestRank()
    text: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BarRates:
    """The rates of the input alone, of the model alone, and of both."""

    input_examples_per_second: float | None = None
    synthetic_examples_per_second: float | None = None
    real_examples_per_second: float | None = None
    real_over_synthetic: float | None = None
    input_over_synthetic: float | None = None
    sentence: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproducibility:
    """The rates of several runs, and whether they agree."""

    examples_per_second_per_run: Numbers = ()
    spread: float | None = None
    reproducible: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnedEpoch:
    """Loss and accuracy of an epoch of training, counted from 0."""

    epoch: int
    loss: float | None = None
    accuracy: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class NotFiniteLoss:
    """The first step with a loss that is not finite."""

    step: int | None = None
    text: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateAnswer:
    """A gate, whether it is met, and the sentence about it."""

    gate: str = "?"
    passed: bool = False
    text: str = ""
    measured: float | None = None
    limit: float | None = None
    margin: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmulatedRate:
    """The accelerator in place of the model: its rate and the source of the rate."""

    accelerator: str = ""
    examples_per_second: float | None = None
    source: str = ""
    measurement: str = "not stated"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweptRun:
    """A run of a sweep: its settings, its duration and its data.

    Attributes:
        run: The settings, the fields of a `Run`.
        data_digest: Digest of the data set; None in results of older versions.
    """

    run: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    data_digest: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredResult:
    """The common figures of benchmarks.train, benchmarks.input and benchmarks.storage.

    Attributes:
        kind: "real", "synthetic" or "emulated"; None in results of older versions.
        started_at: Date and time in UTC.
        digest: Digest of all other keys of the file.
        paths: Which of the faster paths the pipeline took, by name.
    """

    command: str = ""
    schema_version: int | None = None
    kind: str | None = None
    started_at: str | None = None
    config: Options = Options()
    config_digest: str | None = None
    digest: str | None = None
    paths: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pipeline: tuple[str, ...] = ()
    num_ranks: int | None = None
    examples_per_second: float | None = None
    cpu_seconds_per_example: float | None = None
    cache: CacheProof = CacheProof()
    storage: SourceBytes | None = None
    steady_state: SteadyState = SteadyState()
    host_load: HostLoad = HostLoad()
    environment: Environment = Environment()
    sweep: SweptRun | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainResult(MeasuredResult):
    """A result of benchmarks.train. Units stand in the names.

    Attributes:
        resumed: Whether the run began at a checkpoint.
        binding: The resource behind the largest loss.
        examples_per_second_deviation: 1.96 standard deviations, from step to step.
        timed_seconds: Time from the common start to the end of the last rank.
        stall_fraction: Share of the time that waits for input.
        accelerator_utilization: Share of the time that computes.
        sync_fraction: Share of the time that waits for other ranks.
        network_utilization: Use of the busiest link, 0 to 1.
        consumed_bytes: Size of the records of the timed steps.
        storage_bytes_read: Bytes of them that storage gave.
        compute_seconds_per_step: Mean over the ranks.
        window_steps: Waits of steps with a new shuffle window.
    """

    resumed: bool | None = None
    emulation: EmulatedRate | None = None
    binding: str | None = None
    examples_per_second_deviation: float | None = None
    examples_per_second_per_rank: Numbers = ()
    num_timed_steps: int | None = None
    timed_seconds: float | None = None
    padding_fraction: float | None = None
    stall_fraction: float | None = None
    accelerator_utilization: float | None = None
    accelerator_utilization_mlperf_storage: float | None = None
    sync_fraction: float | None = None
    network_utilization: float | None = None
    gpu_utilization: float | None = None
    time_to_first_batch_seconds: float | None = None
    consumed_bytes: float | None = None
    consumed_megabytes_per_second: float | None = None
    storage_bytes_read: float | None = None
    storage_megabytes_per_second: float | None = None
    compute_seconds_per_step: float | None = None
    emulated_seconds_per_step: float | None = None
    wait_seconds_per_step_per_rank: Numbers = ()
    compute_seconds_per_step_per_rank: Numbers = ()
    sync_seconds_per_step_per_rank: Numbers = ()
    late_seconds_per_step_per_rank: Numbers = ()
    step_seconds_p50: float | None = None
    step_seconds_p90: float | None = None
    step_seconds_p95: float | None = None
    step_seconds_p99: float | None = None
    window_steps: StepWaits = StepWaits()
    other_steps: StepWaits = StepWaits()
    step_histogram: StepHistogram = StepHistogram()
    critical_path: PathShares = PathShares()
    slow_link: SlowLink | None = None
    telemetry: SampledHosts = SampledHosts()
    time_series: TimeSeries = TimeSeries()
    accuracy: float | None = None
    num_evaluated: int | None = None
    epochs: tuple[LearnedEpoch, ...] = ()
    not_finite_loss: NotFiniteLoss | None = None
    bars: BarRates = BarRates()
    reproducibility: Reproducibility = Reproducibility()
    gates: tuple[GateAnswer, ...] = ()

    @property
    def network_text(self) -> str:
        """MB/s that the network brought to each of several hosts, or ""."""
        rates = self.telemetry.network_received_megabytes_per_second_per_host
        each = " + ".join("?" if rate is None else f"{rate:,.1f}" for rate in rates)
        use = self.network_utilization
        of_link = "" if use is None else f", {use:.1%} of the busiest link"
        return f"{each} MB/s{of_link}" if rates[1:] else ""

    @property
    def ideal_examples_per_second(self) -> float | None:
        """Rate of emulated accelerators that never wait; None for a real model."""
        step, batch = self.emulated_seconds_per_step, self.config.batch_size
        return batch * (self.num_ranks or 1) / step if step and batch else None
