"""The chosen records of one split, and the checks of the columns that name them.

In: columns of shard numbers, record numbers and weights, as DuckDB returns them. Out: a
`Chosen`, sorted and checked, and the numbers of its records in the split. Imports no
TensorFlow.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tfpipe import errors
from tfpipe.shards.records import Ints

# Columns of the file of a subset, one row a record; `weight` may be absent.
COLUMNS: Mapping[str, str] = {
    "split": "VARCHAR",
    "shard": "INTEGER",  # number of the shard in its split
    "record": "INTEGER",  # number of the record in its shard
    "weight": "DOUBLE",  # for sampling, >= 0
}

REMEDY = "Make the subset again with python -m converters.query DIR WHERE --save=FILE."


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Chosen:
    """The chosen records of one split, in the order of the catalog.

    Args:
        shard: int64 [num_chosen], number of each record's shard in the split.
        record: int64 [num_chosen], number of each record in its shard.
        weight: float64 [num_chosen], weight of each record for sampling, >= 0; None
            without weights.

    Raises:
        BadSubsetError: If the records are not in order, a record comes twice, a number
            is negative, or a weight is negative or not finite.
    """

    shard: Ints
    record: Ints
    weight: npt.NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        lengths = {len(self.shard), len(self.record)}
        lengths |= set() if self.weight is None else {len(self.weight)}
        if len(lengths) != 1:
            raise errors.BadSubsetError("The columns of a subset differ in length.")
        steps = np.diff(self.shard), np.diff(self.record)
        is_later = (steps[0] > 0) | ((steps[0] == 0) & (steps[1] > 0))
        if not is_later.all():
            row = int(np.flatnonzero(~is_later)[0]) + 1
            raise errors.BadSubsetError(
                "The records of a subset must rise by shard and record, each once, got "
                f"record {self.record[row]} of shard {self.shard[row]} after record "
                f"{self.record[row - 1]} of shard {self.shard[row - 1]}. {REMEDY}"
            )
        for name, least in (("shard", self.shard), ("record", self.record)):
            if len(least) and least.min() < 0:
                raise errors.BadSubsetError(
                    f"Column {name} of a subset must be >= 0, got {least.min()}."
                )
        _require_weights(self.weight)

    def __len__(self) -> int:
        return len(self.shard)

    @functools.cached_property
    def digest(self) -> str:
        """A digest of the records, not of their weights; 32 hexadecimal digits."""
        digest = xxhash.xxh3_128(self.shard.astype("<i8").tobytes())
        digest.update(self.record.astype("<i8").tobytes())
        return digest.hexdigest()

    def numbers(self, shard_sizes: Ints) -> Ints:
        """Returns int64 [num_chosen], rising: the records' numbers in the split.

        Args:
            shard_sizes: int64 [num_shards], records in each shard of the split.

        Raises:
            BadSubsetError: If there is no such shard or record.
        """
        wrong = self.shard >= len(shard_sizes)
        wrong[~wrong] = self.record[~wrong] >= shard_sizes[self.shard[~wrong]]
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise errors.BadSubsetError(
                "A subset must name records that exist, got record "
                f"{self.record[row]} of shard {self.shard[row]}, "
                f"the first of {int(wrong.sum())}. {REMEDY}"
            )
        starts = np.cumsum(shard_sizes) - shard_sizes
        numbers: Ints = starts[self.shard] + self.record
        return numbers


def column_of(rows: Mapping[str, npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    """Returns a column, which must have no empty value.

    Raises:
        BadSubsetError: If it has one.
    """
    if np.any(getattr(rows[name], "mask", False)):
        raise errors.BadSubsetError(f"column {name} has an empty value.")
    return np.asarray(rows[name])


def whole_numbers(rows: Mapping[str, npt.NDArray[Any]], name: str) -> Ints:
    """Returns a column as int64; see `column_of`.

    Raises:
        BadSubsetError: If it holds anything but whole numbers.
    """
    column = column_of(rows, name)
    if column.dtype.kind not in "iu":
        raise errors.BadSubsetError(
            f"column {name} must hold whole numbers, got {column.dtype}."
        )
    return column.astype(np.int64)


def numbers_of(
    rows: Mapping[str, npt.NDArray[Any]], name: str
) -> npt.NDArray[np.float64]:
    """Returns a column as float64; see `column_of`.

    Raises:
        BadSubsetError: If it holds anything but numbers.
    """
    column = column_of(rows, name)
    if column.dtype.kind not in "iuf":
        raise errors.BadSubsetError(
            f"column {name} must hold numbers, got {column.dtype}."
        )
    return column.astype(np.float64)


def _require_weights(weight: npt.NDArray[np.float64] | None) -> None:
    if weight is None:
        return
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(wrong):
        raise errors.BadSubsetError(
            "Column weight of a subset must hold finite numbers >= 0, got "
            f"{weight[wrong[0]]}, the first of {len(wrong)}."
        )
