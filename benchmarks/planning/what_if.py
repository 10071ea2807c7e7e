"""A change of some facts, and of the figures that depend on the changed facts.

In: a text such as "cores=128,storage=10GB/s". Out: facts, without the figures that a
change makes wrong.
"""

from collections.abc import Mapping

from benchmarks.planning import facts, hardware
from benchmarks.planning.facts import Fact, Facts
from tfpipe import errors

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


def parse(text: str, before: Facts) -> dict[str, Fact]:
    """Returns the facts that a text sets.

    Args:
        before: All facts before the change, for the size of a host.
    """
    changes: dict[str, Fact] = {}
    for part in text.split(","):
        name, separator, value = (word.strip() for word in part.partition("="))
        if not separator or not value:
            raise ValueError(
                f"{FLAG} must be settings such as cores=128,storage=10GB/s; got "
                f"{part.strip()!r}."
            )
        source = f"{FLAG} {name}={value}"
        if name == _HOSTS:
            hosts = facts.parse("num_accelerators", value, source)
            per_host = changes.get("accelerators_per_host")
            per_host = per_host or before["accelerators_per_host"]
            total = float(hosts.value) * float(per_host.value)
            name, fact = "num_accelerators", Fact(total, source, "flag")
        else:
            name = _OTHER_NAMES.get(name, name)
            if name not in facts.KINDS:
                names = ", ".join([_HOSTS, *facts.KINDS])
                raise ValueError(
                    f"{FLAG} may set {names}; got {name!r}."
                    f"{errors.did_you_mean(name, facts.KINDS)}"
                )
            fact = facts.parse(name, value, source)
        if name in changes:
            raise ValueError(f"{FLAG} sets {name} twice: {text!r}.")
        changes[name] = fact
    return changes


def apply(before: Facts, changes: Facts) -> dict[str, Fact]:
    """Returns facts after a change.

    Args:
        before: Facts of flags and results, without facts of tables.
    """
    stale = {name for changed in changes for name in _DEPENDENT.get(changed, ())}
    kept = {
        name: fact
        for name, fact in before.items()
        if name not in stale or (fact.origin == "flag" and name != _NEVER_KEPT)
    }
    if "cpu_ms" in kept and (ratio := _cost_ratio(before, changes)) != 1:
        cost = kept["cpu_ms"]
        kept["cpu_ms"] = Fact(
            float(cost.value) * ratio,
            f"{cost.source}, times {ratio:.2f} for other paths of the pipeline",
            cost.origin,
        )
    return {**kept, **changes}


def _cost_ratio(before: Facts, changes: Facts) -> float:
    return hardware.paths_ratio({**before, **changes}) / hardware.paths_ratio(before)
