"""Columns that chosen records keep in the catalog of their new data set.

In: the connection of a question, and the plans of the new shards. Out: a file with the
columns beside the usual ones: those that a table brought, and those that were added.
"""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from converters.catalog import question
from converters.catalog.shards import ChosenPlan
from converters.inputs.tables.extras import MoreColumns
from tfpipe.shards import index
from tfpipe.shards.sql import identifier, quoted

if TYPE_CHECKING:
    import duckdb

NAME = "carried.parquet"
_KEYS = ("split", "shard", "record")
_OWN = ("place", "file_row_number", *question.CLASS_COLUMNS)


def write(
    connection: "duckdb.DuckDBPyConnection",
    plans: Sequence[ChosenPlan],
    path: pathlib.Path,
) -> MoreColumns | None:
    """Writes the columns with the new places of the records.

    Args:
        connection: The connection of a question that may write the file.
        plans: The new shards, whose records are the chosen ones in order.
        path: The file.

    Returns:
        The file; None if there are no such columns.
    """
    brought = _others(connection.view("file").columns, ("file_row_number",))
    added = _others(connection.view("catalog").columns, (*_OWN, *brought))
    if not brought and not added:
        return None
    listed = [f"file.{identifier(name)}" for name in brought]
    listed += [f"catalog.{identifier(name)}" for name in added]
    values, start = [], {plan.split: 0 for plan in plans}
    for plan in plans:
        first = start[plan.split]
        start[plan.split] += plan.num_images
        bounds = f"{plan.number}, {first}, {start[plan.split]}"
        values.append(f"({quoted(plan.split)}, {bounds})")
    connection.execute(
        "COPY (SELECT n.split, p.number AS shard, n.number - p.first AS record, "
        f"{', '.join(listed)} FROM (SELECT split, place, row_number() OVER (PARTITION "
        "BY split ORDER BY shard, record) - 1 AS number FROM chosen) n "
        f"JOIN (VALUES {', '.join(values)}) p (split, number, first, last) "
        "ON n.split = p.split AND n.number >= p.first AND n.number < p.last "
        "JOIN file ON file.file_row_number = n.place "
        "JOIN catalog ON catalog.place = n.place) "
        f"TO {quoted(path)} (FORMAT parquet)"
    )
    return MoreColumns(path=path, keys=_KEYS)


def _others(columns: Sequence[str], known: Sequence[str]) -> list[str]:
    taken = {*map(str.lower, known), *index.CATALOG_COLUMNS}
    return [name for name in columns if name.lower() not in taken]
