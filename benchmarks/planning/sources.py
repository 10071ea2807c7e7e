"""Sources of facts: results, built-in tables, and a change of some facts.

In: results of benchmarks.storage, benchmarks.input and benchmarks.train, where the
newest result of a command counts; facts of flags; and the text of a change, such as
"cores=128,storage=10GB/s". Out: the facts without the figures that the change makes
wrong, and facts of the tables for all others: hosts, storages, and the CPU time of an
image. Every fact names its source. The accelerators are in published.py.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.models import accelerators as accelerators_, catalog
from benchmarks.models.accelerators import Accelerators
from benchmarks.planning import ceilings, published
from benchmarks.planning.ceilings import KINDS, Scenario
from benchmarks.results import checks, collection as results
from benchmarks.results.collection import Result, RunResult, T
from benchmarks.results.other_results import InputResult, StorageResult
from benchmarks.results.train_result import SourceBytes
from benchmarks.system.figures import size_text
from benchmarks.system.telemetry import OTHERS_LIMIT
from tfpipe import errors

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_NUMBER = re.compile(r"([0-9][0-9_.]*(?:e[+-]?[0-9]+)?)\s*([a-z/%]*)", re.IGNORECASE)
# The unit of a kind, with its prefix, and the form of a text.
_FORMS = {
    "bytes": (r"([kKMmGgTtPp]?)B", "such as 512GB or 115kB"),
    "rate": (
        r"([kKMmGgTtPp]?)B/s",
        "such as 10GB/s (B is a byte: 100Gb/s are 12.5GB/s)",
    ),
    "milliseconds": (r"()(?:ms)?", "milliseconds, such as 1.5"),
    "number": (r"([kKMGT]?)", "a number"),
    "count": (r"()", "a whole number"),
    "share": (r"()%?", "a share of 0 to 1, or per cent"),
    "yes": (r"()", "yes or no"),
}
_WORDS = {"yes": 1.0, "true": 1.0, "1": 1.0, "no": 0.0, "false": 0.0, "0": 0.0}


@dataclasses.dataclass(frozen=True)
class Fact:
    """A figure or a name, whose `origin` is "flag", "result" or "table".

    The value is in bytes, bytes a second or milliseconds; a text for names.
    """

    value: float | str
    source: str
    origin: str = "table"


Facts = Mapping[str, Fact]


def parse(name: str, text: str, source: str) -> Fact:
    """Returns the fact of a text with a unit of the SI, as a flag gives it."""
    kind = KINDS[name]
    if kind == "text" or (name == "storage" and text.isidentifier()):
        return Fact(text, source, "flag")
    value = _value(kind, text.strip())
    problem = _FORMS[kind][1] if value is None else ceilings.problem(name, value)
    if value is None or problem:
        raise ValueError(f"{source}: {name} must be {problem}, got {text!r}.")
    return Fact(value, source, "flag")


def _value(kind: str, text: str) -> float | None:
    if kind == "yes":
        return _WORDS.get(text.lower())
    if kind == "rate" and text.lower() == "unlimited":
        return math.inf
    match = _NUMBER.fullmatch(text)
    unit = match and re.fullmatch(_FORMS[kind][0], match[2])
    if match is None or unit is None:
        return None
    scale = 0.01 if match[2] == "%" else _PREFIXES[unit[1].lower()]
    try:
        value = float(match[1]) * scale
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def shown(name: str, value: float | str) -> str:
    """Returns the value of a fact for people, with its unit."""
    kind = KINDS[name]
    if isinstance(value, str):
        return value
    if math.isinf(value):
        return "unlimited"
    if kind == "yes":
        return "yes" if value else "no"
    if kind == "share":
        return f"{value:.1%}"
    if kind in ("bytes", "rate"):
        return size_text(value) + ("/s" if kind == "rate" else "")
    digits = f"{value:,.4g}" if value < 1e3 else f"{value:,.0f}"
    return f"{digits} ms" if kind == "milliseconds" else digits


def scenario_of(facts: Facts) -> Scenario:
    """Returns the scenario of facts; a host may have fewer accelerators.

    A single accelerator exchanges nothing.
    """
    values: dict[str, Any] = {}
    for name, fact in facts.items():
        is_whole = KINDS[name] in ("count", "yes")
        values[name] = int(fact.value) if is_whole else fact.value
    total = values["num_accelerators"]
    per_host = min(total, values["accelerators_per_host"])
    exchange_ms = values["exchange_ms"] if total > 1 else 0.0
    own = {"accelerators_per_host": per_host, "exchange_ms": exchange_ms}
    return Scenario(**{**values, **own})


def as_json(facts: Facts) -> dict[str, dict[str, object]]:
    """Returns value and source by name; null stands for a rate without a limit."""
    return {
        name: {
            "value": None if fact.value == math.inf else fact.value,
            "source": fact.source,
        }
        for name, fact in facts.items()
    }


def from_json(table: Mapping[str, Mapping[str, Any]]) -> dict[str, Fact]:
    """Returns the facts of a table of `as_json`."""
    values = {name: fact["value"] for name, fact in table.items()}
    return {
        name: Fact(math.inf if value is None else value, table[name]["source"])
        for name, value in values.items()
    }


# The hosts of accelerators, the storages by name, and the facts of any run.
_HOSTS, STORAGES = (
    {name: from_json(table) for name, table in published.DATA[key].items()}
    for key in ("hosts", "storages")
)
_DEFAULTS = from_json(published.DATA["defaults"])
_PAGE_CACHE_SHARE = 0.8

# CPU time of an image with the native op, a line through two points: 300 photographs
# of ILSVRC-2012 at 224 pixels, and images of 1 MB at 299 pixels.
_CPU_SMALL = 103_564.0, 1.436
_CPU_LARGE = 1e6, 9.836
CPU_SOURCE = "2026-11-22-decode-native.json, -large.json: native op on an AMD EPYC"
# The faster paths: the CPU time of an image of 104 kB with a path over the time without
# it, and the source. For entry points and 1.3 MB, the ratio is 0.76.
PATHS: Mapping[str, tuple[float, str]] = {
    "whole_batches": (1.198 / 1.436, "2026-11-22-decode-native.json"),
    "entry_points": (0.490 / 0.562, "2026-11-24-decode.json"),
}

# A pipeline with fewer busy cores waits for another resource.
_LEAST_BUSY = 0.7
_OF_ONE_HOST = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs"}
_OF_ONE_HOST |= {"overlay", "ramfs"}

# The figures of a result by the names of facts, None if the result does not say; and a
# note for the source of a figure that is computed.
_Values = dict[str, float | str | None]
_Notes = dict[str, str]
_Read = Callable[[Result[T]], tuple[_Values, _Notes]]


def read_facts(
    collection: results.Collection, *, image_size: float | None = None
) -> tuple[dict[str, Fact], list[str]]:
    """Returns the facts of results by name; later sources replace earlier sources.

    Synthetic runs are not used. `image_size` is the height and width of the images in
    the question; None for any. The doubts are a sentence for every refused or doubtful
    result, with the remedy.
    """
    runs = [r for g in collection.groups for r in g.results if r.kind != "synthetic"]
    facts: dict[str, Fact] = {}
    doubts: list[str] = []
    for run in _newest(runs):
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


def _newest(every: Sequence[Result[T]]) -> list[Result[T]]:
    return sorted(every, key=lambda result: (result.started, result.name))[-1:]


def _calibrated(
    result: Result[T], facts_of: _Read[T], image_size: float | None, doubts: list[str]
) -> dict[str, Fact]:
    """Returns the facts of a result without a fault; doubts grow by its doubts."""
    name = f"{result.values.command}, {result.name}"
    values, notes = ({}, {}) if result.faults else facts_of(result)
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
    """Returns whether the faster paths ran; None if the result does not say.

    The figures of whole batches in this module are for the native crop.
    """
    paths = dict(result.values.paths)
    if paths.get("crop") == "stock":
        paths["whole_batches"] = "no"
    return {
        name: float(paths[name] == "yes") if name in paths else None for name in PATHS
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


def cpu_milliseconds(record_bytes: float) -> float:
    """Returns the CPU time for reading, decoding and cropping an image."""
    (x0, y0), (x1, y1) = _CPU_SMALL, _CPU_LARGE
    slope = (y1 - y0) / (x1 - x0)
    return y0 + slope * (record_bytes - x0)


def paths_ratio(facts: Facts) -> float:
    """Returns the factor on the CPU time of the faster paths, which have defaults."""
    whole = {**_DEFAULTS, **facts}
    return math.prod(ratio for path, (ratio, _) in PATHS.items() if whole[path].value)


def complete(start: Facts, accelerators: Accelerators, mode: str) -> dict[str, Fact]:
    """Returns every fact of `KINDS`; the tables fill the gaps."""
    facts = {**_DEFAULTS, **_with_storage(start)}
    if "images_per_second" in start:
        unknown = Fact("accelerator", "its rate was given")
        facts["accelerator"] = start.get("accelerator", unknown)
    accelerator = str(facts["accelerator"].value)
    _add_model(facts, accelerators, accelerator, mode)
    kind = accelerator.partition("_")[0].lower()
    how = "" if kind in _HOSTS else f", as the host of {accelerator} is not known"
    for name, fact in _HOSTS.get(kind, _HOSTS["h100"]).items():
        facts.setdefault(name, Fact(fact.value, fact.source + how))
    one_host = Fact(facts["accelerators_per_host"].value, "default: one host")
    facts.setdefault("num_accelerators", one_host)
    _add_computed(facts, start)
    return {name: facts[name] for name in KINDS}


def _with_storage(start: Facts) -> dict[str, Fact]:
    """Returns facts, with the figures of a storage in place of its name."""
    storage = start.get("storage", Fact("unlimited", ""))
    if not isinstance(name := storage.value, str):
        return {**start}
    what = "storage, without a rate such as 10GB/s,"
    errors.require_choice("", what, name, tuple(STORAGES))
    kind = STORAGES[name]
    how = f"{storage.source} {name}: " if storage.source else ""
    named = {key: Fact(fact.value, how + fact.source) for key, fact in kind.items()}
    return {**named, **start, "storage": named["storage"]}


def _add_model(
    facts: dict[str, Fact], accelerators: Accelerators, accelerator: str, mode: str
) -> None:
    name = str(facts["model"].value)
    errors.require_choice("", "model", name, sorted(catalog.MODELS))
    model, default = catalog.MODELS[name], f"default of {name}"
    facts.setdefault("batch_size", Fact(float(model.batch_size), default))
    facts.setdefault("image_size", Fact(float(model.image_size), default))
    if "images_per_second" not in facts:
        flags = {"flag": "--accelerator", "remedy": "--images_per_second"}
        figure = accelerators_.find(accelerators, accelerator, name, mode, **flags)
        how = "" if figure.ratio is None else "scaled; "
        facts["images_per_second"] = Fact(figure.images_per_second, how + figure.source)


def _add_computed(facts: dict[str, Fact], start: Facts) -> None:
    """Adds the figures that follow from other figures."""
    cost = cpu_milliseconds(float(facts["record"].value)) * paths_ratio(facts)
    used = [path for path in PATHS if facts[path].value]
    texts = (f"{path.replace('_', ' ')}: {PATHS[path][1]}" for path in used)
    facts.setdefault("cpu_ms", Fact(cost, ", ".join([CPU_SOURCE, *texts])))
    storage, link = facts["storage"], facts["link"]
    if "write" not in start and math.isfinite(float(storage.value)):
        how = f"as fast as one host reads: {storage.source}, {link.source}"
        facts["write"] = Fact(min(float(storage.value), float(link.value)), how)
    room = _PAGE_CACHE_SHARE * float(facts["ram"].value)
    how = f"{_PAGE_CACHE_SHARE:.0%} of the memory"
    facts.setdefault("page_cache", Fact(room, how))
    scenario = scenario_of(facts)
    hits = ceilings.page_cache_hits(
        scenario.page_cache, scenario.num_bytes, scenario.num_hosts
    )
    how = "least recently used, a new permutation an epoch"
    facts.setdefault("cached", Fact(hits, how))


FLAG = "--what_if"
_OTHER_NAMES = {
    **dict.fromkeys(("hosts", "accelerators"), "num_accelerators"),
    "network": "link",
}

# A changed fact makes these facts wrong, unless their source is a flag.
_DEPENDENT: Mapping[str, tuple[str, ...]] = {
    "model": ("images_per_second", "batch_size", "image_size"),
    "accelerator": ("images_per_second",),
    "record": ("cpu_ms",),
    "storage": ("requests", "shared_storage", "write"),
    "ram": ("page_cache",),
}
_NEVER_KEPT = "images_per_second"  # of one model on one accelerator, also from a flag


def parse_changes(text: str, before: Facts) -> dict[str, Fact]:
    """Returns the changed facts of the text of --what_if, from all facts before."""
    changes: dict[str, Fact] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if not value:
            raise ValueError(
                f"{FLAG} must be settings such as cores=128,storage=10GB/s; got "
                f"{part.strip()!r}."
            )
        source = f"{FLAG} {name}={value}"
        key = _OTHER_NAMES.get(name, name)
        errors.require_choice("", f"A name in {FLAG}", key, ["hosts", *KINDS])
        fact = parse(key, value, source)
        if name == "hosts":
            per_host = float({**before, **changes}["accelerators_per_host"].value)
            fact = dataclasses.replace(fact, value=float(fact.value) * per_host)
        if key in changes:
            raise ValueError(f"{FLAG} sets {key} twice: {text!r}.")
        changes[key] = fact
    return changes


def change(before: Facts, changes: Facts) -> dict[str, Fact]:
    """Returns facts after a change, without the figures that the change makes wrong.

    Args:
        before: Facts of flags and results, without facts of tables.
    """
    stale = {name for changed in changes for name in _DEPENDENT.get(changed, ())}
    kept = {
        name: fact
        for name, fact in before.items()
        if name not in stale or (fact.origin == "flag" and name != _NEVER_KEPT)
    }
    ratio = paths_ratio({**before, **changes}) / paths_ratio(before)
    if (cost := kept.get("cpu_ms")) and ratio != 1:
        how = f"{cost.source}, times {ratio:.2f} for other paths of the pipeline"
        kept["cpu_ms"] = Fact(float(cost.value) * ratio, how, cost.origin)
    return {**kept, **changes}
