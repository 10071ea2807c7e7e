"""Facts that results hold: a storage probe, and the cost of the input pipeline.

In: results of benchmarks.storage, benchmarks.input and benchmarks.train. Out: facts by
name. The newest result of each command counts, and the source of a fact names it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.models import catalog
from benchmarks.planning.facts import KINDS, Fact
from benchmarks.results import checks
from benchmarks.results.collection import Collection, Result, RunResult, T
from benchmarks.results.other_results import InputResult, StorageResult
from benchmarks.results.train_result import SourceBytes
from benchmarks.system.telemetry import OTHERS_LIMIT

# A pipeline with fewer busy cores waits for another resource.
_LEAST_BUSY = 0.7
_OF_ONE_HOST = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs"}
_OF_ONE_HOST |= {"overlay", "ramfs"}

# The figures of a result by the names of facts, None if the result does not say; and a
# note for the source of a figure that is computed.
_Values = dict[str, float | str | None]
_Notes = dict[str, str]
_Read = Callable[[Result[T]], tuple[_Values, _Notes]]


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
    for run in _newest([r for r in runs if r.kind != "synthetic"]):
        facts |= _calibrated(run, _of_run, image_size, doubts)
    if image_size is None and "image_size" in facts:
        image_size = float(facts["image_size"].value)
    for result in _newest(collection.inputs):
        facts |= _calibrated(result, _of_input, image_size, doubts)
    for probe in _newest(collection.probes):
        facts |= _calibrated(probe, _of_probe, None, doubts)
        if (probed := probe.values.place).is_memory:
            doubts.append(
                f"{probe.name} read files in memory ({probed.beneath}): "
                "its rate is that of no storage. Probe the storage of the run."
            )
    return facts, doubts


def _newest(results: Sequence[Result[T]]) -> list[Result[T]]:
    return sorted(results, key=lambda result: (result.started, result.name))[-1:]


def _calibrated(
    result: Result[T], read: _Read[T], image_size: float | None, doubts: list[str]
) -> dict[str, Fact]:
    """Returns the facts of a result without a fault; doubts grow by its doubts."""
    name = f"{result.values.command}, {result.name}"
    values, notes = ({}, {}) if result.faults else read(result)
    refused: set[str] = set()
    mark = ""
    if reasons := _refusals(result, image_size):
        doubts.append(f"{name} is no calibration: {'; '.join(reasons)}. {_ASKED}")
        is_other = len(reasons) > 1 or result.values.steady_state.reached is not False
        # Settings hold all the same, and so does the time of steps that waited.
        refused = {"cpu_ms", *(_OF_ITS_IMAGES if is_other else ())}
    elif reasons := _marks(result):
        doubts.append(f"{name} is doubtful: {'; '.join(reasons)}.")
        mark = f" (doubtful: {'; '.join(reasons)})"
    return {
        key: Fact(
            value if isinstance(value, str) else float(value),
            name + (f": {notes[key]}" if key in notes else "") + mark,
            "result",
        )
        for key, value in values.items()
        # A figure of 0 was not measured, but a 0 for "no" is an answer.
        if value or (value == 0 and KINDS[key] == "yes")
        if key not in refused
    }


_OF_ITS_IMAGES = ("images_per_second", "image_size", "record")
_ASKED = "Measure it again, or give --cpu_ms and --images_per_second."


def _refusals(result: Result[Any], image_size: float | None) -> list[str]:
    reasons = [fault.removesuffix(".") for fault in result.faults]
    if result.values.steady_state.reached is False:
        reasons.append("it did not reach its steady state")
    config = result.values.config
    size = catalog.image_size(config.model, config.image_size)
    if image_size and size and size != image_size:
        reasons.append(f"its images have {size:g} pixels, the question {image_size:g}")
    return reasons


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


def _of_probe(result: Result[StorageResult]) -> tuple[_Values, _Notes]:
    values = result.values
    rate, write = values.megabytes_per_second, values.write_megabytes_per_second
    random = [
        row.reads_per_second
        for row in values.measurements
        if row.what == "random" and row.state != "warm" and row.reads_per_second
    ]
    facts: _Values = {
        "storage": rate and rate * 1e6,
        "write": write and write * 1e6,
        "requests": max(random, default=None),
        "record": values.place.mean_record_bytes,
    }
    if not rate:
        return facts, {}
    kind = values.place.file_system
    facts["shared_storage"] = float(kind not in _OF_ONE_HOST)
    if kind in _OF_ONE_HOST:
        # All hosts together gave the rate, each from its own disk.
        facts["storage"] = facts["local_disk"] = rate * 1e6 / (values.num_ranks or 1)
    return facts, {"shared_storage": f"file system {kind or 'unknown'}"}


def _of_input(result: Result[InputResult]) -> tuple[_Values, _Notes]:
    values = result.values
    rate, cores = values.examples_per_second, values.environment.num_cpus
    cpu = values.cpu_seconds_per_example or 0.0
    facts: _Values = {"cpu_ms": cpu * 1e3, **_paths(result), **_host_and_data(result)}
    busy = rate * cpu / cores if rate and cores else 0.0
    if not rate or not cores or not _LEAST_BUSY <= busy < 1:
        return facts, {}
    # No pipeline keeps all cores busy; the idle part counts as cost.
    facts["cpu_ms"] = cores / rate * 1e3
    note = f"{rate:,.0f} images/s on {cores:g} cores, {busy:.0%} busy"
    return facts, {"cpu_ms": note}


def _of_run(result: RunResult) -> tuple[_Values, _Notes]:
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
    source = values.storage or SourceBytes()
    requests = source.num_requests
    facts = {
        "model": config.model,
        "accelerator": config.emulate,
        "batch_size": batch,
        "image_size": config.image_size,
        **_paths(result),
        "images_per_second": own or (batch and compute and batch / compute),
        "num_accelerators": ranks,
        # Hosts with different numbers of ranks have no number of accelerators.
        "accelerators_per_host": ranks / hosts
        if ranks and hosts and not ranks % hosts
        else None,
        **_host_and_data(result),
        "cpu_ms": cpu and cpu * 1e3,
        "record": consumed and rate and consumed * 1e6 / rate,
        "request": requests and (source.bytes_from_server or 0) / requests,
    }
    return facts, {}


def _paths(result: Result[Any]) -> _Values:
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


def _host_and_data(result: Result[Any]) -> _Values:
    host, data = result.values.environment, result.values.environment.data
    records, num_bytes = (data.num_records, data.num_bytes) if data else (None, None)
    return {
        "cores": host.num_cpus,
        "ram": host.ram_bytes,
        "num_images": records,
        "record": records and num_bytes and num_bytes / records,
    }
