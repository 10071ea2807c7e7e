"""Built-in tables: hosts, storages, and the CPU time of an image, with their sources.

In: facts of flags and results. Out: the same facts, and facts of the tables for all
others. The accelerators are in benchmarks/planning/published.py.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.models import catalog
from benchmarks.models.accelerators import Accelerator, find
from benchmarks.planning import facts as facts_, published, run_costs
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
    facts = {**PATHS, **facts}
    ratio = 1.0
    if facts_.figure(facts, "whole_batches"):
        ratio *= WHOLE_BATCHES
    if facts_.figure(facts, "entry_points"):
        ratio *= ENTRY_POINTS
    return ratio


def complete(
    start: Facts, accelerators: Mapping[str, Accelerator], mode: str
) -> dict[str, Fact]:
    """Returns each fact of `facts.KINDS`; the tables fill the gaps."""
    facts = dict(start)
    _add_model(facts, accelerators, mode)
    _add_machine(facts)
    _add_data(facts)
    _add_storage(facts)
    _add_memory(facts)
    return {name: facts[name] for name in facts_.KINDS}


def _add_model(
    facts: dict[str, Fact], accelerators: Mapping[str, Accelerator], mode: str
) -> None:
    facts.setdefault("model", Fact("resnet50", "default"))
    name = facts_.text(facts, "model")
    if name not in catalog.MODELS:
        raise ValueError(
            f"model must be one of {', '.join(sorted(catalog.MODELS))}, got {name!r}."
            f"{errors.did_you_mean(name, catalog.MODELS)}"
        )
    model = catalog.MODELS[name]
    default = f"default of {name}"
    facts.setdefault("batch_size", Fact(float(model.batch_size), default))
    facts.setdefault("image_size", Fact(float(model.image_size), default))
    if "images_per_second" in facts:
        facts.setdefault("accelerator", Fact("accelerator", "its rate was given"))
        return
    facts.setdefault("accelerator", Fact("h100", "default"))
    flags = {"flag": "--accelerator", "remedy": "--images_per_second"}
    accelerator = facts_.text(facts, "accelerator")
    figure = find(accelerators, accelerator, name, mode, **flags).figure
    how = figure.source if figure.basis == "published" else f"scaled; {figure.source}"
    facts["images_per_second"] = Fact(figure.images_per_second, how)


def _add_machine(facts: dict[str, Fact]) -> None:
    name = facts_.text(facts, "accelerator").partition("_")[0].lower()
    machine = _MACHINES.get(name, _MACHINES["h100"])
    source = machine.source
    if name not in _MACHINES:
        source += f", as the host of {facts_.text(facts, 'accelerator')} is not known"
    facts.setdefault("accelerators_per_host", Fact(_PER_HOST, machine.source))
    facts.setdefault(
        "num_accelerators",
        Fact(facts_.figure(facts, "accelerators_per_host"), "default: one host"),
    )
    facts.setdefault("cores", Fact(machine.cores, source))
    facts.setdefault("ram", Fact(machine.ram, source))
    facts.setdefault("local_disk_room", Fact(machine.local_disk_room, source))
    facts.setdefault("link", machine.link)
    facts.setdefault("local_disk", machine.local_disk)
    facts.setdefault("exchange_ms", Fact(0.0, "hidden by computation, an assumption"))


def _add_data(facts: dict[str, Fact]) -> None:
    facts.setdefault("num_images", Fact(1_281_167.0, _RECORD.source))
    for name, fact in {"record": _RECORD, **PATHS}.items():
        facts.setdefault(name, fact)
    cost = cpu_milliseconds(facts_.figure(facts, "record")) * paths_ratio(facts)
    source = CPU_SOURCE
    if facts_.figure(facts, "whole_batches"):
        source += ", whole batches"
    if facts_.figure(facts, "entry_points"):
        source += f", entry points: {ENTRY_POINTS_SOURCE}"
    facts.setdefault("cpu_ms", Fact(cost, source))


def _add_storage(facts: dict[str, Fact]) -> None:
    storage = facts.get("storage", Fact("unlimited", ""))
    if isinstance(storage.value, str):
        if storage.value not in STORAGES:
            raise ValueError(
                "storage must be a rate such as 10GB/s, or one of "
                f"{', '.join(STORAGES)}; got {storage.value!r}."
                f"{errors.did_you_mean(str(storage.value), STORAGES)}"
            )
        kind = STORAGES[storage.value]
        source = kind.source
        if storage.source:
            source = f"{storage.source} {storage.value}: {kind.source}"
        facts["storage"] = Fact(kind.rate, source)
        facts.setdefault("shared_storage", Fact(float(kind.is_shared), source))
        facts.setdefault("requests", Fact(kind.requests, source))
    rate = facts["storage"]
    facts.setdefault("shared_storage", Fact(1.0, "assumption"))
    facts.setdefault("requests", Fact(math.inf, "no limit was given"))
    facts.setdefault("request", Fact(float(1 << 20), "read buffer of a pipeline"))
    for name in ("storage_cache", "price_per_1000_requests", "price_per_gb"):
        facts.setdefault(name, Fact(0.0, "none was given"))
    read = min(float(rate.value), facts_.figure(facts, "link"))
    same = Fact(
        read, f"as fast as one host reads: {rate.source}, {facts['link'].source}"
    )
    facts.setdefault("write", same if math.isfinite(float(rate.value)) else _WRITE)


def _add_memory(facts: dict[str, Fact]) -> None:
    ram = facts_.figure(facts, "ram")
    facts.setdefault(
        "page_cache",
        Fact(_PAGE_CACHE_SHARE * ram, f"{_PAGE_CACHE_SHARE:.0%} of the memory"),
    )
    # Without a value of `cached` there is no scenario, and no number of hosts.
    scenario = facts_.scenario(facts | {"cached": Fact(0.0, "")})
    hits = run_costs.page_cache_hits(
        scenario.cache_bytes, scenario.num_bytes, scenario.num_hosts
    )
    facts.setdefault(
        "cached", Fact(hits, "least recently used, a new permutation an epoch")
    )
