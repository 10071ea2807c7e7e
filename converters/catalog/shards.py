"""The chosen records as shards of their own: the plan, and the columns beside.

In: the connection of a question and its data set. Out: a plan for each new shard, and a
file with the columns beside the usual ones: columns that a table brought, and columns
that were added. `exports.copies` writes the shards.
"""

import array
import math
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import xxhash

from converters.catalog import question
from converters.exports.copies import CopyPlan
from converters.exports.source import Source
from converters.jobs import side_files
from converters.jobs.plan import SHARD_BYTES
from tfpipe.shards.catalog import but_usual
from tfpipe.shards.sql import identifier, quoted

if TYPE_CHECKING:
    import duckdb


def make_plans(
    connection: "duckdb.DuckDBPyConnection", source: Source, *, layout: str
) -> list[CopyPlan]:
    """Returns the plan of each new shard, by split and number.

    The records keep their order. A split gets as many shards as its bytes fill at the
    mean size of its shards in the source, or at 48 MB if the source grows; their
    records differ by at most one.

    Args:
        connection: The connection of a question.
        source: The data set.
        layout: How shards are named: a key of `side_files.LAYOUTS`.

    Raises:
        ValueError: If no record is chosen, or TFDS could not read the shards' names.
    """
    plans = []
    for split, shards in source.known.splits.items():
        rows = connection.execute(
            "SELECT shard, record, num_bytes FROM chosen WHERE split = ? "
            "ORDER BY shard, record",
            [split],
        ).fetchall()
        if not rows:
            continue
        mean = sum(shard.num_bytes for shard in shards) / len(shards)
        if "generation" in source.known.made_by:  # its shards may be many and small
            mean = max(mean, SHARD_BYTES)
        full = math.ceil(sum(row[2] for row in rows) / max(mean, 1))
        count = min(max(full, 1), len(rows))
        names = side_files.shard_names(layout, source.known.name, split, count)
        for number, name in enumerate(names):
            start, stop = (len(rows) * n // count for n in (number, number + 1))
            plans.append(_plan(split, number, name, rows[start:stop]))
    if not plans:
        raise ValueError("No record is chosen, so there is nothing to write.")
    return plans


def _plan(
    split: str, number: int, name: str, rows: Sequence[tuple[int, int, int]]
) -> CopyPlan:
    parts: dict[int, array.array[int]] = {}
    for shard, record, _ in rows:
        parts.setdefault(shard, array.array("I")).append(record)
    num_bytes = sum(row[2] for row in rows)
    return CopyPlan(split, number, name, (), tuple(parts.items()), num_bytes)


def digest(plans: Sequence[CopyPlan]) -> str:
    """Returns a digest of the choice, for the identity of the job."""
    found = xxhash.xxh3_128()
    for plan in plans:
        listed = tuple((shard, tuple(chosen)) for shard, chosen in plan.parts)
        found.update(repr((plan.name, listed)).encode())
    return found.hexdigest()


ADDED_NAME = "added.parquet"


def write_added(
    connection: "duckdb.DuckDBPyConnection", path: pathlib.Path
) -> pathlib.Path | None:
    """Writes all columns of the chosen records beside the usual ones, also added ones.

    Args:
        connection: The connection of a question that may write the file.
        path: The file.

    Returns:
        The path; None if no columns were added to those of the catalog.
    """
    there = [*connection.view("file").columns, "place", *question.CLASS_COLUMNS]
    taken = {*map(str.lower, there)}
    columns = connection.view("catalog").columns
    added = [name for name in columns if name.lower() not in taken]
    if not added:
        return None
    brought = but_usual(connection.view("file").columns)
    listed = [f"file.{identifier(name)}" for name in brought]
    listed += [f"catalog.{identifier(name)}" for name in added]
    connection.execute(
        f"COPY (SELECT file.split, file.shard, file.record, {', '.join(listed)} "
        "FROM chosen JOIN file ON file.file_row_number = chosen.place "
        "JOIN catalog ON catalog.place = chosen.place ORDER BY chosen.place) "
        f"TO {quoted(path)} (FORMAT parquet)"
    )
    return path
