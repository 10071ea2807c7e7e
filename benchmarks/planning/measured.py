"""Facts that results hold: a storage probe, and the cost of the input pipeline.

In: results of benchmarks.storage, benchmarks.input and benchmarks.train. Out: facts by
name. The newest result of each command counts, and the source of a fact names it.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.models import catalog
from benchmarks.planning.facts import KINDS, Fact
from benchmarks.results import checks
from benchmarks.results.collection import Collection, Result, RunResult, T
from benchmarks.results.other_results import InputResult, StorageResult
from benchmarks.results.train_result import SourceBytes
from benchmarks.system.host_load import OTHERS_LIMIT

# A pipeline with fewer busy cores waits for another resource.
_LEAST_BUSY = 0.7
_OF_ONE_HOST = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs"}
_OF_ONE_HOST |= {"overlay", "ramfs"}


def read(
    collection: Collection, *, image_size: float | None = None
) -> tuple[dict[str, Fact], list[str]]:
    """Returns the facts that results hold; later sources replace earlier sources.

    Args:
        collection: The results. Synthetic runs are not used.
        image_size: Height and width of the images in the question; None for any.

    Returns:
        facts: the facts by name. doubts: a sentence for each result that was refused or
        is doubtful, with what to do.
    """
    runs = [result for group in collection.groups for result in group.results]
    facts: dict[str, Fact] = {}
    doubts: list[str] = []
    for run in _by_time([r for r in runs if r.kind != "synthetic"])[-1:]:
        facts |= _calibrated(run, _of_run, image_size, doubts)
    if image_size is None and "image_size" in facts:
        image_size = float(facts["image_size"].value)
    for result in _by_time(collection.inputs)[-1:]:
        facts |= _calibrated(result, _of_input, image_size, doubts)
    for probe in _by_time(collection.probes)[-1:]:
        facts |= _calibrated(probe, _of_probe, None, doubts)
        if (probed := probe.values.place).is_memory:
            doubts.append(
                f"{probe.name} read files in memory ({probed.beneath}): "
                "its rate is that of no storage. Probe the storage of the run."
            )
    return facts, doubts


def _by_time(results: Sequence[Result[T]]) -> list[Result[T]]:
    return sorted(results, key=lambda result: (result.started, result.name))


def _calibrated(
    result: Result[T],
    facts_of: Callable[[Result[T]], dict[str, Fact]],
    image_size: float | None,
    doubts: list[str],
) -> dict[str, Fact]:
    """Returns the facts of a result without a fault; doubts grow by its doubts."""
    name = f"{result.values.command}, {result.name}"
    facts = {} if result.faults else facts_of(result)
    if reasons := _refusals(result, image_size):
        doubts.append(f"{name} is no calibration: {'; '.join(reasons)}. {_ASKED}")
        is_other = len(reasons) > 1 or result.values.steady_state.reached is not False
        # Settings hold all the same, and so does the time of steps that waited.
        refused = {"cpu_ms", *(_OF_ITS_IMAGES if is_other else ())}
        return {key: fact for key, fact in facts.items() if key not in refused}
    if reasons := _marks(result):
        doubts.append(f"{name} is doubtful: {'; '.join(reasons)}.")
        mark = f" (doubtful: {'; '.join(reasons)})"
        return {
            key: dataclasses.replace(fact, source=fact.source + mark)
            for key, fact in facts.items()
        }
    return facts


_OF_ITS_IMAGES = ("images_per_second", "image_size", "record")
_ASKED = "Measure it again, or give --cpu_ms and --images_per_second."


def _refusals(result: Result[Any], image_size: float | None) -> list[str]:
    reasons = [fault.removesuffix(".") for fault in result.faults]
    if result.values.steady_state.reached is False:
        reasons.append("it did not reach its steady state")
    size = _image_size(result)
    if image_size and size and size != image_size:
        reasons.append(f"its images have {size:g} pixels, the question {image_size:g}")
    return reasons


def _image_size(result: Result[Any]) -> float | None:
    config = result.values.config
    model = catalog.MODELS.get(config.model)
    return config.image_size or (float(model.image_size) if model else None)


def _marks(result: Result[Any]) -> list[str]:
    values, reasons = result.values, []
    if values.command == checks.STORAGE:
        return []
    if values.steady_state.reached is None:
        reasons.append("it does not say whether it was steady")
    others = values.host_load.others_cpu_fraction or 0
    if others > OTHERS_LIMIT:
        reasons.append(f"other processes took {others:.0%} of the cores")
    if result.cache == "warm" or values.cache.size_rule.met is False:
        reasons.append("its data fit in memory")
    return reasons


def _facts(
    result: Result[Any], values: dict[str, float | str | None]
) -> dict[str, Fact]:
    """Returns the values that a result has, with its name as their source.

    A figure of 0 was not measured, but a 0 for "no" is an answer.
    """
    source = f"{result.values.command}, {result.name}"
    return {
        name: Fact(value if isinstance(value, str) else float(value), source, "result")
        for name, value in values.items()
        if value or (value == 0 and KINDS[name] == "yes")
    }


def _of_probe(result: Result[StorageResult]) -> dict[str, Fact]:
    values = result.values
    rate, write = values.megabytes_per_second, values.write_megabytes_per_second
    random = [
        row.reads_per_second
        for row in values.measurements
        if row.what == "random" and row.state != "warm" and row.reads_per_second
    ]
    facts = _facts(
        result,
        {
            "storage": rate and rate * 1e6,
            "write": write and write * 1e6,
            "requests": max(random, default=None),
            "record": values.place.mean_record_bytes,
        },
    )
    if "storage" in facts:
        kind = values.place.file_system
        is_shared = kind not in _OF_ONE_HOST
        source = f"{facts['storage'].source}: file system {kind or 'unknown'}"
        facts["shared_storage"] = Fact(float(is_shared), source, "result")
        if not is_shared and rate:
            # All hosts together gave the rate, each from its own disk.
            of_a_host = rate * 1e6 / (values.num_ranks or 1)
            disk = dataclasses.replace(facts["storage"], value=of_a_host)
            facts |= {"storage": disk, "local_disk": disk}
    return facts


def _of_input(result: Result[InputResult]) -> dict[str, Fact]:
    facts = _facts(
        result,
        {
            "cpu_ms": (result.values.cpu_seconds_per_example or 0) * 1e3,
            **_paths(result),
            **_host_and_data(result),
        },
    )
    rate, cores = result.values.examples_per_second, facts.get("cores")
    if rate and cores and "cpu_ms" in facts:
        busy = rate * float(facts["cpu_ms"].value) / 1e3 / float(cores.value)
        if _LEAST_BUSY <= busy < 1:
            # No pipeline keeps all cores busy; the idle part counts as cost.
            facts["cpu_ms"] = Fact(
                float(cores.value) / rate * 1e3,
                f"{facts['cpu_ms'].source}: {rate:,.0f} images/s on "
                f"{float(cores.value):g} cores, {busy:.0%} busy",
                "result",
            )
    return facts


def _of_run(result: RunResult) -> dict[str, Fact]:
    values, config = result.values, result.values.config
    batch, compute = config.batch_size, values.compute_seconds_per_step
    rate, consumed = values.examples_per_second, values.consumed_megabytes_per_second
    # The step time of an emulated accelerator is exact; a busy host measures a longer
    # time.
    own = values.emulation and values.emulation.examples_per_second
    ranks, hosts = values.num_ranks, len(values.environment.hosts)
    # Without a GPU the model's computation is in the CPU time of a real run.
    is_input_alone = result.kind == "emulated" or bool(values.environment.gpus)
    cpu = values.cpu_seconds_per_example if is_input_alone else None
    return _facts(
        result,
        {
            "model": config.model,
            "accelerator": config.emulate,
            "batch_size": batch,
            "image_size": config.image_size,
            **_paths(result),
            "images_per_second": own or (batch and compute and batch / compute),
            "num_accelerators": ranks,
            "accelerators_per_host": _per_host(ranks, hosts),
            **_host_and_data(result),
            "cpu_ms": cpu and cpu * 1e3,
            "record": consumed and rate and consumed * 1e6 / rate,
            "request": _request(values.storage),
        },
    )


def _request(source: SourceBytes | None) -> float | None:
    """Returns the mean bytes of a request of a shard cache."""
    if source is None or not source.num_requests:
        return None
    return (source.bytes_from_server or 0) / source.num_requests


def _paths(result: Result[Any]) -> dict[str, float | None]:
    """Returns whether each faster path ran; None if the result does not say.

    The figures of whole batches in `hardware` are those of the native crop.
    """
    paths = dict(result.values.paths)
    if paths.get("crop") == "stock":
        paths["whole_batches"] = "no"
    return {
        name: float(paths[name] == "yes") if name in paths else None
        for name in ("whole_batches", "entry_points")
    }


def _per_host(num_ranks: float | None, num_hosts: int) -> float | None:
    """Returns the ranks of a host; None if hosts have different numbers of ranks."""
    if not num_ranks or not num_hosts or num_ranks % num_hosts:
        return None
    return num_ranks / num_hosts


def _host_and_data(result: Result[Any]) -> dict[str, float | str | None]:
    host, data = result.values.environment, result.values.environment.data
    records, num_bytes = (data.num_records, data.num_bytes) if data else (None, None)
    return {
        "cores": host.num_cpus,
        "ram": host.ram_bytes,
        "num_images": records,
        "record": records and num_bytes and num_bytes / records,
    }
