"""Facts: the figures that an answer rests on, each with its source.

In: texts such as "10GB/s". Out: `Fact`s by name, and the `Scenario` that they make.
"""

import dataclasses
import math
import re
from collections.abc import Mapping

from benchmarks.planning.ceilings import Scenario

# The names are also those of the flags, and of what --what_if sets. The kinds: "count",
# "number", "bytes", "rate" (bytes a second), "milliseconds", "share" (0 to 1), "yes"
# (1 or 0) and "text".
KINDS = {
    "model": "text",
    "accelerator": "text",
    "batch_size": "count",
    "image_size": "count",
    "images_per_second": "number",
    "num_accelerators": "count",
    "accelerators_per_host": "count",
    "cores": "number",
    "ram": "bytes",
    "cpu_ms": "milliseconds",
    "num_images": "count",
    "whole_batches": "yes",
    "entry_points": "yes",
    "record": "bytes",
    "storage": "rate",
    "shared_storage": "yes",
    "requests": "number",
    "request": "bytes",
    "price_per_1000_requests": "number",
    "price_per_gb": "number",
    "link": "rate",
    "page_cache": "bytes",
    "cached": "share",
    "storage_cache": "bytes",
    "local_disk": "rate",
    "local_disk_room": "bytes",
    "write": "rate",
    "exchange_ms": "milliseconds",
}
_MAY_BE_ZERO = {"cached", "exchange_ms", "shared_storage", "storage_cache", "ram"}
_MAY_BE_ZERO |= {"page_cache", "local_disk_room", "whole_batches"}
_MAY_BE_ZERO |= {"entry_points", "price_per_1000_requests", "price_per_gb"}
_MOST_ACCELERATORS = 1_000_000
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_NUMBER = re.compile(r"([0-9][0-9_.]*(?:e[+-]?[0-9]+)?)\s*([a-z/%]*)", re.IGNORECASE)
_UNITS = {
    "bytes": (r"([kKMmGgTtPp]?)B", "such as 512GB or 115kB"),
    "rate": (
        r"([kKMmGgTtPp]?)B/s",
        "such as 10GB/s (B is a byte: 100Gb/s are 12.5GB/s)",
    ),
    "milliseconds": (r"()(?:ms)?", "milliseconds, such as 1.5"),
    "number": (r"([kKMGT]?)", "a number"),
    "count": (r"()", "a whole number"),
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
        text: The text; prefixes are those of the SI, so 1 GB is 1e9 bytes.
    """
    kind = KINDS[name]
    if kind == "text" or (name == "storage" and text.isidentifier()):
        return Fact(text, source, "flag")
    value = _value(kind, text.strip())
    problem = None
    if value is None:
        how = {"yes": "yes or no", "share": "a share of 0 to 1, or per cent"}
        problem = how.get(kind) or _UNITS[kind][1]
    elif kind == "share" and value > 1:
        problem = "at most 1"
    elif not value and name not in _MAY_BE_ZERO:
        problem = "above 0"
    elif kind == "count" and value != int(value):
        problem = "a whole number"
    if problem or value is None:
        raise ValueError(f"{source}: {name} must be {problem}, got {text!r}.")
    return Fact(value, source, "flag")


def _value(kind: str, text: str) -> float | None:
    if kind == "yes":
        return _WORDS.get(text.lower())
    if kind == "rate" and text.lower() == "unlimited":
        return math.inf
    if not (match := _NUMBER.fullmatch(text)):
        return None
    digits, unit = match[1], match[2]
    if kind == "share":
        scale = {"": 1.0, "%": 0.01}.get(unit)
    else:
        matched = re.fullmatch(_UNITS[kind][0], unit)
        scale = _PREFIXES[matched[1].lower()] if matched else None
    try:
        value = float(digits) * scale if scale is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def figure(facts: Facts, name: str) -> float:
    """Returns the value of a fact that is a number."""
    return float(facts[name].value)


def text(facts: Facts, name: str) -> str:
    """Returns the value of a fact that is a name."""
    return str(facts[name].value)


def scenario(facts: Facts, *, num_accelerators: int | None = None) -> Scenario:
    """Returns the scenario that facts make.

    Args:
        num_accelerators: Accelerators in place of those of the facts.
    """
    total = num_accelerators or int(figure(facts, "num_accelerators"))
    if total > _MOST_ACCELERATORS:
        raise ValueError(
            f"num_accelerators must be at most {_MOST_ACCELERATORS:,}, got {total:,}."
        )
    per_host = min(total, int(figure(facts, "accelerators_per_host")))
    if total % per_host:
        raise ValueError(
            f"num_accelerators={total} must fill hosts of "
            f"accelerators_per_host={per_host}: give a multiple of {per_host}, or "
            "other hosts."
        )
    return Scenario(
        num_images=int(figure(facts, "num_images")),
        record_bytes=figure(facts, "record"),
        images_per_second=figure(facts, "images_per_second"),
        cpu_seconds=figure(facts, "cpu_ms") / 1e3,
        batch_size=int(figure(facts, "batch_size")),
        num_hosts=total // per_host,
        accelerators_per_host=per_host,
        cores_per_host=figure(facts, "cores"),
        cache_bytes=figure(facts, "page_cache"),
        link_bytes_per_second=figure(facts, "link"),
        storage_bytes_per_second=figure(facts, "storage"),
        is_storage_shared=bool(figure(facts, "shared_storage")),
        requests_per_second=figure(facts, "requests"),
        request_bytes=figure(facts, "request"),
        cached_fraction=figure(facts, "cached"),
        exchange_seconds=figure(facts, "exchange_ms") / 1e3 if total > 1 else 0.0,
    )


def as_json(facts: Facts) -> dict[str, dict[str, object]]:
    """Returns value and source by name; null stands for a rate without a limit."""
    return {
        name: {
            "value": None if fact.value == math.inf else fact.value,
            "source": fact.source,
        }
        for name, fact in facts.items()
    }
