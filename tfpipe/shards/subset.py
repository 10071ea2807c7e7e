"""Subsets: a choice of records of a data set, as a small Parquet file.

In: the records that a query chose, or the path of a subset. Out: a `Subset`, checked,
or its file. The file names records by split, shard and record number, as the catalog
does, and holds a digest of the index, so that a subset of other data is refused.
Imports no TensorFlow.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xxhash

from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.shards import generations, index, sql
from tfpipe.shards.generations import identity
from tfpipe.shards.index import Index
from tfpipe.shards.records import Ints
from tfpipe.shards.sql import quoted

if TYPE_CHECKING:
    import duckdb

FORMAT_VERSION = "1"

# Keys of the Parquet file's own metadata.
FORMAT_KEY, INDEX_KEY, QUERY_KEY = "tfpipe.format", "tfpipe.index", "tfpipe.query"


# Columns of the file of a subset, with a row for a record; `weight` may be absent.
COLUMNS: Mapping[str, str] = {
    "split": "VARCHAR",
    "shard": "INTEGER",  # number of the shard in its split
    "record": "INTEGER",  # number of the record in its shard
    "weight": "DOUBLE",  # for sampling, >= 0
}

REMEDY = "Make the subset again with python -m converters.query DIR WHERE --save=FILE."


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Chosen:
    """The chosen records of a split, in the order of the catalog.

    Args:
        shard: int64 [num_chosen], number of the record's shard in the split.
        record: int64 [num_chosen], number of the record in its shard.
        weight: float64 [num_chosen], weight of the record for sampling, >= 0; None
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
        weight = np.zeros(0) if self.weight is None else self.weight
        wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
        if len(wrong):
            raise errors.BadSubsetError(
                "Column weight of a subset must hold finite numbers >= 0, got "
                f"{weight[wrong[0]]}, the first of {len(wrong)}."
            )

    def __len__(self) -> int:
        return len(self.shard)

    @classmethod
    def of_all(cls, shard_sizes: Ints) -> "Chosen":
        """Returns all records of a split with int64 [num_shards] records a shard."""
        starts = np.cumsum(shard_sizes) - shard_sizes
        shard = np.repeat(np.arange(len(shard_sizes)), shard_sizes)
        return cls(shard=shard, record=np.arange(len(shard)) - starts[shard])

    def where(self, is_kept: npt.NDArray[np.bool_], shard_sizes: Ints) -> "Chosen":
        """Returns those of the records that bool [num_records] of the split keeps."""
        rows = is_kept[self.numbers(shard_sizes)]
        weight = None if self.weight is None else self.weight[rows]
        return Chosen(shard=self.shard[rows], record=self.record[rows], weight=weight)

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


# By the type of a column: NumPy's kinds of its values, what they are, and their dtype.
_VALUES = {
    "VARCHAR": ("OU", "texts", object),
    "INTEGER": ("iu", "whole numbers", np.int64),
    "DOUBLE": ("iuf", "numbers", np.float64),
}


def _column(values: npt.NDArray[Any], name: str, kind: str) -> npt.NDArray[Any]:
    """Returns a column of a type of `COLUMNS` as object, int64 or float64.

    Raises:
        BadSubsetError: If the column has an empty value, or values of another kind.
    """
    kinds, what, dtype = _VALUES[kind]
    if np.any(getattr(values, "mask", False)):
        raise errors.BadSubsetError(f"column {name} has an empty value.")
    if values.dtype.kind not in kinds:
        raise errors.BadSubsetError(
            f"column {name} must hold {what}, got {values.dtype}."
        )
    return np.asarray(values).astype(dtype)


def _columns(rows: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Returns the columns of a subset among those of some rows."""
    return {k: _column(rows[k], k, kind) for k, kind in COLUMNS.items() if k in rows}


def _sorted(columns: Mapping[str, npt.NDArray[Any]]) -> Chosen:
    """Returns the records in columns of one split, without the column of the split."""
    turn = np.lexsort((columns["record"], columns["shard"]))
    return Chosen(**{name: column[turn] for name, column in columns.items()})


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Subset:
    """A choice of records of a data set.

    Example:
        >>> index = tfpipe.TFRecordSource("DIR", "train").index
        >>> subset = tfpipe.Subset.of_records(index, "train", [0, 3, 7])
        >>> source = tfpipe.TFRecordSource("DIR", "train", subset=subset)
        >>> source.steps_per_epoch
        3

    Args:
        splits: The chosen records by split.
        index_digest: `identity` of the data set's index.
        query: The WHERE clause of the choice, for people; "" without a clause.

    Raises:
        BadSubsetError: If no record is chosen.
    """

    splits: Mapping[str, Chosen]
    index_digest: str
    query: str = ""

    def __post_init__(self) -> None:
        if not any(len(chosen) for chosen in self.splits.values()):
            raise errors.BadSubsetError(
                "A subset must have at least one record, got none"
                f"{f' for the query {self.query!r}' if self.query else ''}."
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subset) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Subset({self.num_records} records, {self.digest[:8]}, {self.query!r})"

    @classmethod
    def of_records(
        cls,
        whole: Index,
        split: str,
        record_ids: npt.ArrayLike,
        *,
        weights: npt.ArrayLike | None = None,
    ) -> "Subset":
        """Returns the subset of the records with some numbers in a split.

        Args:
            whole: Index of the data set, such as `TFRecordSource.index`.
            split: Name of the split.
            record_ids: int [num_chosen], numbers of records in the split, in any order,
                without repeats, such as `record_id` of a pipeline.
            weights: [num_chosen], weights of the records for sampling; None is none.

        Raises:
            BadSubsetError: If there is no such split or record, a record comes twice,
                no record is given, or a weight is wrong.
        """
        ids = _column(np.atleast_1d(record_ids), "record_ids", "INTEGER")
        sizes = [shard.num_records for shard in whole.splits.get(split, ())]
        ends = np.cumsum(sizes, dtype=np.int64)
        num_records = int(ends[-1]) if len(ends) else 0
        wrong = ids[(ids < 0) | (ids >= num_records)]
        if len(wrong):
            raise errors.BadSubsetError(
                f"Subset.of_records must get numbers of the {num_records} records of "
                f"split {split!r} of {whole.name!r}, got {wrong[0]}."
            )
        shard = np.searchsorted(ends, ids, side="right")
        rows = {
            "split": np.full(len(ids), split, object),
            "shard": shard,
            "record": ids - (ends - sizes)[shard] if len(ids) else ids,
        }
        rows |= {} if weights is None else {"weight": np.asarray(weights)}
        return choose(rows, whole)

    @property
    def num_records(self) -> int:
        """Number of chosen records in all splits."""
        return sum(map(len, self.splits.values()))

    @functools.cached_property
    def digest(self) -> str:
        """A digest of the chosen records and their weights, 32 hexadecimal digits."""
        digest = xxhash.xxh3_128(self.index_digest.encode())
        for split in sorted(self.splits):
            chosen = self.splits[split]
            digest.update(repr((split, chosen.digest)).encode())
            if chosen.weight is not None:
                digest.update(chosen.weight.astype("<f8").tobytes())
        return digest.hexdigest()

    def of_split(self, whole: Index, split: str) -> Chosen:
        """Returns the chosen records of a split.

        Raises:
            BadSubsetError: If the subset belongs to other data, or has no record of the
                split.
        """
        versions = [whole, *generations.prefixes(whole)]
        if self.index_digest not in map(identity, versions):
            raise errors.BadSubsetError(
                f"The subset must be one of data set {whole.name!r} as it is now, with "
                f"index digest {identity(whole)}, got one of an index with "
                f"digest {self.index_digest}. {REMEDY}"
            )
        unknown = sorted(set(self.splits) - set(whole.splits))
        if unknown:
            raise errors.BadSubsetError(
                f"A split of the subset must be one of {', '.join(whole.splits)}, got "
                f"{', '.join(map(repr, unknown))}. {REMEDY}"
            )
        if split not in self.splits or not len(self.splits[split]):
            filled = [name for name, chosen in self.splits.items() if len(chosen)]
            raise errors.BadSubsetError(
                f"The subset must have records of split {split!r}, got records of "
                f"{', '.join(map(repr, filled))} alone."
            )
        return self.splits[split]


def require(owner: object, name: str, value: object) -> Subset:
    """Returns the subset of an argument, see `errors`: a `Subset` or a path.

    Raises:
        BadSubsetError: As for `read`.
        ValueError: If the value is neither.
    """
    if isinstance(value, Subset):
        return value
    if not isinstance(value, str | os.PathLike):
        raise ValueError(
            f"{type(owner).__name__}.{name} must be the path of a subset or a Subset, "
            f"got {value!r}."
        )
    errors.require_local_path(owner, name, value)
    return read(value)


def choose(
    rows: "Mapping[str, npt.NDArray[Any]]", whole: Index, *, query: str = ""
) -> Subset:
    """Returns the subset of the records in rows, in any order.

    Args:
        rows: Columns split, shard, record and, if there are weights, weight, as
            DuckDB's `fetchnumpy` returns them; other columns are ignored.
        whole: Index of the data set.
        query: The WHERE clause of the rows.

    Raises:
        BadSubsetError: If no record is chosen, a record is chosen twice or does not
            exist, or a value is missing or wrong.
    """
    columns = _columns(rows)
    split_of = columns.pop("split")
    splits = {}
    for split in dict.fromkeys(split_of.tolist()):
        is_here = split_of == split
        splits[split] = _sorted({n: column[is_here] for n, column in columns.items()})
    subset = Subset(splits=splits, index_digest=identity(whole), query=query)
    for split in splits:
        sizes = [shard.num_records for shard in whole.splits.get(split, ())]
        subset.of_split(whole, split).numbers(np.array(sizes, np.int64))
    return subset


def write(subset: Subset, path: str | os.PathLike[str]) -> None:
    """Writes a subset as a Parquet file, in one step: a reader never sees a part of it.

    Raises:
        OSError: If the file cannot be written.
        ValueError: If the path or the query is not Unicode.
    """
    target = pathlib.Path(path)
    names = sorted(subset.splits)
    parts = [subset.splits[name] for name in names]
    lengths = [len(part) for part in parts]
    rows: dict[str, npt.NDArray[Any]] = {
        "split": np.repeat(np.array(names, object), lengths),
        "shard": np.concatenate([part.shard for part in parts]),
        "record": np.concatenate([part.record for part in parts]),
    }
    if any(part.weight is not None for part in parts):
        weights = [np.ones(len(p)) if p.weight is None else p.weight for p in parts]
        rows["weight"] = np.concatenate(weights)
    columns = ", ".join(f"{name}::{COLUMNS[name]} AS {name}" for name in rows)
    about = {
        FORMAT_KEY: FORMAT_VERSION,
        INDEX_KEY: subset.index_digest,
        QUERY_KEY: subset.query,
    }
    pairs = ", ".join(f"{quoted(k)}: {quoted(v)}" for k, v in about.items())
    with atomic.new_file(target, sweeps=True) as part:
        output = quoted(part)
        part.touch()  # a folder that is missing or read-only fails with Python's error
        with index.catalog_connection() as connection:
            connection.register("chosen", rows)
            try:
                connection.execute(
                    f"COPY (SELECT {columns} FROM chosen) TO {output}"
                    f" (FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{pairs}}})"
                )
            except sql.engine().IOException as error:
                raise OSError(
                    f"{target} cannot be written. Make room if the disk is full."
                ) from error


def read(path: str | os.PathLike[str]) -> Subset:
    """Reads the file of a subset.

    Raises:
        BadSubsetError: If the file is missing or no subset, or its records are not in
            order, come twice or have wrong values.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        what = "is no regular file" if path.exists() else "does not exist"
        raise errors.BadSubsetError(f"Subset {path} cannot be read: it {what}.")
    with _as_bad_subset(path), index.catalog_connection() as connection:
        about = _metadata(connection, path)
        splits = _read_splits(connection, path)
        return Subset(
            splits=splits, index_digest=about[INDEX_KEY], query=about[QUERY_KEY]
        )


def _metadata(
    connection: "duckdb.DuckDBPyConnection", path: pathlib.Path
) -> dict[str, str]:
    metadata = sql.about_parquet("kv_metadata", path)
    query = f"SELECT decode(key), decode(value) FROM {metadata}"
    about = dict(connection.execute(query).fetchall())
    if about.get(FORMAT_KEY) != FORMAT_VERSION or not about.keys() >= {
        INDEX_KEY,
        QUERY_KEY,
    }:
        raise errors.BadSubsetError(
            f"its metadata must have {FORMAT_KEY} = {FORMAT_VERSION}, {INDEX_KEY} and "
            f"{QUERY_KEY}, got {', '.join(sorted(about)) or 'none'}. {REMEDY}"
        )
    return about


def _read_splits(
    connection: "duckdb.DuckDBPyConnection", path: pathlib.Path
) -> dict[str, Chosen]:
    rows = sql.read_files("parquet", [path])
    kinds = sql.column_types(connection, rows)
    wrong = [
        f"{name} {kind}"
        for name, kind in COLUMNS.items()
        if kinds.get(name, kind if name == "weight" else None) != kind
    ]
    if wrong:
        shown = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        raise errors.BadSubsetError(
            f"its columns must be {', '.join(wrong)}, got {shown}. {REMEDY}"
        )
    splits = connection.execute(f"SELECT DISTINCT split FROM {rows}").fetchall()
    names = [name for (name,) in splits]
    if None in names:
        raise errors.BadSubsetError(f"column split has an empty value. {REMEDY}")
    wanted = ", ".join(name for name in COLUMNS if name in kinds and name != "split")
    query = f"SELECT {wanted} FROM {rows} WHERE split = ?"
    return {
        name: _sorted(_columns(connection.execute(query, [name]).fetchnumpy()))
        for name in sorted(names)
    }


@contextlib.contextmanager
def _as_bad_subset(path: pathlib.Path) -> Iterator[None]:
    """Names the file in the errors of its reading."""
    import duckdb

    try:
        yield
    except (errors.BadSubsetError, ValueError) as error:
        raise errors.BadSubsetError(f"Subset {path} cannot be read: {error}") from None
    except duckdb.Error as error:
        raise errors.BadSubsetError(
            f"Subset {path} cannot be read: it must be a Parquet file, got "
            f"{str(error).splitlines()[0]}. {REMEDY}"
        ) from error
