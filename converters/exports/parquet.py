"""Parquet shards as Hugging Face `datasets` reads them: image bytes, path and label.

In: the records of a part. Out: a Parquet file with a struct `image` {bytes, path}, a
class number from 0 whose names are in the file's metadata, sizes and boxes. Images
stream through DuckDB; a row group, which is all that is in memory, has some 16 MB.
"""

import json
import pathlib
from collections.abc import Iterable
from typing import Any

from converters.exports.plan import ExportedRecord, ExportPlan, Part
from converters.jobs import side_files
from tfpipe.shards.sql import connected, quoted

_GROUP_BYTES = 16_000_000
_CONTENT = (
    "STRUCT(image STRUCT(bytes BLOB, path VARCHAR), label BIGINT, class VARCHAR, "
    "height INTEGER, width INTEGER, boxes FLOAT[][], box_labels BIGINT[])"
)
# DuckDB marks a struct that is made in the query as never empty, and `datasets` then
# takes it for no image.
_COLUMNS = ", ".join(
    f"x.{name} AS {name}"
    for name in ("image", "label", "class", "height", "width", "boxes", "box_labels")
)


def write_part(
    plan: ExportPlan, part: Part, items: Iterable[ExportedRecord], path: pathlib.Path
) -> None:
    """Writes the Parquet file of a part.

    Raises:
        Exception: The first exception of `items`.
        OSError: If the file cannot be written.
    """
    import duckdb

    contents = _Contents(items, plan.source.known.label_base)
    sizes = [row.num_bytes for row, _ in plan.rows(part)]
    metadata = quoted(json.dumps(_metadata(plan)))
    # The function belongs to a whole database.
    with connected() as connection:
        connection.create_function(
            "content", contents.of, ["BIGINT"], _CONTENT, side_effects=True
        )
        # A row group ends with each of these queries, because two rows are enough.
        query = " UNION ALL ".join(
            f"SELECT {_COLUMNS} FROM (SELECT content(n) AS x FROM "
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


class _Contents:
    """The content of one row after the other, for a function of DuckDB."""

    def __init__(self, items: Iterable[ExportedRecord], label_base: int) -> None:
        self._items = enumerate(items)
        self._label_base = label_base
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
        }


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


def _metadata(plan: ExportPlan) -> dict[str, Any]:
    """Returns the features of the columns in the words of Hugging Face `datasets`."""
    names = side_files.label_names(plan.source.classes)
    features: dict[str, Any] = {
        "image": {"_type": "Image"},
        "label": {
            "names": names[plan.source.known.label_base :],
            "_type": "ClassLabel",
        },
        "class": _value("string"),
        "height": _value("int32"),
        "width": _value("int32"),
        "boxes": _list(_list(_value("float32"))),
        "box_labels": _list(_value("int64")),
    }
    return {"info": {"features": features}}


def _value(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "_type": "Value"}


def _list(feature: dict[str, Any]) -> dict[str, Any]:
    return {"feature": feature, "_type": "Sequence"}
