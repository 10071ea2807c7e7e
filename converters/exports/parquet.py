"""Parquet shards as Hugging Face `datasets` reads them: image bytes, path and label.

In: the records of a part. Out: a Parquet file with a struct `image` {bytes, path}, a
class number from 0 whose names are in the file's metadata, sizes and boxes. Images
stream through DuckDB; a row group, which is all that is in memory, has some 16 MB.
"""

import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from converters.exports.plan import ExportedRecord, ExportPlan, Part
from converters.jobs import side_files
from tfpipe.shards import index
from tfpipe.shards.catalog import LABELS
from tfpipe.shards.sql import connected, identifier, quoted, read_files

if TYPE_CHECKING:
    import duckdb


def _value(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "_type": "Value"}


def _list(feature: dict[str, Any]) -> dict[str, Any]:
    return {"feature": feature, "_type": "Sequence"}


_GROUP_BYTES = 16_000_000
# The columns, with their types in DuckDB and in Hugging Face `datasets`.
_COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "image": ("STRUCT(bytes BLOB, path VARCHAR)", {"_type": "Image"}),
    "label": ("BIGINT", {}),
    "class": ("VARCHAR", _value("string")),
    "height": ("INTEGER", _value("int32")),
    "width": ("INTEGER", _value("int32")),
    "boxes": ("FLOAT[][]", _list(_list(_value("float32")))),
    "box_labels": ("BIGINT[]", _list(_value("int64"))),
}
# Other names of simple types in `datasets`; names that are equal are not listed.
_HF_TYPES = {
    **{"boolean": "bool", "tinyint": "int8", "smallint": "int16", "integer": "int32"},
    **{"bigint": "int64", "utinyint": "uint8", "usmallint": "uint16"},
    **{"uinteger": "uint32", "ubigint": "uint64", "float": "float32"},
    **{"double": "float64", "varchar": "string", "enum": "string", "blob": "binary"},
    **{"date": "date32", "timestamp": "timestamp[us]"},
}


def write_part(
    plan: ExportPlan, part: Part, items: Iterable[ExportedRecord], path: pathlib.Path
) -> None:
    """Writes the Parquet file of a part.

    Raises:
        Exception: The first exception of `items`.
        OSError: If the file cannot be written.
    """
    import duckdb

    sizes = [row.num_bytes for row, *_ in plan.rows(part)]
    types = more_types(plan)
    content, values = _columns(types)
    contents = _Contents(items, plan.source.known.label_base, tuple(types))
    metadata = quoted(json.dumps(_metadata(plan, types)))
    # The function belongs to a whole database.
    with connected() as connection:
        connection.create_function(
            "content",
            contents.of,
            ["BIGINT"],
            content,
            side_effects=True,
        )
        # A row group ends with each of these queries, because two rows are enough.
        query = " UNION ALL ".join(
            f"SELECT {values} FROM (SELECT content(n) AS x FROM "
            f"range({start}, {stop}) AS numbers(n))"
            for start, stop in groups(sizes)
        )
        try:
            connection.execute(
                f"COPY ({query}) TO {quoted(path)} (FORMAT parquet, "
                "COMPRESSION uncompressed, ROW_GROUP_SIZE 2, "
                f"KV_METADATA {{huggingface: {metadata}}})"
            )
        except duckdb.Error as error:
            if contents.error is not None:
                raise contents.error from None
            raise OSError(
                f"{path} cannot be written: {str(error).splitlines()[0]}"
            ) from error
        finally:
            connection.remove_function("content")
    contents.end()


def _columns(types: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the type of a struct with all columns, and the SQL that divides it."""
    columns = {name: kind for name, (kind, _) in _COLUMNS.items()} | {
        name: str(kind) for name, kind in types.items()
    }
    content = ", ".join(f"{identifier(name)} {kind}" for name, kind in columns.items())
    # DuckDB marks a struct that is made in the query as never empty, and `datasets`
    # then takes it for no image.
    values = ", ".join(f"x.{identifier(n)} AS {identifier(n)}" for n in columns)
    return f"STRUCT({content})", values


class _Contents:
    """The content of one row after the other, for a function of DuckDB."""

    def __init__(
        self, items: Iterable[ExportedRecord], label_base: int, more: Sequence[str]
    ) -> None:
        self._items = enumerate(items)
        self._label_base, self._more = label_base, more
        self.error: BaseException | None = None

    def of(self, number: int) -> dict[str, Any]:
        try:
            found, item = next(self._items)
            assert found == number, "DuckDB asks for the rows in order"
        except BaseException as error:
            self.error = error  # DuckDB would make a text of it
            raise
        row = item.row
        return {
            "image": {"bytes": item.encoded, "path": f"{item.path}.{item.suffix}"},
            "label": row.label - self._label_base,
            "class": row.synset,
            "height": row.height,
            "width": row.width,
            "boxes": item.boxes,
            "box_labels": [label - self._label_base for label in item.box_labels],
            **{name: self._value(name, item.more[name]) for name in self._more},
        }

    def end(self) -> None:
        """Ends the items, which compare a whole shard with its digest last."""
        assert next(self._items, None) is None, "DuckDB asks for all rows"

    def _value(self, name: str, value: Any) -> Any:
        if name == LABELS and value is not None:
            return [label - self._label_base for label in value]
        return value


def groups(sizes: list[int]) -> list[tuple[int, int]]:
    """Cuts rows into ranges (start, stop) of at most 16 MB, or of one row.

    Args:
        sizes: Bytes of each row.
    """
    found, start, num_bytes = [], 0, 0
    for number, size in enumerate(sizes):
        if number > start and num_bytes + size > _GROUP_BYTES:
            found.append((start, number))
            start, num_bytes = number, 0
        num_bytes += size
    return [*found, (start, len(sizes))]


def more_types(plan: ExportPlan) -> "dict[str, duckdb.sqltypes.DuckDBPyType]":
    """Returns the types of the columns of a plan that the files get too.

    A column with the name of another column of the files, or of a type that `datasets`
    cannot read, is left out.
    """
    listed = ", ".join(f"more_{n}" for n in range(len(plan.columns)))
    if not listed:
        return {}
    with index.catalog_connection() as connection:
        rows = read_files("parquet", [plan.rows_path])
        result = connection.execute(f"SELECT {listed} FROM {rows} LIMIT 0")
        types = [column[1] for column in result.description]
    found = dict(zip(plan.columns, types, strict=True))
    return {
        name: kind
        for name, kind in found.items()
        if name.lower() not in _COLUMNS and _feature(kind) is not None
    }


def _feature(kind: Any) -> dict[str, Any] | None:
    """Returns a type of DuckDB in the words of `datasets`; None if it has no words."""
    if kind.id in ("list", "array"):
        inner = _feature(kind.children[0][1])
        return inner and _list(inner)
    if kind.id == "struct":
        fields = {name: _feature(child) for name, child in kind.children}
        return None if None in fields.values() else fields
    name = _HF_TYPES.get(kind.id)
    return _value(name) if name else None


def _metadata(plan: ExportPlan, types: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the features of the columns in the words of Hugging Face `datasets`."""
    names = side_files.label_names(plan.source.classes)
    label = {"names": names[plan.source.known.label_base :], "_type": "ClassLabel"}
    features = {name: feature for name, (_, feature) in _COLUMNS.items()}
    features |= {name: _feature(kind) or {} for name, kind in types.items()}
    features["label"] = label
    if LABELS in types:
        features[LABELS] = _list(label)
    return {"info": {"features": features}}
