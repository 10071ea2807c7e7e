"""More columns of the catalog and features of records: what a table says of its images.

In: the Parquet file of the table's values, the row of each image, the labels of images
with several. Out: a Parquet file with the columns filename, labels and the extra ones;
from this file, the catalog with these columns, and features of the images of a shard.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from converters.inputs.image import catalog_name
from converters.inputs.tables import sql
from tfpipe.shards import atomic, index
from tfpipe.shards.example import (
    Buffers,
    bytes_feature,
    float_feature,
    int64_feature,
)
from tfpipe.shards.sql import (
    PARQUET,
    identifier,
    one_file,
    quoted,
    read_files,
    read_lines,
)

if TYPE_CHECKING:
    import duckdb

EXTRAS_NAME = "extras.parquet"
LABELS = "labels"
# The same file in an export, and its metadata: a list of columns that are in records.
# No reader takes a file of this ending for a table.
EXPORTED_NAME, IN_RECORDS = "columns.pqt", "in_records"
LABELS_KEY = "image/class/labels"
PREFIX = "extra/"


def write(
    connection: "duckdb.DuckDBPyConnection",
    rows: pathlib.Path,
    row_of: Mapping[str, int],
    labels_of: Mapping[str, Sequence[int]] | None,
    columns: Sequence[str],
) -> pathlib.Path:
    """Writes the file and returns its path.

    Args:
        connection: A connection of `sql.connected`.
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
    extra = "".join(
        f", v.extra_{number} AS {identifier(name)}"
        for number, name in enumerate(columns)
    )
    part = rows.with_name(f"{EXTRAS_NAME}.part")
    with atomic.new_file(path, part=part):
        connection.execute(
            f"COPY (SELECT n.* EXCLUDE (row){extra} FROM "
            f"{read_lines([lines], kinds, sql.LONG_ROWS)} n JOIN "
            f"{read_files('parquet', [rows])} v USING (row)) "
            f"TO {quoted(part)} (FORMAT parquet)"
        )
    lines.unlink()
    return path


@dataclasses.dataclass(frozen=True, kw_only=True)
class MoreColumns:
    """A file with more columns.

    Attributes:
        path: The Parquet file; it has one row for each image.
        in_records: Names of columns that records get too, as features; `labels` is
            stored as image/class/labels, another column NAME as extra/NAME.
        on: Columns of the rows of new records, and the columns of the file that are
            equal to them.
    """

    path: pathlib.Path
    in_records: Sequence[str] = ()
    on: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {"filename": "filename"}
    )

    def features(self, names: Iterable[str]) -> dict[str, dict[str, Buffers]]:
        """Returns the features of images by key, for each image by its catalog name.

        Raises:
            ValueError: If a value cannot be a feature.
        """
        if not self.in_records:
            return {}
        wanted = ", ".join(map(identifier, self.in_records))
        with index.catalog_connection() as connection:
            rows = connection.execute(
                f"SELECT filename, {wanted} FROM {PARQUET} "
                "WHERE filename IN (SELECT unnest(?))",
                [one_file(self.path), list(names)],
            ).fetchall()
        return {
            row[0]: {
                key_of(name): _feature(name, value)
                for name, value in zip(self.in_records, row[1:], strict=True)
            }
            for row in rows
        }


def write_catalog(
    connection: "duckdb.DuckDBPyConnection",
    fragments: Sequence[pathlib.Path],
    catalog: pathlib.Path,
    more: MoreColumns | None,
) -> None:
    """Joins catalog fragments into a catalog, see `index.write_catalog`.

    Args:
        connection: A `index.catalog_connection`.
        fragments: The fragments, which may have more keys, as `more` says.
        catalog: The catalog to write.
        more: More columns of the catalog, if there are any.
    """
    if more is None:
        index.write_catalog(connection, fragments, catalog)
        return
    keys = [key for key in more.on if key not in index.CATALOG_COLUMNS]
    index.write_catalog(
        connection, fragments, catalog, more=dict.fromkeys(keys, "INTEGER")
    )
    part = catalog.with_name(f"{catalog.name}.part")
    on = " AND ".join(f"c.{key} = m.{column}" for key, column in more.on.items())
    values = ", ".join(f"m.{identifier(name)}" for name in names(more.path))
    with atomic.new_file(catalog, part=part):
        connection.execute(
            f"COPY (SELECT c.* EXCLUDE ({', '.join(('place_', *keys))}), {values} FROM "
            "(SELECT *, row_number() OVER () AS place_ FROM "
            f"{read_files('parquet', [catalog])}) c "
            f"LEFT JOIN {read_files('parquet', [more.path])} m ON {on} "
            f"ORDER BY c.place_) TO {quoted(part)} (FORMAT parquet, "
            "COMPRESSION zstd)"
        )


def names(path: pathlib.Path) -> list[str]:
    """Returns the columns of a Parquet file that are not those of every catalog."""
    with index.catalog_connection() as connection:
        described = f"DESCRIBE FROM {read_files('parquet', [path])}"
        return others(row[0] for row in connection.execute(described).fetchall())


def others(columns: Iterable[str]) -> list[str]:
    """Returns the columns that are not those of every catalog."""
    usual = {*index.CATALOG_COLUMNS, "file_row_number"}
    return [name for name in columns if name.lower() not in usual]


def is_key(key: str) -> bool:
    """Whether a feature is one that only tables with more columns have."""
    return key == LABELS_KEY or key.startswith(PREFIX)


def key_of(name: str) -> str:
    """Returns the key of the feature of a column."""
    return LABELS_KEY if name == LABELS else f"{PREFIX}{name}"


def _feature(name: str, value: Any) -> Buffers:
    values = value if isinstance(value, list) else [] if value is None else [value]
    if all(isinstance(each, int) for each in values):
        return int64_feature([int(each) for each in values])
    if all(isinstance(each, int | float) for each in values):
        return float_feature([float(each) for each in values])
    if len(values) == 1:
        only = values[0]
        return bytes_feature(only if isinstance(only, bytes) else str(only).encode())
    raise ValueError(
        f"Column {name} must hold numbers, lists of numbers, or one text to be stored "
        f"in records, got {value!r}. Cast it in --query."
    )
