"""Writes what a table says about each image beside its class, by the image's name.

In: the Parquet file of the table's values, the row of each image, the labels of images
with several. Out: a Parquet file with the columns filename, labels and the extra ones.
"""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from converters.inputs.ilsvrc import catalog_name
from converters.inputs.tables import scan

if TYPE_CHECKING:
    import duckdb

EXTRAS_NAME = "extras.parquet"
LABELS = "labels"


def write(
    connection: "duckdb.DuckDBPyConnection",
    rows: pathlib.Path,
    row_of: Mapping[str, int],
    labels_of: Mapping[str, Sequence[int]] | None,
    columns: Sequence[str],
) -> pathlib.Path:
    """Writes the file and returns its path.

    Args:
        connection: A connection of `scan.connected`.
        rows: The Parquet file of `scan.scan`.
        row_of: Row of each image, by its name.
        labels_of: Labels of each image, by its name; None writes none.
        columns: Names of the extra columns.
    """
    path = rows.with_name(EXTRAS_NAME)
    lines = rows.with_name("extras.jsonl")
    with open(lines, "w") as file:
        for name, row in row_of.items():
            fields = {"row": row, "filename": catalog_name(name)}
            if labels_of is not None:
                fields[LABELS] = list(labels_of[name])
            file.write(json.dumps(fields) + "\n")
    kinds = {"row": "BIGINT", "filename": "VARCHAR"}
    if labels_of is not None:
        kinds[LABELS] = "INTEGER[]"
    described = ", ".join(f"{name}: '{kind}'" for name, kind in kinds.items())
    extra = "".join(
        f", v.extra_{number} AS {scan.identifier(name)}"
        for number, name in enumerate(columns)
    )
    part = rows.with_name(f"{EXTRAS_NAME}.part")
    connection.execute(
        f"COPY (SELECT n.* EXCLUDE (row){extra} FROM "
        f"read_json({scan.quoted(str(lines))}, columns = {{{described}}}, "
        "format = 'newline_delimited') n JOIN "
        f"read_parquet({scan.quoted(str(rows))}) v USING (row)) "
        f"TO {scan.quoted(str(part))} (FORMAT parquet)"
    )
    os.replace(part, path)
    lines.unlink()
    return path
