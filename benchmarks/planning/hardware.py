"""Built-in tables: hosts, storages, and the CPU time of an image, with their sources.

In: facts of flags and results, and the text of a change, such as
"cores=128,storage=10GB/s". Out: the same facts without the figures that the change
makes wrong, and facts of the tables for all others. The accelerators are in
benchmarks/planning/published.py.
"""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from benchmarks.models import accelerators as accelerators_, catalog
from benchmarks.models.accelerators import Accelerators
from benchmarks.planning import ceilings, facts as facts_, published
from benchmarks.planning.facts import Fact, Facts
from tfpipe import errors

_WEKA = "WekaIO, DGX-1"


class _Machine(NamedTuple):
    """A host with 8 accelerators: cores, and bytes of memory, local disk and link."""

    cores: float
    ram: float
    local_disk_room: float
    local_disk: Fact
    link: Fact
    source: str


class _Storage(NamedTuple):
    """A storage by name: bytes and requests a second, for all hosts or for each."""

    rate: float
    is_shared: bool
    requests: float
    source: str


_LOCAL_NVME = 17_000 * 150_528.0
STORAGES = {
    "unlimited": _Storage(math.inf, True, math.inf, "no storage was given"),
    "nfs": _Storage(1.5e9, False, math.inf, f"{_WEKA}: limit of NFS, for each client"),
    "nvme": _Storage(
        *(_LOCAL_NVME, False, math.inf),
        f"{_WEKA}: local NVMe, 17,000 images/s of 150,528 B",
    ),
    "weka": _Storage(
        *(30e9, True, 2.5e6), "HPE and WekaIO: over 30 GB/s, over 2.5 million reads/s"
    ),
}
_LINK = Fact(10e9, f"one 100 Gb/s link: over 10 GB/s, {_WEKA}")
_DISKS = Fact(25e9, "NVIDIA DGX A100: 25 GB/s at most of four NVMe disks, PCIe 4")
_PORT_200 = Fact(25e9, "NVIDIA DGX A100, data sheet: one 200 Gb/s port")
_PORT_400 = Fact(50e9, "NVIDIA DGX H100, data sheet: one 400 Gb/s port")
_MACHINES = {
    "v100": _Machine(
        *(40, 512e9, 7.68e12, Fact(_LOCAL_NVME, STORAGES["nvme"].source), _LINK),
        "NVIDIA DGX-1, data sheet",
    ),
    "a100": _Machine(
        *(128, 1e12, 15.36e12, _DISKS, _PORT_200), "NVIDIA DGX A100 320GB, data sheet"
    ),
    **{
        name.lower(): _Machine(
            *(112, 2e12, 30.72e12, _DISKS, _PORT_400), f"NVIDIA DGX {name}, data sheet"
        )
        for name in ("H100", "H200", "B200")
    },
}
_PER_HOST = 8.0
_WRITE = Fact(1.5e9, "limit of NFS for one client, as the storage has no known limit")
_PAGE_CACHE_SHARE = 0.8

# CPU time of an image with the native op, a line through two points: 300 photographs
# of ILSVRC-2012 at 224 pixels, and images of 1 MB at 299 pixels.
_CPU_SMALL = 103_564.0, 1.436
_CPU_LARGE = 1e6, 9.836
WHOLE_BATCHES = 1.198 / 1.436  # of that CPU time, at 104 kB
# CPU time with entry points over that without them; of 1.3 MB it is 0.76.
ENTRY_POINTS = 0.490 / 0.562
ENTRY_POINTS_SOURCE = "2026-11-24-decode.json"
_RECORD = Fact(
    float(published.IMAGENET_RECORD_BYTES),
    "ILSVRC-2012, train: 147,531,475,882 B, 1,281,167 images",
)
# The faster paths of a pipeline, as the presets choose them.
PATHS = {"whole_batches": Fact(1.0, "default"), "entry_points": Fact(0.0, "default")}
CPU_SOURCE = "2026-11-22-decode-native.json, -large.json: native op on an AMD EPYC"


def cpu_milliseconds(record_bytes: float) -> float:
    """Returns the CPU time that reading, decoding and cropping an image takes."""
    (x0, y0), (x1, y1) = _CPU_SMALL, _CPU_LARGE
    slope = (y1 - y0) / (x1 - x0)
    return y0 + slope * (record_bytes - x0)


def paths_ratio(facts: Facts) -> float:
    """Returns the factor of the faster paths of `PATHS` on the CPU time of an image.

    Args:
        facts: Facts; a path without a fact has its default.
    """
    ratios = {"whole_batches": WHOLE_BATCHES, "entry_points": ENTRY_POINTS}
    return math.prod(
        ratio for path, ratio in ratios.items() if {**PATHS, **facts}[path].value
    )


def complete(start: Facts, accelerators: Accelerators, mode: str) -> dict[str, Fact]:
    """Returns each fact of `facts.KINDS`; the tables fill the gaps."""
    facts = dict(start)
    _add_model(facts, accelerators, mode)
    for add in (_add_machine, _add_data, _add_storage, _add_memory):
        add(facts)
    return {name: facts[name] for name in facts_.KINDS}


def _known(what: str, name: str, table: Collection[str], also: str = "") -> str:
    """Returns a name of a table; ValueError for another name."""
    if name not in table:
        raise ValueError(
            f"{what} must be {also}one of {', '.join(table)}{';' if also else ','} got "
            f"{name!r}.{errors.did_you_mean(name, table)}"
        )
    return name


def _add_model(facts: dict[str, Fact], accelerators: Accelerators, mode: str) -> None:
    add, models = facts.setdefault, sorted(catalog.MODELS)
    name = _known("model", str(add("model", Fact("resnet50", "default")).value), models)
    model, default = catalog.MODELS[name], f"default of {name}"
    add("batch_size", Fact(float(model.batch_size), default))
    add("image_size", Fact(float(model.image_size), default))
    if "images_per_second" in facts:
        add("accelerator", Fact("accelerator", "its rate was given"))
        return
    accelerator = str(add("accelerator", Fact("h100", "default")).value)
    flags = {"flag": "--accelerator", "remedy": "--images_per_second"}
    figure = accelerators_.find(accelerators, accelerator, name, mode, **flags)
    how = "" if figure.ratio is None else "scaled; "
    facts["images_per_second"] = Fact(figure.images_per_second, how + figure.source)


def _add_machine(facts: dict[str, Fact]) -> None:
    add, accelerator = facts.setdefault, str(facts["accelerator"].value)
    name = accelerator.partition("_")[0].lower()
    machine = _MACHINES.get(name, _MACHINES["h100"])
    source = machine.source
    if name not in _MACHINES:
        source += f", as the host of {accelerator} is not known"
    per_host = add("accelerators_per_host", Fact(_PER_HOST, machine.source))
    add("num_accelerators", Fact(per_host.value, "default: one host"))
    add("cores", Fact(machine.cores, source))
    add("ram", Fact(machine.ram, source))
    add("local_disk_room", Fact(machine.local_disk_room, source))
    add("link", machine.link)
    add("local_disk", machine.local_disk)
    add("exchange_ms", Fact(0.0, "hidden by computation, an assumption"))


def _add_data(facts: dict[str, Fact]) -> None:
    add = facts.setdefault
    add("num_images", Fact(1_281_167.0, _RECORD.source))
    for name, fact in {"record": _RECORD, **PATHS}.items():
        add(name, fact)
    cost = cpu_milliseconds(facts_.figure(facts, "record")) * paths_ratio(facts)
    source = CPU_SOURCE
    if facts["whole_batches"].value:
        source += ", whole batches"
    if facts["entry_points"].value:
        source += f", entry points: {ENTRY_POINTS_SOURCE}"
    add("cpu_ms", Fact(cost, source))


def _add_storage(facts: dict[str, Fact]) -> None:
    add, storage = facts.setdefault, facts.get("storage", Fact("unlimited", ""))
    if isinstance(name := storage.value, str):
        kind = STORAGES[_known("storage", name, STORAGES, "a rate such as 10GB/s, or ")]
        source = f"{storage.source} {name}: " if storage.source else ""
        source += kind.source
        storage = facts["storage"] = Fact(kind.rate, source)
        add("shared_storage", Fact(float(kind.is_shared), source))
        add("requests", Fact(kind.requests, source))
    add("shared_storage", Fact(1.0, "assumption"))
    add("requests", Fact(math.inf, "no limit was given"))
    add("request", Fact(float(1 << 20), "read buffer of a pipeline"))
    for name in ("storage_cache", "price_per_1000_requests", "price_per_gb"):
        add(name, Fact(0.0, "none was given"))
    rate, link = float(storage.value), facts["link"]
    how = f"as fast as one host reads: {storage.source}, {link.source}"
    same = Fact(min(rate, float(link.value)), how)
    add("write", same if math.isfinite(rate) else _WRITE)


def _add_memory(facts: dict[str, Fact]) -> None:
    room = _PAGE_CACHE_SHARE * facts_.figure(facts, "ram")
    how = f"{_PAGE_CACHE_SHARE:.0%} of the memory"
    facts.setdefault("page_cache", Fact(room, how))
    scenario = facts_.scenario(facts)
    hits = ceilings.page_cache_hits(
        scenario.page_cache, scenario.num_bytes, scenario.num_hosts
    )
    how = "least recently used, a new permutation an epoch"
    facts.setdefault("cached", Fact(hits, how))


FLAG = "--what_if"
_OTHER_NAMES = {"accelerators": "num_accelerators", "network": "link"}
_HOSTS = "hosts"

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
    """Returns the facts that the text of --what_if sets.

    Args:
        before: All facts before the change, for the size of a host.
    """
    changes: dict[str, Fact] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if not value:
            raise ValueError(
                f"{FLAG} must be settings such as cores=128,storage=10GB/s; got "
                f"{part.strip()!r}."
            )
        source = f"{FLAG} {name}={value}"
        if name == _HOSTS:
            hosts = facts_.parse("num_accelerators", value, source)
            per_host = facts_.figure({**before, **changes}, "accelerators_per_host")
            name, fact = (
                "num_accelerators",
                Fact(float(hosts.value) * per_host, source, "flag"),
            )
        else:
            name = _OTHER_NAMES.get(name, name)
            if name not in facts_.KINDS:
                names = ", ".join([_HOSTS, *facts_.KINDS])
                raise ValueError(
                    f"{FLAG} may set {names}; got {name!r}."
                    f"{errors.did_you_mean(name, facts_.KINDS)}"
                )
            fact = facts_.parse(name, value, source)
        if name in changes:
            raise ValueError(f"{FLAG} sets {name} twice: {text!r}.")
        changes[name] = fact
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
