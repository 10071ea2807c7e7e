"""Facts: the figures behind an answer, and their sources.

In: texts such as "10GB/s". Out: `Fact`s by name, and their `Scenario`.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from benchmarks.system.figures import size_text

_MOST_ACCELERATORS = 1_000_000


def _fact(kind: str, default: Any = dataclasses.MISSING) -> Any:
    return dataclasses.field(default=default, metadata={"kind": kind})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scenario:
    """Equal hosts that train on a data set from a storage: the values of all facts.

    --what_if and the flags of benchmarks.advise have the same names, and the flags
    explain the values. The kinds: "count", "number", "bytes", "rate" (bytes a
    second), "milliseconds", "share" (0 to 1), "yes" and "text". A fact whose default is
    0 may be 0.
    """

    model: str = _fact("text", "")
    accelerator: str = _fact("text", "")
    batch_size: int = _fact("count")
    image_size: int = _fact("count", 224)
    images_per_second: float = _fact("number")
    num_accelerators: int = _fact("count")
    accelerators_per_host: int = _fact("count")
    cores: float = _fact("number")
    ram: float = _fact("bytes", 0)
    cpu_ms: float = _fact("milliseconds")
    num_images: int = _fact("count")
    whole_batches: bool = _fact("yes", True)
    entry_points: bool = _fact("yes", False)
    record: float = _fact("bytes")
    storage: float = _fact("rate", math.inf)
    shared_storage: bool = _fact("yes", True)
    requests: float = _fact("number", math.inf)
    request: float = _fact("bytes", 1e6)
    price_per_1000_requests: float = _fact("number", 0)
    price_per_gb: float = _fact("number", 0)
    link: float = _fact("rate", math.inf)
    page_cache: float = _fact("bytes", 0)
    cached: float = _fact("share", 0)
    storage_cache: float = _fact("bytes", 0)
    local_disk: float = _fact("rate", math.inf)
    local_disk_room: float = _fact("bytes", 0)
    write: float = _fact("rate", math.inf)
    exchange_ms: float = _fact("milliseconds", 0)

    def __post_init__(self) -> None:
        for name in KINDS:
            if problem := _problem(name, value := getattr(self, name)):
                raise ValueError(f"{name} must be {problem}, got {value}.")
        total, per_host = self.num_accelerators, self.accelerators_per_host
        if total > _MOST_ACCELERATORS:
            raise ValueError(
                f"num_accelerators must be at most {_MOST_ACCELERATORS:,}, got "
                f"{total:,}."
            )
        if total % per_host:
            raise ValueError(
                f"num_accelerators={total} must fill hosts of accelerators_per_host="
                f"{per_host}: give a multiple of {per_host}, or other hosts."
            )

    @property
    def num_bytes(self) -> float:
        return self.num_images * self.record

    @property
    def num_hosts(self) -> int:
        return self.num_accelerators // self.accelerators_per_host

    @property
    def num_cores(self) -> float:
        return self.num_hosts * self.cores

    @property
    def num_storages(self) -> int:
        return 1 if self.shared_storage else self.num_hosts

    @property
    def cpu_seconds(self) -> float:
        return self.cpu_ms / 1e3


KINDS = {
    field.name: str(field.metadata["kind"]) for field in dataclasses.fields(Scenario)
}
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Scenario)}
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
    """A figure or a name.

    Attributes:
        value: In bytes, bytes a second or milliseconds; a text for names.
        origin: "flag", "result" or "table".
    """

    value: float | str
    source: str
    origin: str = "table"


Facts = Mapping[str, Fact]


def parse(name: str, text: str, source: str) -> Fact:
    """Returns the fact of a text with a unit, as a flag gives it.

    Args:
        text: The text; prefixes are of the SI, so 1 GB is 1e9 bytes.
    """
    kind = KINDS[name]
    if kind == "text" or (name == "storage" and text.isidentifier()):
        return Fact(text, source, "flag")
    value = _value(kind, text.strip())
    problem = _FORMS[kind][1] if value is None else _problem(name, value)
    if value is None or problem:
        raise ValueError(f"{source}: {name} must be {problem}, got {text!r}.")
    return Fact(value, source, "flag")


def _problem(name: str, value: Any) -> str:
    """Returns what the value of a fact must be and is not; or ""."""
    kind = KINDS[name]
    may_be_0 = kind == "yes" or _DEFAULTS[name] == 0
    if kind != "text" and not (value > 0 or (value == 0 and may_be_0)):
        return "above 0"
    if kind == "share" and value > 1:
        return "at most 1"
    if kind == "milliseconds" and math.isinf(value):
        return "finite"
    return "a whole number" if kind == "count" and value != int(value) else ""


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


def scenario(facts: Facts) -> Scenario:
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
