"""The result of benchmarks.train as typed values.

In: a JSON result of any version. Out: a `TrainResult`. A figure that a run does not
have is None. docs/reference/results.schema.json is the JSON Schema of this tree.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

Numbers = tuple[float | None, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a run that its figures depend on; `config` holds all of them.

    Attributes:
        model: Name of the model.
        mode: "train", "eval" or "infer".
        batch_size: Examples in a batch of each rank.
        image_size: Height and width of the images in pixels; None for the model's own.
        precision: Precision of the computation, such as "float16".
        data_dir: Folder or URL of the data set.
        cache: The wanted state of the page cache.
        emulate: The emulated accelerator.
        step_time_ms: The emulated time of a step.
        synthetic: Whether no records are read.
        read_only: Whether records are read and not decoded.
        elastic: Whether ranks may come and go.
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
        name: Name of the host.
        machine_id: Digest of name, machine-id, processor, cores and memory: the same
            after a reboot. Results are repeats on equal machines.
        boot_id: Text that the kernel draws at its start. Proofs of the page cache
            belong to a boot.
        cpu: Name of the processor.
        num_cpus: Number of its cores.
        ram_bytes: Its memory.
        ranks: The ranks on the host.
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
    """The data set of a run: its name, size, and a digest of its shards."""

    name: str | None = None
    num_records: int | None = None
    num_bytes: int | None = None
    digest: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """Versions, hardware, hosts and data of a run; None where nothing is known.

    Attributes:
        tfpipe: Version of this package.
        git_revision: Revision of its checkout.
        tensorflow: Version.
        horovod: Version.
        python: Version.
        kernel: Version.
        cpu: Processor of the host of rank 0.
        gpus: Names of the GPUs of the host of rank 0.
        driver: Version of the driver of the GPUs.
        cuda: Version that TensorFlow was built with.
        cudnn: Version that TensorFlow was built with.
        nccl: Version of the installed package.
        tf32: Whether TensorFlow may use TF32.
        hosts: All hosts.
        data: The data set.
    """

    tfpipe: str | None = None
    git_revision: str | None = None
    tensorflow: str | None = None
    horovod: str | None = None
    python: str | None = None
    kernel: str | None = None
    cpu: str | None = None
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
    size_rule: SizeRule | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SteadyState:
    """Whether the timed steps were steady, and the change of their rate."""

    reached: bool = True
    drift: float | None = None
    text: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostLoad:
    """The share of the cores that other processes took."""

    others_cpu_fraction: float | None = None
    text: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PathShares:
    """The time of the job along its critical path, as shares by part."""

    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
    text: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateAnswer:
    """A gate, whether it is met, and the sentence about it."""

    gate: str
    passed: bool
    text: str = ""
    measured: float | None = None
    limit: float | None = None
    margin: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmulatedRate:
    """The accelerator that stands for the model: its rate and the origin of the rate.

    Attributes:
        accelerator: Name of the accelerator.
        examples_per_second: Its rate.
        source: Where the rate was published.
        measurement: Kind of measurement of the rate.
    """

    accelerator: str = ""
    examples_per_second: float | None = None
    source: str = ""
    measurement: str = "not stated"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainResult:
    """A result of benchmarks.train. Units stand in the names.

    Attributes:
        schema_version: Version of the format.
        kind: "real", "synthetic" or "emulated"; None in results of older versions.
        started_at: Date and time in UTC.
        config: All options.
        config_digest: Digest of the options.
        resumed: Whether the run began at a checkpoint.
        digest: Digest of all other keys of the file.
        num_ranks: Number of ranks.
        examples_per_second: Rate of all ranks together.
        examples_per_second_per_rank: Rate of each rank.
        num_timed_steps: Number of timed steps.
        timed_seconds: Time from the common start to the end of the last rank.
        padding_fraction: Share of padding in the batches.
        stall_fraction: Share of the time that waits for input.
        accelerator_utilization: Share of the time that computes.
        sync_fraction: Share of the time that waits for other ranks.
        consumed_bytes: Size of the records of the timed steps.
        storage_bytes_read: Bytes of them that storage gave.
        cpu_seconds_per_example: CPU time of an example.
        critical_path: The shares of the time.
        emulation: The emulated accelerator.
        cache: The state of the page cache.
        steady_state: Whether the steps were steady.
        host_load: What other processes took.
        gates: The gates.
        environment: Versions, hardware, hosts and data.
    """

    schema_version: int | None = None
    kind: str | None = None
    started_at: str | None = None
    config: Options = Options()
    config_digest: str | None = None
    resumed: bool | None = None
    digest: str | None = None
    num_ranks: int | None = None
    examples_per_second: float | None = None
    examples_per_second_per_rank: Numbers | None = None
    num_timed_steps: int | None = None
    timed_seconds: float | None = None
    padding_fraction: float | None = None
    stall_fraction: float | None = None
    accelerator_utilization: float | None = None
    sync_fraction: float | None = None
    consumed_bytes: float | None = None
    storage_bytes_read: float | None = None
    cpu_seconds_per_example: float | None = None
    critical_path: PathShares | None = None
    emulation: EmulatedRate | None = None
    cache: CacheProof | None = None
    steady_state: SteadyState | None = None
    host_load: HostLoad | None = None
    gates: tuple[GateAnswer, ...] = ()
    environment: Environment = Environment()


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a result of benchmarks.train."""
    from benchmarks.results import tree

    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A result of benchmarks.train",
    }
    return {**about, **tree.schema(TrainResult)}
