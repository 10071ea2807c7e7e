"""Checks the catalog against the index: columns, rows, places, classes.

In: a data set's folder and its index. Out: faults, and the byte offset of every record
according to the catalog. No shard is read here.
"""

import pathlib
from collections.abc import Iterator, Mapping, Sequence

from converters.checks.shard import Fault
from tfpipe import errors
from tfpipe.errors import count_of
from tfpipe.shards import index
from tfpipe.shards.index import Index, Shard
from tfpipe.shards.records import Ints
from tfpipe.shards.sql import PARQUET

_PLACES = ("shard", "record", "byte_offset", "num_bytes")


def load_byte_offsets(
    known: Index, data_dir: pathlib.Path
) -> tuple[dict[str, Ints], list[Fault]]:
    """Loads the byte offset of every record from the catalog, and checks the catalog.

    Returns:
        byte_offsets: By the name of the shard, int64 [num_records]. A shard is left
            out if the catalog has more or fewer records of it than the index.
        faults: The faults of the catalog.
    """
    try:
        faults = list(_column_faults(data_dir))
        if faults:  # the rows of a catalog with wrong columns cannot be trusted
            return {}, faults
        faults += _split_faults(known, data_dir)
        found: dict[str, Ints] = {}
        for split, shards in known.splits.items():
            table = index.load_catalog(data_dir, split, _PLACES)
            faults += _place_faults(shards, table, found)
            faults += _class_faults(known, data_dir, split)
    except errors.BadIndexError as error:
        if errors.is_of_host(error):
            raise
        return {}, [_fault(str(error))]
    return found, faults


def _fault(fault: str) -> Fault:
    return Fault(shard=index.CATALOG_NAME, fault=fault)


def _column_faults(data_dir: pathlib.Path) -> Iterator[Fault]:
    """Yields columns that are missing, of another type, or without a value in a row."""
    query = f"SELECT column_name, column_type FROM (DESCRIBE FROM {PARQUET})"
    got = dict(index.query_catalog(data_dir, query, []))
    wrong = False
    for name, kind in index.CATALOG_COLUMNS.items():
        if name not in got:
            yield _fault(f"must have a column {name}, got {', '.join(got)}")
            wrong = True
        elif got[name] != kind:
            yield _fault(f"column {name} must be {kind}, got {got[name]}")
            wrong = True
    if wrong:
        return
    counts = ", ".join(f"count({name})" for name in index.CATALOG_COLUMNS)
    query = f"SELECT count(*), {counts} FROM {PARQUET}"
    ((num_rows, *numbers),) = index.query_catalog(data_dir, query, [])
    for name, number in zip(index.CATALOG_COLUMNS, numbers, strict=True):
        if number != num_rows:
            empty = num_rows - number
            yield _fault(
                f"column {name} must have a value in each row, got {empty} empty"
            )


def _split_faults(known: Index, data_dir: pathlib.Path) -> Iterator[Fault]:
    """Yields the splits in the catalog that the index does not have."""
    query = f"SELECT split, count(*) FROM {PARQUET} GROUP BY split ORDER BY split"
    for split, count in index.query_catalog(data_dir, query, []):
        if split not in known.splits:
            yield _fault(
                f"has {count} rows of split {split!r}, which is not in the index"
            )


def _place_faults(
    shards: Sequence[Shard], table: Mapping[str, Ints], found: dict[str, Ints]
) -> Iterator[Fault]:
    """Yields faults of the rows' shards, numbers and places.

    Args:
        shards: The shards of one split, from the index.
        table: The columns `_PLACES` of that split, int64 [num_rows] each.
        found: The byte offsets of every shard with the right number of rows are added.
    """
    import numpy as np  # 0.1 s that exports do without

    numbers = table["shard"]
    outside = int(np.count_nonzero((numbers < 0) | (numbers >= len(shards))))
    if outside:
        last = len(shards) - 1
        others = count_of(int(outside), "other")
        yield _fault(f"the numbers of shards must be 0 to {last}, got {others}")
    # `index.load_catalog` sorts the rows by shard.
    bounds = np.searchsorted(numbers, np.arange(len(shards) + 1))
    for shard, start, stop in zip(shards, bounds[:-1], bounds[1:], strict=True):
        if stop - start != shard.num_records:
            yield _fault(
                f"must have a row for each of the {shard.num_records} records of "
                f"{shard.name}, got {stop - start}"
            )
            continue
        rows = {name: table[name][start:stop].astype(np.int64) for name in _PLACES}
        found[shard.name] = rows["byte_offset"]
        yield from _chain_faults(shard, rows)


def _chain_faults(shard: Shard, rows: Mapping[str, Ints]) -> Iterator[Fault]:
    """Yields the first record with a wrong number, and the first with a wrong place.

    Records lie end to end: each starts where the record before it ends.
    """
    import numpy as np

    wrong = np.flatnonzero(rows["record"] != np.arange(shard.num_records))
    if len(wrong):
        number = int(wrong[0])
        got = int(rows["record"][number])
        yield _fault(
            f"record {number} of {shard.name} must have this number, got {got}"
        )
    ends = rows["byte_offset"] + rows["num_bytes"]
    starts = np.append(rows["byte_offset"], shard.num_bytes)
    wrong = np.flatnonzero(np.insert(ends, 0, 0) != starts)
    if len(wrong):
        number = int(wrong[0])
        before = 0 if number == 0 else int(ends[number - 1])
        what = f"record {number} of {shard.name} must start"
        if number == shard.num_records:
            what = f"{shard.name} must end"
        yield _fault(
            f"{what} at byte {before}, where the record before it ends, got "
            f"{int(starts[number])}"
        )


def _class_faults(known: Index, data_dir: pathlib.Path, split: str) -> Iterator[Fault]:
    """Yields labels without a class, and synsets that belong to another label."""
    query = (
        f"SELECT DISTINCT label, synset FROM {PARQUET} WHERE split = ? "
        "ORDER BY label, synset"
    )
    last = known.label_base + known.num_classes - 1
    for label, synset in index.query_catalog(data_dir, query, [split]):
        if not known.label_base <= label <= last:
            yield _fault(
                f"labels of split {split!r} must be {known.label_base} to {last}, got "
                f"{label}"
            )
            continue
        expected = known.classes[label - known.label_base][0]
        # Records of another tool may have no synset.
        if synset not in (expected, ""):
            yield _fault(
                f"the synset of label {label} must be {expected!r} as the index says, "
                f"got {synset!r}"
            )
