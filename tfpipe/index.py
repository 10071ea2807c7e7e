"""The index of a data set: index.json and catalog.parquet, read, written, checked.

In: what a converter wrote, or a folder of shards with its index. Out: `Index` (splits,
shards, sizes, classes) and the catalog's columns as numpy arrays, one row a record.
The index is written last, so that its presence says the data set is complete. Imports
no TensorFlow.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfpipe import errors

if TYPE_CHECKING:
    import duckdb
    import numpy.typing as npt

INDEX_NAME = "index.json"
CATALOG_NAME = "catalog.parquet"
FORMAT_VERSION = 1
DIGEST_ALGORITHM = "xxh3_128"

# One row a record, in the order of splits, shards and records within a shard.
CATALOG_COLUMNS: Mapping[str, str] = {
    "split": "VARCHAR",
    "shard": "INTEGER",  # number of the shard in its split
    "record": "INTEGER",  # number of the record in its shard
    "byte_offset": "BIGINT",  # where the record's header starts in the shard
    "num_bytes": "BIGINT",  # with header and footer
    "label": "INTEGER",
    "synset": "VARCHAR",
    "height": "INTEGER",  # pixels
    "width": "INTEGER",
    "filename": "VARCHAR",  # of the source, relative to the input folder
    "decision": "VARCHAR",  # what was done to the image, see converters.images
    "digest": "VARCHAR",  # of the stored JPEG bytes
}

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shard:
    """One shard file: its name, size and the digest of its bytes.

    Raises:
        ValueError: If the name is not that of a file in the data set's own folder, or a
            value is of another type.
    """

    name: str
    num_records: int
    num_bytes: int
    digest: str

    def __post_init__(self) -> None:
        require_base_name(self.name)
        for number in (self.num_records, self.num_bytes):
            if type(number) is not int or number < 0:
                raise ValueError(
                    f"shard {self.name!r} must have counts of 0 or more, got {number!r}"
                )
        if not isinstance(self.digest, str):
            raise ValueError(
                f"shard {self.name!r} must have a text as digest, got {self.digest!r}"
            )


def require_base_name(name: object) -> None:
    """Checks that a name is that of a file in a folder, and of no other place.

    Files are removed and replaced by such names: `../x` and `/x` must not be among
    them, and what starts with a dot is never a part of a data set.

    Raises:
        ValueError: If it is not.
    """
    plain = isinstance(name, str) and name and not name.startswith(".")
    if not plain or "/" in str(name) or "\0" in str(name):
        raise ValueError(
            "a file of a data set must have a plain name, without a folder and without "
            f"a dot in front, got {name!r}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Index:
    """What index.json says of a data set.

    Attributes:
        name: Name of the data set.
        label_base: Label on disk of the first class.
        classes: (synset, text) of each class, in label order.
        splits: Shards of each split, in order.
        made_by: How the data set was made: command, version, options, decisions.
    """

    name: str
    label_base: int
    classes: tuple[tuple[str, str], ...]
    splits: Mapping[str, tuple[Shard, ...]]
    made_by: Mapping[str, Any]

    @property
    def num_classes(self) -> int:
        """How many classes there are, whether or not each has records."""
        return len(self.classes)

    def num_records(self, split: str) -> int:
        """How many records a split has."""
        return sum(shard.num_records for shard in self.splits[split])


def load(data_dir: Path) -> Index:
    """Reads `data_dir/index.json`.

    Raises:
        BadIndexError: If it is missing, is not an index, or is of a later format.
    """
    path = pathlib.Path(data_dir) / INDEX_NAME
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise errors.BadIndexError(
            f"No data set in {data_dir}: {INDEX_NAME} is missing. Create one with "
            f"python -m converters.imagenet --output_dir={data_dir}."
        ) from None
    except (OSError, ValueError) as error:
        raise errors.BadIndexError(f"{path} cannot be read: {error}.") from error
    version = document.get("format_version") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise errors.BadIndexError(
            f"{path} must have format_version {FORMAT_VERSION}, got {version!r}. "
            "It was written by another version of tfpipe."
        )
    return _from_document(document, path)


def _from_document(document: Mapping[str, Any], path: pathlib.Path) -> Index:
    try:
        return Index(
            name=document["name"],
            label_base=document["label_base"],
            classes=tuple((c["synset"], c["text"]) for c in document["classes"]),
            splits={
                split: tuple(Shard(**shard) for shard in shards)
                for split, shards in document["splits"].items()
            },
            made_by=document["made_by"],
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise errors.BadIndexError(
            f"{path} is not a tfpipe index: {error!r}. Convert the data set again."
        ) from error


def write(index: Index, data_dir: Path, *, fsync: bool = True) -> None:
    """Writes `data_dir/index.json` so that it is there whole or not at all.

    Args:
        index: What to write.
        data_dir: Folder of the data set.
        fsync: As for `replace_file`.
    """
    document = {
        "format_version": FORMAT_VERSION,
        "name": index.name,
        "label_base": index.label_base,
        "digest_algorithm": DIGEST_ALGORITHM,
        "splits": {
            split: [dataclasses.asdict(shard) for shard in shards]
            for split, shards in index.splits.items()
        },
        "made_by": index.made_by,
        "classes": [{"synset": s, "text": t} for s, t in index.classes],
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    replace_file(pathlib.Path(data_dir) / INDEX_NAME, text.encode(), fsync=fsync)


def replace_file(path: pathlib.Path, content: bytes, *, fsync: bool = True) -> None:
    """Gives `path` this content at once: a reader sees the old file or the new one.

    Args:
        path: The file.
        content: What it is to hold.
        fsync: Whether it is on the disk, and not only with the kernel, at the end.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            if fsync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if fsync:
        sync_folder(path.parent)


def sync_folder(folder: pathlib.Path) -> None:
    """Makes renames inside a folder survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check(index: Index, data_dir: Path, split: str) -> None:
    """Checks that every shard of a split is there with the size the index states.

    One `stat` a shard: TensorFlow's own error for a cut shard names no file, so this
    runs before anything is read.

    Raises:
        BadIndexError: If the split is unknown, or a shard is missing or has another
                size.
    """
    if split not in index.splits:
        raise errors.BadIndexError(
            f"Unknown split {split!r} in {data_dir}: choose one of "
            f"{', '.join(sorted(index.splits))}."
        )
    for shard in index.splits[split]:
        path = pathlib.Path(data_dir) / shard.name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise errors.BadIndexError(
                f"Shard {path} is listed in {INDEX_NAME} but cannot be read: "
                f"{error.strerror}. Copy it again or convert the data set again."
            ) from None
        if size != shard.num_bytes:
            raise errors.BadIndexError(
                f"Shard {path} must have {shard.num_bytes} bytes as {INDEX_NAME} says, "
                f"got {size}. Copy it again or convert the data set again."
            )


@contextlib.contextmanager
def catalog_connection() -> "Iterator[duckdb.DuckDBPyConnection]":
    """What the catalog is written and queried with while it is made.

    One for all steps: opening one takes longer than a query over a small catalog.
    """
    import duckdb

    # One thread: rows keep their order and the file its bytes.
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def write_catalog(
    connection: "duckdb.DuckDBPyConnection",
    fragments: Sequence[pathlib.Path],
    path: pathlib.Path,
) -> None:
    """Joins the shards' catalog fragments, in the order given, into one Parquet file.

    Args:
        connection: A `catalog_connection`.
        fragments: Files of one JSON object a line with the keys of CATALOG_COLUMNS.
        path: The catalog to write.
    """
    rows = connection.read_json(
        [os.fspath(path) for path in fragments],  # type: ignore[arg-type]  # lists are right
        columns=dict(CATALOG_COLUMNS),
        format="newline_delimited",
    )
    rows.write_parquet(os.fspath(path), compression="zstd")


def record_places(
    connection: "duckdb.DuckDBPyConnection", catalog: pathlib.Path, index: Index
) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Name and (byte offset, bytes with frame) of each record, shard by shard.

    Those of a whole ImageNet at once would take 150 MB.
    """
    query = (
        "SELECT byte_offset, num_bytes FROM read_parquet(?) "
        "WHERE split = ? ORDER BY shard, record"
    )
    for split, shards in index.splits.items():
        rows = connection.execute(query, [os.fspath(catalog), split])
        for shard in shards:
            yield shard.name, rows.fetchmany(shard.num_records)


def digest(text: str) -> str:
    """32 hexadecimal digits of a text, to tell descriptions of data apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def load_filename(
    data_dir: Path, split: str, *, shard: int, byte_offset: int
) -> str | None:
    """The source file of the record at a place; None if no record begins there.

    Raises:
        BadIndexError: If the catalog is missing or unreadable.
    """
    row = _from_catalog(
        data_dir,
        "SELECT filename FROM read_parquet(?) "
        "WHERE split = ? AND shard = ? AND byte_offset = ?",
        [split, shard, byte_offset],
        lambda result: result.fetchone(),
    )
    return None if row is None else str(row[0])


def median_short_side(data_dir: Path, split: str) -> float:
    """Of the images of a split, in pixels.

    Raises:
        BadIndexError: If the catalog is missing or unreadable.
    """
    query = "SELECT median(least(height, width)) FROM read_parquet(?) WHERE split = ?"
    row = _from_catalog(data_dir, query, [split], lambda result: result.fetchone())
    return float(row[0])


def load_catalog(
    data_dir: Path, split: str, columns: Sequence[str]
) -> "dict[str, npt.NDArray[Any]]":
    """Columns of the catalog for one split, in record order.

    Raises:
        BadIndexError: If the catalog is missing or unreadable.
    """
    import numpy as np

    query = (
        f"SELECT {', '.join(columns)} FROM read_parquet(?) WHERE split = ?"
        " ORDER BY shard, record"
    )
    rows = _from_catalog(data_dir, query, [split], lambda result: result.fetchnumpy())
    return {name: np.asarray(rows[name]) for name in columns}


def _from_catalog(
    data_dir: Path,
    query: str,
    values: Sequence[object],
    fetch: "Callable[[duckdb.DuckDBPyConnection], Any]",
) -> Any:
    """What a query gives, whose first ? is the catalog's path and the rest `values`."""
    import duckdb

    path = pathlib.Path(data_dir) / CATALOG_NAME
    try:
        with _database().cursor() as connection:
            return fetch(connection.execute(query, [os.fspath(path), *values]))
    except duckdb.Error as error:
        raise errors.BadIndexError(
            f"{path} cannot be read: {str(error).splitlines()[0]} "
            "Convert the data set again."
        ) from error


@functools.cache
def _database() -> "duckdb.DuckDBPyConnection":
    """One for all queries: opening it takes 30 ms, and a query of a small catalog 1."""
    import duckdb

    # One thread, the caller's: threads of its own would rule out forks.
    return duckdb.connect(config={"threads": 1})
