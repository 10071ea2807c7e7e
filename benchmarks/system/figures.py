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


def share_text(share: float | None) -> str:
    """Returns a share as a percentage, for sentences."""
    return "an unknown part" if share is None else f"{share:.1%}"
