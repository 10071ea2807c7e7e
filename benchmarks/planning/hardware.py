"""Built-in tables: hosts, storages, and the CPU time of an image, with their sources.

In: facts of flags and results, and the text of a change, such as
"cores=128,storage=10GB/s". Out: the same facts without the figures that the change
makes wrong, and facts of the tables for all others. The accelerators are in
benchmarks/planning/published.py.
"""

import math
from collections.abc import Collection, Mapping

from benchmarks.models import accelerators as accelerators_, catalog
from benchmarks.models.accelerators import Accelerators
from benchmarks.planning import ceilings, facts as facts_, published
from benchmarks.planning.facts import Fact, Facts
from tfpipe import errors

# The hosts of accelerators, the storages by name, and the facts of any run.
_HOSTS, STORAGES = (
    {name: facts_.from_json(table) for name, table in published.DATA[key].items()}
    for key in ("hosts", "storages")
)
_DEFAULTS = facts_.from_json(published.DATA["defaults"])
_PAGE_CACHE_SHARE = 0.8

# CPU time of an image with the native op, a line through two points: 300 photographs
# of ILSVRC-2012 at 224 pixels, and images of 1 MB at 299 pixels.
_CPU_SMALL = 103_564.0, 1.436
_CPU_LARGE = 1e6, 9.836
WHOLE_BATCHES = 1.198 / 1.436  # of that CPU time, at 104 kB
# CPU time with entry points over that without them; of 1.3 MB it is 0.76.
ENTRY_POINTS = 0.490 / 0.562
ENTRY_POINTS_SOURCE = "2026-11-24-decode.json"
CPU_SOURCE = "2026-11-22-decode-native.json, -large.json: native op on an AMD EPYC"


def cpu_milliseconds(record_bytes: float) -> float:
    """Returns the CPU time that reading, decoding and cropping an image takes."""
    (x0, y0), (x1, y1) = _CPU_SMALL, _CPU_LARGE
    slope = (y1 - y0) / (x1 - x0)
    return y0 + slope * (record_bytes - x0)


def paths_ratio(facts: Facts) -> float:
    """Returns the factor of the faster paths on the CPU time of an image.

    Args:
        facts: Facts; a path without a fact has its default.
    """
    ratios = {"whole_batches": WHOLE_BATCHES, "entry_points": ENTRY_POINTS}
    return math.prod(
        ratio for path, ratio in ratios.items() if {**_DEFAULTS, **facts}[path].value
    )


def complete(start: Facts, accelerators: Accelerators, mode: str) -> dict[str, Fact]:
    """Returns each fact of `facts.KINDS`; the tables fill the gaps."""
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
    return {name: facts[name] for name in facts_.KINDS}


def _known(what: str, name: str, table: Collection[str], also: str = "") -> str:
    """Returns a name of a table; ValueError for another name."""
    if name not in table:
        raise ValueError(
            f"{what} must be {also}one of {', '.join(table)}{';' if also else ','} got "
            f"{name!r}.{errors.did_you_mean(name, table)}"
        )
    return name


def _with_storage(start: Facts) -> dict[str, Fact]:
    """Returns facts with the figures of the storage of the name that they hold."""
    storage = start.get("storage", Fact("unlimited", ""))
    if not isinstance(name := storage.value, str):
        return {**start}
    kind = STORAGES[_known("storage", name, STORAGES, "a rate such as 10GB/s, or ")]
    how = f"{storage.source} {name}: " if storage.source else ""
    named = {key: Fact(fact.value, how + fact.source) for key, fact in kind.items()}
    return {**named, **start, "storage": named["storage"]}


def _add_model(
    facts: dict[str, Fact], accelerators: Accelerators, accelerator: str, mode: str
) -> None:
    name = _known("model", str(facts["model"].value), sorted(catalog.MODELS))
    model, default = catalog.MODELS[name], f"default of {name}"
    facts.setdefault("batch_size", Fact(float(model.batch_size), default))
    facts.setdefault("image_size", Fact(float(model.image_size), default))
    if "images_per_second" not in facts:
        flags = {"flag": "--accelerator", "remedy": "--images_per_second"}
        figure = accelerators_.find(accelerators, accelerator, name, mode, **flags)
        how = "" if figure.ratio is None else "scaled; "
        facts["images_per_second"] = Fact(figure.images_per_second, how + figure.source)


def _add_computed(facts: dict[str, Fact], start: Facts) -> None:
    """Adds the figures that other figures give."""
    cost = cpu_milliseconds(facts_.figure(facts, "record")) * paths_ratio(facts)
    how = CPU_SOURCE
    if facts["whole_batches"].value:
        how += ", whole batches"
    if facts["entry_points"].value:
        how += f", entry points: {ENTRY_POINTS_SOURCE}"
    facts.setdefault("cpu_ms", Fact(cost, how))
    storage, link = facts["storage"], facts["link"]
    if "write" not in start and math.isfinite(float(storage.value)):
        how = f"as fast as one host reads: {storage.source}, {link.source}"
        facts["write"] = Fact(min(float(storage.value), float(link.value)), how)
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
        if name == "hosts":
            hosts = facts_.parse("num_accelerators", value, source)
            per_host = facts_.figure({**before, **changes}, "accelerators_per_host")
            name, fact = (
                "num_accelerators",
                Fact(float(hosts.value) * per_host, source, "flag"),
            )
        else:
            name = _OTHER_NAMES.get(name, name)
            if name not in facts_.KINDS:
                names = ", ".join(["hosts", *facts_.KINDS])
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
