"""Figures of several ranks or hosts as one figure, which may be unknown.

In: values, None where a rank or a host does not know its own. Out: their sum, mean or
largest; None if a value is missing, so that no sum is of a part only.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

Figure = TypeVar("Figure", int, float)


def joined(
    join: Callable[[list[Figure]], Figure], values: Sequence[Figure | None]
) -> Figure | None:
    """Returns `join` of the values; None without a value, or if one is unknown."""
    numbers = [value for value in values if value is not None]
    return join(numbers) if numbers and len(numbers) == len(values) else None
