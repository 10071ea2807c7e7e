"""More columns of the catalog, and more features of records, from a file of the input.

In: a Parquet file with the column filename (as the catalog has it) and others. Out: the
catalog with these columns, and features of the images of a shard.
"""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from tfpipe.shards import index
from tfpipe.shards.example import (
    Buffers,
    bytes_feature,
    float_feature,
    int64_feature,
)

LABELS_KEY = "image/class/labels"
PREFIX = "extra/"
_LABELS = "labels"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MoreColumns:
    """A file with more columns.

    Attributes:
        path: The Parquet file; it has one row for each image.
        in_records: Names of columns that records get too, as features; `labels` is
            stored as image/class/labels, another column NAME as extra/NAME.
    """

    path: pathlib.Path
    in_records: Sequence[str] = ()

    def features(self, names: Iterable[str]) -> dict[str, dict[str, Buffers]]:
        """Returns the features of images by key, for each image by its catalog name.

        Raises:
            ValueError: If a value cannot be a feature.
        """
        import duckdb

        if not self.in_records:
            return {}
        wanted = ", ".join(map(_identifier, self.in_records))
        with duckdb.connect(config={"threads": 1}) as connection:
            rows = connection.execute(
                f"SELECT filename, {wanted} FROM read_parquet(?) "
                "WHERE filename IN (SELECT unnest(?))",
                [os.fspath(self.path), list(names)],
            ).fetchall()
        return {
            row[0]: {
                key_of(name): _feature(name, value)
                for name, value in zip(self.in_records, row[1:], strict=True)
            }
            for row in rows
        }

    def add_to(self, catalog: pathlib.Path) -> None:
        """Adds the columns to a catalog."""
        part = catalog.with_name(f"{catalog.name}.part")
        with index.catalog_connection() as connection:
            connection.execute(
                "COPY (SELECT c.* EXCLUDE (place_), m.* EXCLUDE (filename) FROM "
                f"(SELECT *, row_number() OVER () AS place_ FROM {_read(catalog)}) c "
                f"LEFT JOIN {_read(self.path)} m ON c.filename = m.filename "
                f"ORDER BY c.place_) TO {_quoted(part)} (FORMAT parquet, "
                "COMPRESSION zstd)"
            )
        os.replace(part, catalog)


def key_of(name: str) -> str:
    """Returns the key of the feature of a column."""
    return LABELS_KEY if name == _LABELS else f"{PREFIX}{name}"


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


def _read(path: pathlib.Path) -> str:
    return f"read_parquet({_quoted(path)})"


def _quoted(path: pathlib.Path) -> str:
    return "'" + os.fspath(path).replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
