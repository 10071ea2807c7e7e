"""More columns of the catalog and features of records: what a table says of its images.

In: the Parquet file of the table's values, the row of each image, the labels of images
with several. Out: a Parquet file with the columns filename, labels and the extra ones;
from this file, the catalog with these columns, and features of the images of a shard.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from converters.inputs.folders import Folder
from converters.inputs.image import catalog_name
from converters.inputs.tables import sql
from tfpipe.location import atomic
from tfpipe.shards import index
from tfpipe.shards.example import (
    Buffers,
    Kind,
    float_feature,
    int64_feature,
    texts_feature,
)
from tfpipe.shards.sql import (
    PARQUET,
    about_parquet,
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
# The option of a conversion, as the index records it.
IN_RECORDS_OPTION = "extra_in_records"
# The same file in an export, and its metadata: a list of columns that are in records.
# No reader takes a file of this ending for a table.
EXPORTED_NAME, IN_RECORDS = "columns.pqt", "in_records"
LABELS_KEY = "image/class/labels"
_LARGEST_FLOAT = 3.4028234663852886e38  # of a float32
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

    Raises:
        ValueError: If no feature can hold a column of `in_records`.
    """

    path: pathlib.Path
    in_records: Sequence[str] = ()
    on: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {"filename": "filename"}
    )

    def __post_init__(self) -> None:
        for name, type_name in self._types().items():
            column, is_list = identifier(name), type_name.endswith("]")
            if is_list:
                self._require_none(
                    name,
                    f"list_count({column}) <> len({column})",
                    f"lists without NULL, got {{}}. Leave NULL out in --query, as in "
                    f"list_filter({column}, lambda x: x IS NOT NULL).",
                )
            if kind_of(name, type_name) == "float":
                values = f"list_filter({column if is_list else f'[{column}]'}, "
                self._require_none(
                    name,
                    f"len({values}lambda x: isfinite(x::DOUBLE) AND "
                    f"abs(x::DOUBLE) > {_LARGEST_FLOAT})) > 0",
                    "numbers that a feature holds as a float32, got {}. Divide them "
                    "in --query, or leave out --extra_in_records: the catalog holds "
                    "every number.",
                )

    def _require_none(self, name: str, condition: str, must: str) -> None:
        """Refuses rows of a condition; `must` says what the values must be instead."""
        query = f"SELECT filename, {identifier(name)} FROM {PARQUET} WHERE {condition}"
        with index.catalog_connection() as connection:
            row = connection.execute(
                f"{query} LIMIT 1", [one_file(self.path)]
            ).fetchone()
        if row is not None:
            got = must.format(f"{row[1]} in {name} of {row[0]}")
            raise ValueError(f"--extra_in_records needs {got}")

    def _types(self) -> dict[str, str]:
        """Returns the types of the columns that records get."""
        if not self.in_records:
            return {}
        with index.catalog_connection() as connection:
            rows = connection.execute(
                f"DESCRIBE FROM {read_files('parquet', [self.path])}"
            ).fetchall()
        types = {row[0]: row[1] for row in rows}
        return {name: types[name] for name in self.in_records}

    def features(self, names: Iterable[str]) -> dict[str, dict[str, Buffers]]:
        """Returns the features of images by key, for each image by its catalog name."""
        if not self.in_records:
            return {}
        kinds = [kind_of(*item) for item in self._types().items()]
        wanted = ", ".join(map(identifier, self.in_records))
        with index.catalog_connection() as connection:
            rows = connection.execute(
                f"SELECT filename, {wanted} FROM {PARQUET} "
                "WHERE filename IN (SELECT unnest(?))",
                [one_file(self.path), list(names)],
            ).fetchall()
        return {
            row[0]: {
                key_of(name): _feature(kind, value)
                for name, kind, value in zip(
                    self.in_records, kinds, row[1:], strict=True
                )
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


def of_export(
    export: Folder,
    images: Iterable[str],
    labels: Mapping[str, int],
    folder: pathlib.Path,
) -> MoreColumns | None:
    """Returns the columns that an export has beside its images; None without any.

    Args:
        export: Folder of the export.
        images: Names of the images.
        labels: Label of each class, in label order.
        folder: Folder for the file.

    Raises:
        ValueError: If the file has no row for an image, or a class without a label.
        RemoteError: If the file cannot be read from its URL.
    """
    path, lines = folder / EXTRAS_NAME, folder / "images.jsonl"
    part = folder / f"{EXTRAS_NAME}.part"
    if not export.is_file(EXPORTED_NAME):
        return None
    with export.near(EXPORTED_NAME) as source:
        with open(lines, "w") as file:
            file.writelines(
                json.dumps({"filename": catalog_name(name)}) + "\n" for name in images
            )
        read = read_files("parquet", [source])
        columns, values = names(source), []
        for name in columns:
            value = f"m.{identifier(name)}"
            if name == LABELS:
                value = f"list_transform({value}, lambda x: list_position($1, x) + $2)"
                value = f"CASE WHEN m.filename IS NOT NULL THEN {value}::INTEGER[] END"
            values.append(f"{value} AS {identifier(name)}")
        listed, base = list(labels), min(labels.values()) - 1
        parameters = [listed, base] if LABELS in columns else []
        with index.catalog_connection() as connection, atomic.new_file(path, part=part):
            connection.execute(
                f"COPY (SELECT n.filename, {', '.join(values)} FROM "
                f"{read_lines([lines], {'filename': 'VARCHAR'}, sql.LONG_ROWS)} n "
                f"LEFT JOIN {read} m USING (filename)) TO {quoted(part)} "
                "(FORMAT parquet)",
                parameters,
            )
            _require_rows(connection, lines, source, export)
            if LABELS in columns:
                _require_labels(connection, part, export)
            row = connection.execute(
                f"SELECT decode(value) FROM {about_parquet('kv_metadata', source)} "
                f"WHERE decode(key) = {quoted(IN_RECORDS)}"
            ).fetchone()
    lines.unlink()
    return MoreColumns(path=path, in_records=json.loads(row[0]) if row else ())


def _require_rows(
    connection: "duckdb.DuckDBPyConnection",
    lines: pathlib.Path,
    source: pathlib.Path,
    export: Folder,
) -> None:
    """Checks that each image has a row."""
    missing = connection.execute(
        f"SELECT filename FROM {read_lines([lines], {'filename': 'VARCHAR'})} "
        f"ANTI JOIN {read_files('parquet', [source])} USING (filename) LIMIT 1"
    ).fetchone()
    if missing is not None:
        raise ValueError(
            f"{export.shown(EXPORTED_NAME)} must have a row for each image of the "
            f"export, got none for {missing[0]}. Leave out flags that change names, "
            "such as --name_column and --file_in_names, or remove the file to go "
            "without its columns."
        )


def _require_labels(
    connection: "duckdb.DuckDBPyConnection", columns: pathlib.Path, export: Folder
) -> None:
    """Checks that each class in the rows has a label."""
    unknown = connection.execute(
        f"SELECT filename FROM {read_files('parquet', [columns])} "
        f"WHERE list_count({LABELS}) <> len({LABELS}) LIMIT 1"
    ).fetchone()
    if unknown is not None:
        raise ValueError(
            f"{export.shown(EXPORTED_NAME)} names a class without a label for "
            f"{unknown[0]}. Name all classes in --label_map."
        )


def in_catalog(catalog: pathlib.Path, *, in_records: bool) -> MoreColumns | None:
    """Returns the columns of a catalog with which its records can be written again.

    Args:
        catalog: The catalog of a data set.
        in_records: Whether the records have all extra columns. They always have the
            labels of images with several labels.
    """
    columns = names(catalog)
    kept = [name for name in columns if in_records or name == LABELS]
    return MoreColumns(path=catalog, in_records=kept) if kept else None


def is_key(key: str) -> bool:
    """Whether a feature is one that only tables with more columns have."""
    return key == LABELS_KEY or key.startswith(PREFIX)


def key_of(name: str) -> str:
    """Returns the key of the feature of a column."""
    return LABELS_KEY if name == LABELS else f"{PREFIX}{name}"


# The kind of the feature that holds values of a type of DuckDB, or lists of them.
_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT"), "int64"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER"), "int64"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), "float"),
    **dict.fromkeys(("VARCHAR", "BLOB", "ENUM", "UUID", "JSON"), "bytes"),
}
# Types to which other ones are cast; all others are cast to text.
_CASTS = {"UBIGINT": "BIGINT", "HUGEINT": "BIGINT", "UHUGEINT": "BIGINT"} | {
    "DECIMAL": "DOUBLE"
}
# Digits that a float64 holds.
_MAX_DIGITS = 15


def kind_of(name: str, type_name: str) -> Kind:
    """Returns the kind of the feature that holds a column.

    Args:
        name: Name of the column.
        type_name: Its type in DuckDB.

    Raises:
        ValueError: If no feature holds the type.

    >>> kind_of("score", "DECIMAL(9,2)"), kind_of("tags", "VARCHAR[]")
    ('float', 'bytes')
    """
    inner = re.sub(r"\[[0-9]*\]$", "", type_name)
    base, _, more = inner.partition("(")
    is_wide = base == "DECIMAL" and int(more.partition(",")[0]) > _MAX_DIGITS
    if not inner.endswith("]") and not is_wide and base in _KINDS:
        return _KINDS[base]
    cast = _CASTS.get(inner if base != "DECIMAL" else base, "VARCHAR")
    raise ValueError(
        "--extra_in_records needs columns of numbers or texts, or of lists of these, "
        f"which a feature can hold, got {name} of type {type_name}. Cast it in --query,"
        f" as in {identifier(name)}::{cast}, or leave out --extra_in_records: the "
        "catalog holds every type."
    )


def _feature(kind: Kind, value: Any) -> Buffers:
    values = value if isinstance(value, list | tuple) else [value]
    values = [] if value is None else values
    if kind == "int64":
        return int64_feature([int(each) for each in values])
    if kind == "float":
        return float_feature([float(each) for each in values])
    return texts_feature(
        [each if isinstance(each, bytes) else str(each).encode() for each in values]
    )
