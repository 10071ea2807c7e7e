"""Number of copies that a test needs, with the arithmetic behind it.

In: sizes as people write them (22TB, 512GB, 1.5e12), the bytes of a data set, and the
hosts of the readers. Out: a number of copies, and lines with the reason.

MLPerf Storage wants a data set of at least 5 times the memory of all hosts. Dell's
tests wanted more than the larger of the hosts' memory and the storage's cache. A
smaller data set is read from a cache, and the test does not measure the storage.
"""

import dataclasses
import math
import re

from tfpipe.errors import count_of

# Ratio of data to the memory of all hosts in the rules of MLPerf Storage.
RAM_FACTOR = 5.0

_UNITS = {
    **{"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15},
    **{"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50},
}
_SIZE = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([kmgtp]?i?)b?", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """Returns the bytes in a text: 22TB, 512 GB, 1.5e12, 64GiB.

    Units are decimal (1 GB is 10 ** 9 bytes), or binary with an i (1 GiB is 2 ** 30).

    Args:
        text: The text.

    Raises:
        ValueError: If the text is no size above 0.
    """
    found = _SIZE.fullmatch(text.strip())
    unit = found[2].lower() if found else ""
    try:
        value = float(found[1]) if found else math.nan
        num_bytes = round(value * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        num_bytes = 0
    if not 0 < num_bytes < 10**21:
        raise ValueError(
            "must be a size above 0 and below 1000 EB, such as 22TB, 512GB or 1.5e12, "
            f"got {text!r}."
        )
    return num_bytes


def shown(num_bytes: float) -> str:
    """Returns bytes as people write them, with decimal units: 22.2 TB."""
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if num_bytes >= size * 0.9995:
            return f"{num_bytes / size:,.4g} {unit}"
    return f"{num_bytes / 1e3:,.4g} kB" if num_bytes >= 1000 else f"{num_bytes:g} bytes"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """The wanted size, in three ways.

    Attributes:
        copies: Number of copies.
        target_bytes: Bytes of all copies together.
        ram_bytes: Memory of a host of the readers.
        num_hosts: Number of these hosts.
        ram_factor: Ratio of the data that training reads to the memory of all hosts.
        storage_cache_bytes: Cache of the storage.

    Raises:
        ValueError: If not exactly one of `copies`, `target_bytes` and `ram_bytes` is
            given, or a number is out of range.
    """

    copies: int | None = None
    target_bytes: int | None = None
    ram_bytes: int | None = None
    num_hosts: int = 1
    ram_factor: float = RAM_FACTOR
    storage_cache_bytes: int = 0

    def __post_init__(self) -> None:
        ways = (self.copies, self.target_bytes, self.ram_bytes)
        if sum(way is not None for way in ways) != 1:
            raise ValueError(
                "Exactly one of --copies, --target_bytes and --for_ram must say how "
                f"much to make, got {sum(way is not None for way in ways)} of them."
            )
        for name, value, least in (
            ("--copies", self.copies, 1),
            ("--num_hosts", self.num_hosts, 1),
        ):
            if value is not None and value < least:
                raise ValueError(f"{name} must be >= {least}, got {value}.")
        if not 1 <= self.ram_factor < math.inf:
            raise ValueError(f"--ram_factor must be >= 1, got {self.ram_factor}.")
        alone = self.num_hosts != 1 or self.storage_cache_bytes
        if self.ram_bytes is None and alone:
            raise ValueError(
                "--num_hosts and --storage_cache need --for_ram, the memory of a host."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizing:
    """Number of copies, and why.

    Attributes:
        copies: Number of copies, >= 1.
        needed_bytes: Bytes by the rule; None if the copies were given.
        lines: The arithmetic, for people.
    """

    copies: int
    needed_bytes: int | None
    lines: tuple[str, ...]


def size(wanted: Wanted, *, all_bytes: float, read_bytes: float, split: str) -> Sizing:
    """Returns the number of copies for a test.

    Args:
        wanted: The wanted size.
        all_bytes: Bytes of a copy, with all its splits.
        read_bytes: Bytes of a copy for a training run.
        split: Name of the split for the run.
    """
    if wanted.copies is not None:
        return Sizing(copies=wanted.copies, needed_bytes=None, lines=())
    if wanted.target_bytes is not None:
        return _divided(wanted.target_bytes, all_bytes, "one copy", ())
    needed, lines = _for_ram(wanted)
    return _divided(needed, read_bytes, f"the {split} split of one copy", lines)


def _for_ram(wanted: Wanted) -> tuple[int, tuple[str, ...]]:
    """Returns the bytes that defeat the caches, and the rules."""
    assert wanted.ram_bytes is not None
    ram = wanted.num_hosts * wanted.ram_bytes
    needed = math.ceil(ram * wanted.ram_factor)
    cache = wanted.storage_cache_bytes
    product = f"{count_of(wanted.num_hosts, 'host')} x {shown(wanted.ram_bytes)} RAM"
    lines = (
        f"rule of MLPerf Storage: {wanted.ram_factor:g} x {product} = {shown(needed)}",
        f"rule of Dell's tests: more than the larger of {product} = {shown(ram)} and "
        f"the storage's cache, {shown(cache) if cache else 'not given'}",
    )
    # More than the cache, even by little.
    needed = max(needed, cache + 1 if cache else 0)
    return needed, (*lines, f"the larger of the two rules: {shown(needed)}")


def _divided(needed: int, one: float, name: str, lines: tuple[str, ...]) -> Sizing:
    copies = max(math.ceil(needed / one), 1)
    line = f"{shown(needed)} / {shown(one)} for {name} = "
    line += f"{count_of(copies, 'copy')}, rounded up"
    return Sizing(copies=copies, needed_bytes=needed, lines=(*lines, line))
