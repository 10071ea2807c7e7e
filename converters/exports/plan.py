"""The plan of an export: which records go into which file, under which names.

In: a data set, its splits, a subset. Out: a `Part` for each shard with a chosen record;
a Parquet file with a row for each record, from which workers take their rows; and the
records of a part, as `ExportedRecord`s in order. The plan takes little memory, whatever
the number of records. The CRC of a record and the digest of its image are compared
first, so that no damage is exported.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

import xxhash

from converters.checks import record as keys
from converters.checks.record import CatalogRow
from converters.engines import processes
from converters.exports import naming
from converters.exports.source import Source, damaged, read_records
from converters.images import jpeg_header
from converters.inputs.image import Box
from converters.jobs import side_files
from tfpipe import errors
from tfpipe.pictures import formats
from tfpipe.shards import index, records
from tfpipe.shards.catalog import further_columns
from tfpipe.shards.example import Located, locate
from tfpipe.shards.sql import PARQUET, identifier, one_file, quoted, read_files

if TYPE_CHECKING:
    import duckdb

    from tfpipe.shards.subset import Subset


Format = Literal["tree", "webdataset", "arrayrecord", "parquet"]
FORMATS: tuple[Format, ...] = ("tree", "webdataset", "arrayrecord", "parquet")
Paths = Literal["auto", "source", "split"]

ROWS_NAME = "rows.parquet"
_COLUMNS = ("split", "shard", *CatalogRow._fields)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """The chosen records of one shard.

    Attributes:
        name: Name of its file; in a tree, which has many files, of its marker alone.
        split: Split of the shard.
        source_number: Number of the shard in its split.
        num_records: Number of chosen records, at least 1.
        num_bytes: Bytes of these records in the shard.
    """

    name: str
    split: str
    source_number: int
    num_records: int
    num_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportPlan:
    """All parts of an export.

    Attributes:
        kind: The format.
        style: How the images are named.
        source: The data set.
        parts: The parts, by split and shard.
        rows_path: File with the row of each record; column n of `columns` is `more_n`.
        columns: Columns of the catalog beside the usual ones.
    """

    kind: Format
    style: naming.Style
    source: Source
    parts: tuple[Part, ...]
    rows_path: pathlib.Path
    columns: tuple[str, ...]

    @property
    def num_records(self) -> int:
        """Number of records of all parts."""
        return sum(part.num_records for part in self.parts)

    @property
    def num_bytes(self) -> int:
        """Bytes of these records in their shards, which an export takes too, nearly."""
        return sum(part.num_bytes for part in self.parts)

    def rows(self, part: Part) -> list[tuple[CatalogRow, str, dict[str, Any]]]:
        """Returns the rows of a part in record order: row, path of image, columns."""
        more = [f"more_{n}" for n in range(len(self.columns))]
        query = (
            f"SELECT {', '.join((*CatalogRow._fields, 'path', *more))} FROM {PARQUET} "
            "WHERE split = ? AND shard = ? ORDER BY record"
        )
        with index.catalog_connection() as connection:
            values = [one_file(self.rows_path), part.split, part.source_number]
            rows = connection.execute(query, values).fetchall()
        count = len(CatalogRow._fields)
        return [
            (
                CatalogRow(*row[:count]),
                row[count],
                dict(zip(self.columns, row[count + 1 :], strict=True)),
            )
            for row in rows
        ]


def make_plan(
    source: Source,
    *,
    kind: Format,
    paths: Paths,
    subset: "Subset | None",
    folder: pathlib.Path,
) -> ExportPlan:
    """Chooses the records, names them, and divides them into parts.

    Args:
        source: The data set, with the splits to export.
        kind: The format.
        paths: How files of a tree are named.
        subset: Records to export; None exports all.
        folder: Folder for the file of rows.

    Raises:
        ValueError: If names cannot be made, or TFDS could not read those of shards.
        BadSubsetError: If the subset is one of another data set.
    """
    rows_path = folder / ROWS_NAME
    with index.catalog_connection() as connection:
        _choose(connection, source, subset)
        style = _style(connection, source, kind, paths)
        naming.add_paths(connection, style)
        catalog = source.folder / index.CATALOG_NAME
        columns = tuple(further_columns(catalog))
        own = (f"named.{name}" for name in _COLUMNS)
        more = (f"c.{identifier(name)} AS more_{n}" for n, name in enumerate(columns))
        connection.execute(
            f"COPY (SELECT {', '.join((*own, 'path', *more))} FROM named "
            f"JOIN {read_files('parquet', [catalog])} c USING (split, shard, record) "
            f"ORDER BY list_position(?, split), shard, record) TO {quoted(rows_path)} "
            "(FORMAT parquet, COMPRESSION zstd)",
            [list(source.known.splits)],
        )
        counts = connection.execute(
            "SELECT split, shard, count(*), sum(num_bytes)::BIGINT FROM named "
            "GROUP BY split, shard ORDER BY list_position(?, split), shard",
            [list(source.known.splits)],
        ).fetchall()
    parts = _parts(source, kind, counts)
    return ExportPlan(
        kind=kind,
        style=style,
        source=source,
        parts=parts,
        rows_path=rows_path,
        columns=columns,
    )


def _choose(
    connection: "duckdb.DuckDBPyConnection", source: Source, subset: "Subset | None"
) -> None:
    """Makes the table `chosen`: the catalog's rows of the records to export."""
    splits = list(source.known.splits)
    query = (
        f"CREATE TEMP TABLE chosen AS SELECT {', '.join(_COLUMNS)} "
        f"FROM {PARQUET} AS catalog "
    )
    catalog = one_file(source.folder / index.CATALOG_NAME)
    if subset is None:
        connection.execute(
            query + "WHERE split IN (SELECT unnest(?))", [catalog, splits]
        )
        return
    connection.execute(
        "CREATE TEMP TABLE wanted (split VARCHAR, shard INT, record INT)"
    )
    for split in splits:
        if not len(subset.splits.get(split, ())):
            continue
        chosen = subset.splits[split]
        numbers = {"shard": chosen.shard, "record": chosen.record}
        connection.register("numbers", numbers)
        connection.execute(
            "INSERT INTO wanted SELECT ?, shard, record FROM numbers", [split]
        )
        connection.unregister("numbers")
    connection.execute(
        query + "SEMI JOIN wanted USING (split, shard, record)", [catalog]
    )


def _style(
    connection: "duckdb.DuckDBPyConnection", source: Source, kind: Format, paths: Paths
) -> naming.Style:
    if kind != "tree":
        return "key"
    if paths != "auto":
        return paths
    rows = connection.execute("SELECT DISTINCT split FROM chosen").fetchall()
    imagenet = naming.is_imagenet(source, [split for (split,) in rows])
    return "source" if naming.is_readable(connection, imagenet=imagenet) else "split"


def _parts(
    source: Source, kind: Format, counts: list[tuple[str, int, int, int]]
) -> tuple[Part, ...]:
    parts = []
    per_split: dict[str, int] = {}
    for split, *_ in counts:
        per_split[split] = per_split.get(split, 0) + 1
    numbers = dict.fromkeys(per_split, 0)
    for split, source_number, num_records, num_bytes in counts:
        number = numbers[split]
        numbers[split] += 1
        name = _file_name(kind, source.known.name, split, number, per_split[split])
        parts.append(
            Part(
                name=name,
                split=split,
                source_number=source_number,
                num_records=num_records,
                num_bytes=num_bytes,
            )
        )
    return tuple(parts)


def _file_name(kind: Format, dataset: str, split: str, number: int, count: int) -> str:
    """Returns the name of a part, as the usual readers of its format expect it."""
    if kind == "webdataset":
        return f"{split}-{number:06d}.tar"
    place = side_files.shard_name(
        "inception", "", split=split, number=number, num_shards=count
    )
    if kind == "arrayrecord":
        side_files.require_name(dataset)
        return f"{dataset}-{split}.array_record{place.removeprefix(split)}"
    return f"{place}.parquet" if kind == "parquet" else place


_SIDES = tuple(f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax"))
_BOX_LABELS = ("image/object/bbox/label", "image/object/class/label")


class ExportedRecord(NamedTuple):
    """A record to export.

    Attributes:
        row: Its row of the catalog.
        path: Path of its image in the export.
        data: The serialized example.
        encoded: The image, as stored.
        boxes: (xmin, ymin, xmax, ymax) of each box, relative, 0 to 1.
        box_labels: Label of each box, as stored.
        more: Values of the columns of the plan.
    """

    row: CatalogRow
    path: str
    data: bytes
    encoded: bytes
    boxes: list[Box]
    box_labels: list[int]
    more: Mapping[str, Any] = {}

    @property
    def suffix(self) -> str:
        """Suffix of the image by its content, without a dot: jpg, png and so on."""
        if self.encoded.startswith(jpeg_header.MAGIC):
            return "jpg"
        return (formats.sniff(self.encoded) or "bin").lower()


def read_items(plan: ExportPlan, part: Part) -> Iterator[ExportedRecord]:
    """Yields the items of a part, and counts each one as done.

    Raises:
        BadRecordError: If a record is damaged, or is not the one of the catalog.
        OSError: If the shard cannot be read, or is not the one in the index.
        RemoteError: If the shard cannot be read from its URL.
    """

    def fail(row: CatalogRow, fault: str) -> NoReturn:
        raise damaged(plan.source, part.split, part.source_number, row, fault, "")

    rows = plan.rows(part)
    framed_records = read_records(
        plan.source, part.split, part.source_number, [row for row, *_ in rows], fail
    )
    for (_, path, more), (row, framed) in zip(rows, framed_records, strict=True):
        try:
            yield _item(row, path, more, framed)
        except errors.BadRecordError as error:
            fail(row, str(error))
        processes.image_done()


def _item(
    row: CatalogRow, path: str, more: Mapping[str, Any], framed: bytes
) -> ExportedRecord:
    """Returns the item of a record, from its bytes with header and footer."""
    data = framed[records.HEADER_BYTES : -records.FOOTER_BYTES]
    found = locate(data)
    key = next((key for key in keys.ENCODED_KEYS if key in found.entries), None)
    values = found.feature(key).values if key else []
    if len(values) != 1 or not isinstance(values[0], bytes):
        listed = " or ".join(keys.ENCODED_KEYS)
        raise errors.BadRecordError(f"it has no single image under {listed}")
    encoded = values[0]
    if row.digest and xxhash.xxh3_128_hexdigest(encoded) != row.digest:
        raise errors.BadRecordError(
            f"its image must have the digest {row.digest} of {index.CATALOG_NAME}, got "
            "another one"
        )
    boxes, labels = _boxes(found)
    return ExportedRecord(row, path, data, encoded, boxes, labels, more)


def _boxes(found: Located) -> tuple[list[Box], list[int]]:
    """Returns the boxes of a record and their labels; none if it has none."""
    if any(side not in found.entries for side in _SIDES):
        return [], []
    sides = [found.feature(side).values for side in _SIDES]
    if len({len(side) for side in sides}) != 1:
        raise errors.BadRecordError("its boxes have not four sides each")
    boxes = list(zip(*sides, strict=True))
    key = next((key for key in _BOX_LABELS if key in found.entries), None)
    labels = list(found.feature(key).values) if key else []
    return boxes, labels if len(labels) == len(boxes) else []
