"""A change of some facts: what is set, and what no longer holds because of it.

In: a text such as "cores=128,storage=10GB/s". Out: facts, without the figures that
depend on a changed one.
"""

from collections.abc import Mapping

from benchmarks.advisor import facts, hardware
from benchmarks.advisor.facts import Fact, Facts

FLAG = "--what_if"
_OTHER_NAMES = {"accelerators": "num_accelerators", "network": "link"}
_HOSTS = "hosts"

# Facts that a change of another one makes wrong, unless a flag gave them.
_HANG_ON: Mapping[str, tuple[str, ...]] = {
    "model": ("images_per_second", "batch_size", "image_size"),
    "accelerator": ("images_per_second",),
    "record": ("cpu_ms",),
    "storage": ("requests", "shared_storage", "write"),
    "ram": ("page_cache",),
}
_NEVER_KEPT = "images_per_second"  # of one model on one accelerator, also from a flag


def parse(text: str, known: Facts) -> dict[str, Fact]:
    """Returns the facts that a text sets.

    Args:
        text: Settings with commas between them.
        known: All facts before the change, for the size of a host.

    Raises:
        ValueError: If a setting has no value, an unknown or repeated name, or a value
            that does not fit.
    """
    found: dict[str, Fact] = {}
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
            per_host = found.get("accelerators_per_host")
            per_host = per_host or known["accelerators_per_host"]
            number = float(hosts.value) * float(per_host.value)
            name, fact = "num_accelerators", Fact(number, source, "flag")
        else:
            name = _OTHER_NAMES.get(name, name)
            if name not in facts.KEYS:
                names = ", ".join([_HOSTS, *facts.KEYS])
                raise ValueError(f"{FLAG} may set {names}; got {name!r}.")
            fact = facts.parse(name, value, source)
        if name in found:
            raise ValueError(f"{FLAG} sets {name} twice: {text!r}.")
        found[name] = fact
    return found


def apply(known: Facts, changes: Facts) -> dict[str, Fact]:
    """Returns known facts with some of them changed.

    Args:
        known: Facts of flags and results, without those of tables.
        changes: The facts to set.
    """
    stale = {name for changed in changes for name in _HANG_ON.get(changed, ())}
    kept = {
        name: fact
        for name, fact in known.items()
        if name not in stale or (fact.origin == "flag" and name != _NEVER_KEPT)
    }
    if "cpu_ms" in kept and (ratio := _cost_ratio(known, changes)) != 1:
        cost = kept["cpu_ms"]
        kept["cpu_ms"] = Fact(
            float(cost.value) * ratio,
            f"{cost.source}, times {ratio:.2f} for other paths of the pipeline",
            cost.origin,
        )
    return {**kept, **changes}


def _cost_ratio(known: Facts, changes: Facts) -> float:
    """Returns the factor by which other paths of the pipeline multiply the CPU time."""
    was, now = ({**hardware.PATHS, **each} for each in (known, {**known, **changes}))
    return hardware.paths_ratio(now) / hardware.paths_ratio(was)
