"""More columns of the catalog, and the features of records with their values.

In: Parquet files with rows of images, and the labels of images with several labels.
Out: a Parquet file with filename, labels and the extra columns; from the file, the
catalog with the extra columns, and features of the images of a shard.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from converters.inputs.image import catalog_name
from converters.inputs.listed import ImageRows
from converters.inputs.tables import sql
from converters.inputs.tables.columns import kind_of
from tfpipe.location import atomic
from tfpipe.shards import catalog as catalogs, image_record, index
from tfpipe.shards.example import (
    Buffers,
    Kind,
    float_feature,
    int64_feature,
    texts_feature,
)
from tfpipe.shards.sql import (
    PARQUET,
    column_types,
    identifier,
    one_file,
    quoted,
    read_files,
    read_lines,
)

if TYPE_CHECKING:
    import duckdb

EXTRAS_NAME = "extras.parquet"
_LARGEST_FLOAT = 3.4028234663852886e38  # of a float32
_PREFIX = "extra/"
# Columns of DuckDB beside the columns of a table.
_PART, _ROW = "tfpipe_part", "tfpipe_row"


def write(
    folder: pathlib.Path,
    images: Iterable[str],
    rows: Sequence[ImageRows],
    labels_of: Mapping[str, Sequence[int]] | None,
) -> pathlib.Path:
    """Writes the file and returns its path.

    Args:
        folder: Folder for the file.
        images: Names of all images.
        rows: Rows of images with columns; an image without a row gets NULL.
        labels_of: Labels of every image, by its name; None writes no labels.

    Raises:
        ValueError: If two sources have columns of the same name and of different types.
    """
    path, lines = folder / EXTRAS_NAME, folder / "extras.jsonl"
    row_of = {
        name: {_PART: number, _ROW: row}
        for number, each in enumerate(rows)
        for name, row in each.row_of.items()
    }
    with open(lines, "w") as file:
        for name in images:
            fields = {**row_of.get(name, {}), "filename": catalog_name(name)}
            if labels_of is not None:
                fields[catalogs.LABELS] = labels_of[name]
            file.write(json.dumps(fields) + "\n")
    kinds = {_PART: "BIGINT", _ROW: "BIGINT", "filename": "VARCHAR"}
    if labels_of is not None:
        kinds[catalogs.LABELS] = "INTEGER[]"
    query = f"FROM {read_lines([lines], kinds, sql.LONG_ROWS)}"
    part = folder / f"{EXTRAS_NAME}.part"
    with sql.connected(folder) as connection, atomic.new_file(path, part=part):
        if rows:
            of_rows = " UNION ALL BY NAME ".join(_selects(connection, rows))
            query += f" LEFT JOIN ({of_rows}) USING ({_PART}, {_ROW})"
        connection.execute(
            f"COPY (SELECT * EXCLUDE ({_PART}, {_ROW}) {query}) TO {quoted(part)} "
            "(FORMAT parquet)"
        )
    lines.unlink()
    return path


def _selects(
    connection: "duckdb.DuckDBPyConnection", rows: Sequence[ImageRows]
) -> Iterator[str]:
    """Yields a query for the rows of each part, with columns by their names.

    Raises:
        ValueError: If columns of the same name have different types.
    """
    first: dict[str, tuple[str, str, str]] = {}
    for part, each in enumerate(rows):
        file = read_files("parquet", [each.path], "file_row_number = true")
        types, values = column_types(connection, file), ""
        for name, column in each.columns.items():
            own = (name, types[column], each.source)
            shown, kind, source = first.setdefault(name.lower(), own)
            if kind != types[column]:
                raise ValueError(
                    f"Extra columns of one name must have one type, got {name} of type "
                    f"{kind} in {source!r} and of type {types[column]} in "
                    f"{each.source!r}. Cast one of them in --query, or leave one out: "
                    "--extra_columns names those to keep."
                )
            values += f", {identifier(column)} AS {identifier(shown)}"
        yield f"SELECT {part} AS {_PART}, {each.key} AS {_ROW}{values} FROM {file}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MoreColumns:
    """A file with more columns.

    Attributes:
        path: The Parquet file, with a row for every image.
        in_records: Names of columns for the records too, as features; `labels` is
            stored as image/class/labels, another column NAME as extra/NAME.
        on: Columns of the rows of new records, and the equal columns of the file.

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
            must: dict[str, str] = {}
            if is_list:
                must[f"list_count({column}) <> len({column})"] = (
                    f"lists without NULL, got {{}}. Leave NULL out in --query, as in "
                    f"list_filter({column}, lambda x: x IS NOT NULL)."
                )
            if kind_of(name, type_name) == "float":
                values = column if is_list else f"[{column}]"
                too_large = f"isfinite(x::DOUBLE) AND abs(x::DOUBLE) > {_LARGEST_FLOAT}"
                must[f"list_filter({values}, lambda x: {too_large}) <> []"] = (
                    "numbers that a feature holds as a float32, got {}. Divide them "
                    "in --query, or leave out --extra_in_records: the catalog holds "
                    "every number."
                )
            for condition, text in must.items():
                for image, value in self._ask(
                    f"filename, {column}", f"WHERE {condition} LIMIT 1"
                ):
                    got = text.format(f"{value} in {name} of {image}")
                    raise ValueError(f"--extra_in_records needs {got}")

    def _ask(self, columns: str, more: str, *values: object) -> list[tuple[Any, ...]]:
        with index.catalog_connection() as connection:
            query = f"SELECT {columns} FROM {PARQUET} {more}"
            return connection.execute(query, [one_file(self.path), *values]).fetchall()

    def _types(self) -> dict[str, str]:
        """Returns the types of the columns for the records."""
        types = catalogs.types(self.path) if self.in_records else {}
        return {name: types[name] for name in self.in_records}

    def features(self, names: Iterable[str]) -> dict[str, dict[str, Buffers]]:
        """Returns the features of images by key, by the catalog names of the images."""
        if not self.in_records:
            return {}
        kinds = {name: kind_of(name, kind) for name, kind in self._types().items()}
        return {
            image: {
                key_of(name): _feature(kind, value)
                for (name, kind), value in zip(kinds.items(), values, strict=True)
            }
            for image, *values in self._ask(
                ", ".join(map(identifier, ["filename", *kinds])),
                "WHERE filename IN (SELECT unnest(?))",
                list(names),
            )
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
        fragments: The fragments, with the keys of `more` too.
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
    values = ", ".join(
        f"m.{identifier(name)}" for name in catalogs.further_columns(more.path)
    )
    with atomic.new_file(catalog, part=part):
        connection.execute(
            f"COPY (SELECT c.* EXCLUDE ({', '.join(('place_', *keys))}), {values} FROM "
            "(SELECT *, row_number() OVER () AS place_ FROM "
            f"{read_files('parquet', [catalog])}) c "
            f"LEFT JOIN {read_files('parquet', [more.path])} m ON {on} "
            f"ORDER BY c.place_) TO {quoted(part)} (FORMAT parquet, "
            "COMPRESSION zstd)"
        )


def in_catalog(catalog: pathlib.Path, *, in_records: bool) -> MoreColumns | None:
    """Returns the columns of a catalog for writing its records again.

    Args:
        catalog: The catalog of a data set.
        in_records: Whether the records have all extra columns. Records always have the
            labels of images with several labels.
    """
    columns = catalogs.further_columns(catalog)
    kept = [name for name in columns if in_records or name == catalogs.LABELS]
    return MoreColumns(path=catalog, in_records=kept) if kept else None


def is_key(key: str) -> bool:
    """Whether a feature comes from labels or from an extra column."""
    return key == image_record.LABELS or key.startswith(_PREFIX)


def key_of(name: str) -> str:
    """Returns the key of the feature of a column."""
    return image_record.LABELS if name == catalogs.LABELS else f"{_PREFIX}{name}"


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
