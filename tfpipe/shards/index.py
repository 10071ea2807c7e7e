"""The index of a data set: index.json and catalog.parquet, read, written, checked.

In: a folder with index.json, catalog.parquet and shards, or an `Index` to write. Out:
`Index` (splits, shards, sizes, classes), and the catalog's columns as numpy arrays with
a row for each record. The index is written last: a folder with an index.json holds a
complete data set. Imports no TensorFlow.

An index has exactly one text. The text holds a digest of itself, so that a change of
any byte is detected. Older files without the digest are read too.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
import pathlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import xxhash

from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.shards import indented, sql
from tfpipe.shards.sql import PARQUET, one_file

if TYPE_CHECKING:
    import duckdb
    import numpy.typing as npt

FORMAT_VERSION = 1
DIGEST_ALGORITHM = "xxh3_128"

_DIGEST = "digest"
_FILES = "files"
# Names of JSON types in errors.
_TYPE_NAMES = {str: "a text", int: "a whole number", dict: "an object", list: "a list"}
_MAX_COUNT = 2**63 - 1
_SHOWN = 60

INDEX_NAME = "index.json"
CATALOG_NAME = "catalog.parquet"
# A folder beside shards: DALI's index of each shard, under the name of the shard.
DALI_DIR_NAME = "dali_idx"

# The catalog has one row a record, in the order of splits, shards and records.
CATALOG_COLUMNS: Mapping[str, str] = {
    "split": "VARCHAR",
    "shard": "INTEGER",  # number of the shard in its split
    "record": "INTEGER",  # number of the record in its shard
    "byte_offset": "BIGINT",  # of the record's header in the shard
    "num_bytes": "BIGINT",  # of the record with header and footer
    "label": "INTEGER",
    "synset": "VARCHAR",
    "height": "INTEGER",  # pixels
    "width": "INTEGER",
    "filename": "VARCHAR",  # of the source, relative to the input folder
    "decision": "VARCHAR",  # change made to the image, see converters.images.prepare
    "digest": "VARCHAR",  # of the stored JPEG bytes
}

Path = str | os.PathLike[str]

_PIECE_BYTES = 1 << 20
GENERATION_FOLDER = re.compile(r"gen-[0-9]{6}")


def require_base_name(name: object) -> None:
    """Checks that a name is a plain file name, without a folder and a leading dot.

    Files are read, replaced and removed by names from the index: `../x` and `/x` must
    not reach other folders. Files that start with a dot never belong to a data set.

    Raises:
        ValueError: If the name is not plain.
    """
    plain = isinstance(name, str) and name and not name.startswith(".")
    if not plain or "/" in str(name) or "\0" in str(name):
        raise ValueError(
            "a file of a data set must have a plain name, without a folder and without "
            f"a dot in front, got {_shown(name)}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shard:
    """A shard file: its name, size and the digest of its bytes.

    Raises:
        ValueError: If the name is not a plain file name, or a value has another type.
    """

    name: str
    num_records: int
    num_bytes: int
    digest: str

    def __post_init__(self) -> None:
        folder, _, base = str(self.name).partition("/")
        require_base_name(base if GENERATION_FOLDER.fullmatch(folder) else self.name)
        _require_count(self.num_records, "'num_records'")
        _require_count(self.num_bytes, "'num_bytes'")
        _typed(self.digest, str, "'digest'")


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """A file beside the shards: its size and the digest of its bytes.

    Raises:
        ValueError: If a value has another type.
    """

    num_bytes: int
    digest: str

    def __post_init__(self) -> None:
        _require_count(self.num_bytes, "'num_bytes'")
        _typed(self.digest, str, "'digest'")


_Entry = TypeVar("_Entry", Shard, File)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Index:
    """The content of index.json.

    Attributes:
        name: Name of the data set.
        label_base: Label on disk of the first class.
        classes: (synset, text) of each class, in label order.
        splits: Shards of each split, in order.
        made_by: Command, version, options and decisions of the conversion.
        files: The catalog and the side files by their paths in the data set; None if
            an older version wrote the index, which did not list them.
    """

    name: str
    label_base: int
    classes: tuple[tuple[str, str], ...]
    splits: Mapping[str, tuple[Shard, ...]]
    made_by: Mapping[str, Any]
    files: Mapping[str, File] | None = None

    @property
    def num_classes(self) -> int:
        """Number of classes; some may have no records."""
        return len(self.classes)

    def num_records(self, split: str) -> int:
        """Returns the number of records of a split."""
        return sum(shard.num_records for shard in self.splits[split])


def load(data_dir: Path) -> Index:
    """Reads `data_dir/index.json`.

    Raises:
        BadIndexError: If the file is missing, no index, or of a later format.
    """
    path = pathlib.Path(data_dir) / INDEX_NAME
    return parse(_read(path), os.fspath(path))


# A pipeline reads the index several times. Decoding takes longer than reading.
@functools.lru_cache(maxsize=4)
def parse(content: bytes, shown: str) -> Index:
    """Returns the index in the content of an index.json.

    Args:
        content: The content.
        shown: Path or URL of the file, for errors.

    Raises:
        BadIndexError: If the content is no index, or has a later format.
    """
    with _as_bad_index(shown):
        document = errors.from_json(content.decode())
    version = document.get("format_version") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise errors.BadIndexError(
            f"{shown} must have format_version {FORMAT_VERSION}, got {version!r}: "
            "2 is a growing data set, others are of other versions of tfpipe."
        )
    try:
        return decode(document)
    except ValueError as error:
        raise errors.BadIndexError(
            f"{shown} is not a tfpipe index: {error}. Convert the data set again."
        ) from error


def change(data_dir: Path) -> str:
    """Describes how index.json was changed after it was written, see `change_of`."""
    path = pathlib.Path(data_dir) / INDEX_NAME
    return change_of(_read(path), os.fspath(path))


def _read(path: pathlib.Path) -> bytes:
    """Reads an index.json."""
    if path.exists() and not path.is_file():
        # Reading a named pipe would wait forever.
        raise errors.BadIndexError(f"{path} cannot be read: it is no regular file.")
    try:
        return path.read_bytes()
    except errors.LOST:
        raise missing(path.parent) from None
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(
    path: Path, error: OSError, *, lost: str = "Convert the data set again."
) -> errors.BadIndexError:
    """Returns the error for a file that cannot be read.

    Args:
        path: The file, also between words.
        error: The error of the system.
        lost: Remedy for a missing file. Other errors do not blame the file.
    """
    is_lost = isinstance(error, errors.LOST)
    remedy = lost if is_lost else "Run again when the file can be read."
    return errors.BadIndexError(
        f"{os.fspath(path)} cannot be read: {error.strerror}. {remedy}"
    )


def missing(folder: pathlib.Path) -> errors.BadIndexError:
    """Returns the error for a folder without index.json; it says what lies there."""
    from tfpipe.shards import missing_index

    return errors.BadIndexError(
        f"No data set in {folder}: {INDEX_NAME} is missing. "
        f"{missing_index.remedy(folder)}"
    )


@contextlib.contextmanager
def _as_bad_index(shown: str) -> Iterator[None]:
    """Turns a ValueError about the content of an index into a BadIndexError."""
    try:
        yield
    except ValueError as error:
        raise errors.BadIndexError(f"{shown} cannot be read: {error}.") from error


def write(index: Index, data_dir: Path, *, fsync: bool = True) -> None:
    """Writes `data_dir/index.json` in one step: a reader never sees a part of it.

    Args:
        index: The index to write.
        data_dir: Folder of the data set.
        fsync: As for `atomic.write`.
    """
    content = encode(index).encode()
    atomic.write(pathlib.Path(data_dir) / INDEX_NAME, content, fsync=fsync)


def describe(content: bytes) -> File:
    """Returns the entry of the index for a file beside the shards with this content."""
    digest = xxhash.xxh3_128_hexdigest(content)
    return File(num_bytes=len(content), digest=digest)


def describe_file(path: pathlib.Path) -> File:
    """Returns the same entry for a file on disk, which is read in pieces.

    Raises:
        OSError: If the file cannot be read.
    """
    digest, num_bytes = xxhash.xxh3_128(), 0
    with open(path, "rb") as file, atomic.naming(path):
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            num_bytes += len(piece)
    return File(num_bytes=num_bytes, digest=digest.hexdigest())


def check(index: Index, data_dir: Path, split: str) -> list[int]:
    """Checks that every shard of a split exists with the size that the index states.

    This takes one `stat` a shard and runs before anything is read, because TensorFlow's
    own error for a cut shard names no file.

    Returns:
        The time of each shard's last change in ns.

    Raises:
        BadIndexError: If the split is unknown, or a shard is missing or has another
            size.
    """
    require_split(index.splits, data_dir, split)
    times = []
    for shard in index.splits[split]:
        path = os.path.join(data_dir, shard.name)
        try:
            status = os.stat(path)
        except OSError as error:
            shown = f"Shard {path} is listed in {INDEX_NAME} but"
            lost = "Copy it again or convert the data set again."
            raise unreadable(shown, error, lost=lost) from None
        if status.st_size != shard.num_bytes:
            raise errors.BadIndexError(
                f"Shard {path} must have {shard.num_bytes} bytes as {INDEX_NAME} says, "
                f"got {status.st_size}. Copy it again or convert the data set again."
            )
        times.append(status.st_mtime_ns)
    return times


def require_split(splits: Collection[str], data_dir: Path, split: str) -> None:
    """Checks that a split is among those of a data set.

    Raises:
        BadIndexError: If the data set has no split of this name.
    """
    if split not in splits:
        raise errors.BadIndexError(
            f"Unknown split {split!r} in {data_dir}: choose one of "
            f"{', '.join(sorted(splits))}.{errors.did_you_mean(str(split), splits)}"
        )


def rows_of(shards: Sequence[Shard]) -> list[tuple[str, int, int, str]]:
    """Returns name, records, bytes and digest of each shard, for a digest of all."""
    return [(s.name, s.num_records, s.num_bytes, s.digest) for s in shards]


def digest(text: str) -> str:
    """Returns a digest of a text, 32 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def encode(index: Index) -> str:
    """Returns the text of an index.json, with its own digest before the last line."""
    document = {
        "format_version": FORMAT_VERSION,
        "name": index.name,
        "label_base": index.label_base,
        "digest_algorithm": DIGEST_ALGORITHM,
        "splits": {
            split: [vars(shard) for shard in shards]
            for split, shards in index.splits.items()
        },
        "made_by": index.made_by,
        "classes": [{"synset": s, "text": t} for s, t in index.classes],
    }
    if index.files is not None:
        document[_FILES] = {
            path: vars(index.files[path]) for path in sorted(index.files)
        }
    text = indented.text_of(document)
    # A path may have bytes that are no UTF-8: JSON has escapes for them.
    content = text.encode(errors="backslashreplace")
    text, digest = content.decode(), xxhash.xxh3_128_hexdigest(content)
    before_end = text.removesuffix("\n}")
    return f'{before_end},\n "{_DIGEST}": "{digest}"\n}}\n'


def decode(document: object) -> Index:
    """Returns the index that a JSON document describes.

    Raises:
        ValueError: If a key is missing or a value has another type; names it.
    """
    top = _typed(document, dict, "the document")
    classes = (_typed(c, dict, "a class") for c in _get(top, "classes", list))
    splits = {
        split: tuple(
            _built(Shard, _typed(shard, dict, "a shard"))
            for shard in _typed(shards, list, f"split {split!r}")
        )
        for split, shards in _get(top, "splits", dict).items()
    }
    _require_count(_value(top, "label_base"), "'label_base'")
    return Index(
        name=_get(top, "name", str),
        label_base=top["label_base"],
        classes=tuple((_get(c, "synset", str), _get(c, "text", str)) for c in classes),
        splits=splits,
        made_by=_get(top, "made_by", dict),
        files=_decode_files(_get(top, _FILES, dict)) if _FILES in top else None,
    )


def change_of(content: bytes, shown: str) -> str:
    """Describes how the content of an index.json was changed, for people.

    The text is empty if the content is unchanged, and also if an older version wrote
    the index: such an index holds no digest to compare with.

    Raises:
        BadIndexError: If the content is not an index.
    """
    with _as_bad_index(shown):
        text = content.decode()
        document = errors.from_json(text)
        wanted = encode(decode(document))
    if _DIGEST not in document and _FILES not in document:
        return ""
    if text == wanted:
        return ""
    expected, got = document.get(_DIGEST), errors.from_json(wanted)[_DIGEST]
    if expected != got:
        return f"its digest must be {_shown(expected)} as it says, got {got}"
    pairs = enumerate(zip(text, wanted, strict=False))
    first = next((n for n, (a, b) in pairs if a != b), min(len(text), len(wanted)))
    return f"its digest is right, but it was written otherwise from character {first}"


def _built(kind: type[_Entry], values: Mapping[str, Any]) -> _Entry:
    names = kind.__dataclass_fields__  # `dataclasses.fields` takes half of a load
    return kind(**{name: _value(values, name) for name in names})


def _decode_files(entries: Mapping[str, Any]) -> dict[str, File]:
    files = {}
    for path, entry in entries.items():
        for part in path.split("/", 1):  # a side file may be in a folder
            require_base_name(part)
        files[path] = _built(File, _typed(entry, dict, f"file {_shown(path)}"))
    return files


def _value(fields: Mapping[str, Any], key: str) -> Any:
    if key not in fields:
        raise ValueError(f"{key!r} is missing")
    return fields[key]


def _get(fields: Mapping[str, Any], key: str, kind: type) -> Any:
    return _typed(_value(fields, key), kind, repr(key))


def _require_count(value: object, what: str) -> None:
    if not 0 <= _typed(value, int, what) <= _MAX_COUNT:
        raise ValueError(f"{what} must be 0 to {_MAX_COUNT}, got {_shown(value)}")


def _typed(value: object, kind: type, what: str) -> Any:
    if type(value) is not kind:  # isinstance would take True for a number
        raise ValueError(f"{what} must be {_TYPE_NAMES[kind]}, got {_shown(value)}")
    return value


def _shown(value: object) -> str:
    """Returns a value as text for a message, cut if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


@contextlib.contextmanager
def catalog_connection() -> "Iterator[duckdb.DuckDBPyConnection]":
    """Yields a connection with which a catalog is written and checked.

    Rows keep their order, and files their bytes. All connections share one database, so
    make only temporary tables, which end with the connection.

    Raises:
        OSError: If the system refuses a file, see `sql.system_error`.
    """
    try:
        with _database().cursor() as connection, sql.guarded(connection):
            yield connection
    except Exception:
        # A damaged file may have ended the database: the next query opens another.
        _database.cache_clear()
        raise


def write_catalog(
    connection: "duckdb.DuckDBPyConnection",
    fragments: Sequence[pathlib.Path],
    path: pathlib.Path,
    *,
    more: Mapping[str, str] | None = None,
) -> None:
    """Joins the shards' catalog fragments, in the order given, into one Parquet file.

    Args:
        connection: A `catalog_connection`.
        fragments: Files of one JSON object a line with the keys of CATALOG_COLUMNS.
        path: The catalog to write.
        more: More keys of the objects, with their types.
    """
    rows = sql.read_lines(fragments, {**CATALOG_COLUMNS, **(more or {})})
    connection.execute(
        f"COPY (FROM {rows}) TO {sql.quoted(path)} (FORMAT parquet, COMPRESSION zstd)"
    )


def record_places(
    connection: "duckdb.DuckDBPyConnection", catalog: pathlib.Path, index: Index
) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Yields a shard's name and the (byte offset, size on disk) of its records.

    Shard by shard: the records of a whole ImageNet would take 150 MB.
    """
    query = (
        f"SELECT byte_offset, num_bytes FROM {PARQUET} "
        "WHERE split = ? ORDER BY shard, record"
    )
    for split, shards in index.splits.items():
        rows = connection.execute(query, [one_file(catalog), split])
        for shard in shards:
            yield shard.name, rows.fetchmany(shard.num_records)


def load_catalog(
    data_dir: Path,
    split: str,
    columns: Sequence[str],
    *,
    shards: Sequence[int] | None = None,
) -> "dict[str, npt.NDArray[Any]]":
    """Reads columns of the catalog for one split, in record order.

    Args:
        data_dir: Folder of the data set.
        split: Name of the split.
        columns: Names of the columns.
        shards: Numbers of the shards to read; None is all. DuckDB passes over parts of
            the file that have no row of these shards.

    Raises:
        BadIndexError: If the catalog is missing or unreadable, or a column has another
            type or a row without a value.
    """
    import numpy as np

    query = (
        f"SELECT {', '.join(columns)} FROM {PARQUET} WHERE split = ?"
        f"{'' if shards is None else f' AND shard IN ({str([*shards])[1:-1]})'}"
        " ORDER BY shard, record"
    )
    rows = _from_catalog(data_dir, query, [split], lambda result: result.fetchnumpy())
    for name in columns:
        kind = "O" if CATALOG_COLUMNS[name] == "VARCHAR" else "i"
        if rows[name].dtype.kind != kind or np.any(getattr(rows[name], "mask", False)):
            raise _bad_catalog(
                data_dir,
                f"column {name} must be {CATALOG_COLUMNS[name]} without empty values.",
            )
    return {name: np.asarray(rows[name]) for name in columns}


def query_catalog(
    data_dir: Path, query: str, values: Sequence[object]
) -> list[tuple[Any, ...]]:
    """Returns the rows of a query on the catalog.

    Args:
        data_dir: Folder of the data set.
        query: SQL; its first ? stands for the path of the catalog.
        values: The values for the other ?.

    Raises:
        BadIndexError: If the catalog is missing or unreadable.
    """
    rows = _from_catalog(data_dir, query, values, lambda result: result.fetchall())
    return list(rows)


def _from_catalog(
    data_dir: Path,
    query: str,
    values: Sequence[object],
    fetch: "Callable[[duckdb.DuckDBPyConnection], Any]",
) -> Any:
    """Runs a query, see `query_catalog`, and returns the result through `fetch`."""
    path = pathlib.Path(data_dir) / CATALOG_NAME
    if path.exists() and not path.is_file():
        raise _bad_catalog(data_dir, "it is no regular file.")
    try:
        with catalog_connection() as connection:
            return fetch(connection.execute(query, [one_file(path), *values]))
    except (sql.engine().Error, ValueError) as error:
        raise _bad_catalog(data_dir, str(error).splitlines()[0]) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _bad_catalog(data_dir: Path, why: str) -> errors.BadIndexError:
    path = pathlib.Path(data_dir) / CATALOG_NAME
    return errors.BadIndexError(
        f"{path} cannot be read: {why} Convert the data set again."
    )


@functools.cache
def _database() -> "duckdb.DuckDBPyConnection":
    """Opens the database of all queries: opening takes 30 ms, a query 1 ms."""
    return sql.connect()
