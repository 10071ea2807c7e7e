"""Figures of several ranks or hosts, joined to a figure of all.

In: values, None where a rank or a host knows no value. Out: the sum, mean or
largest; None if a value is missing, because a sum of a part is no sum.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

Figure = TypeVar("Figure", int, float)


def joined(
    join: Callable[[list[Figure]], Figure], values: Sequence[Figure | None]
) -> Figure | None:
    """Returns `join` of the values; None without a value, or if a value is unknown."""
    numbers = [value for value in values if value is not None]
    return join(numbers) if numbers and len(numbers) == len(values) else None


def size_text(num_bytes: float) -> str:
    """Returns a size with its unit, such as 1.5 GB, for sentences."""
    units = ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)
    unit, scale = next((u for u in units if num_bytes >= u[1]), units[-1])
    return f"{num_bytes / scale:,.4g} {unit}"


def share_text(share: float | None) -> str:
    """Returns a share as a percentage, for sentences."""
    return "an unknown part" if share is None else f"{share:.1%}"
