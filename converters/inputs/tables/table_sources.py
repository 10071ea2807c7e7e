"""Finds the table of a user: files by path or URL, or a database.

In: the text of a flag. Out: a `TableSource`. The content of a file decides its kind
where possible; its name decides for CSV and JSON lines. A password never leaves a
`TableSource`. Files at a URL are copied to a folder, in pieces of limited memory.
"""

import contextlib
import dataclasses
import functools
import io
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from converters.inputs import patterns, servers
from converters.inputs.classes import CLASSES_NAME, EXPORT_NAME
from converters.inputs.tables import documents
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.location.parts import open_file, state_of
from tfpipe.shard_cache import metadata
from tfpipe.shards import missing_index

CSV, JSON, PARQUET = "CSV", "JSON lines", "Parquet"
SQLITE, DOCUMENTS = "SQLite", "BSON or Extended JSON"
DATABASES = (SQLITE, servers.POSTGRESQL, servers.MYSQL)

_KINDS: Mapping[str, str] = {
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz"), CSV),
    **dict.fromkeys((".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".json"), JSON),
    **dict.fromkeys((".parquet", ".pq"), PARQUET),
    **dict.fromkeys((".bson", ".bson.gz"), DOCUMENTS),
    **dict.fromkeys((".sqlite", ".sqlite3", ".db"), SQLITE),
}
_MAGIC = {b"PAR1": PARQUET, b"SQLite format 3\0": SQLITE}
_KNOWN = (
    "a file that ends in .csv, .tsv, .jsonl, .ndjson, .json, .bson or .parquet, a "
    "SQLite file, a folder or pattern of such files, postgresql://... or mysql://..."
)
_other = functools.partial(missing_index.other_converter, asked="converters.table")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSource:
    """A table, or a database, with a query or the name of a table.

    Attributes:
        kind: A kind of `table_sources`.
        shown: The place, as printed and stored: without a password.
        files: Paths, or URLs of files; empty for a database server.
        url: URL of a database server, with its password, if any.
        table: Name of a table in the database; None leaves the choice to the query.
        top: Folder above all files that the flag names.
    """

    kind: str
    shown: str
    files: Sequence[str] = ()
    url: str = dataclasses.field(default="", repr=False)
    table: str | None = None
    top: Location = dataclasses.field(default=Location("."))

    @property
    def is_database(self) -> bool:
        """Whether a query of its own language reads the source."""
        return self.kind in DATABASES

    @property
    def has_cursor(self) -> bool:
        """Whether the rows come from a cursor, and not from a reader of DuckDB."""
        return self.is_database or self.kind == DOCUMENTS

    @property
    def is_remote(self) -> bool:
        """Whether its files are at a URL."""
        return not all(Location(file).is_local for file in self.files)

    @property
    def folder(self) -> Location:
        """Folder of the first file; the current folder for a database server."""
        return Location(self.files[0]).parent if self.files else Location(".")

    def states(self) -> dict[str, str]:
        """Returns the states of the files on the host, by its absolute path."""
        if self.is_remote:
            return {}
        return {os.path.abspath(path): state_of(Location(path)) for path in self.files}

    def state(self) -> object:
        """Returns JSON values, which change with the files."""
        if not (states := self.states()):
            return [self.shown, self.table, list(self.files)]
        return [self.table, *states.items()]


def find(name: str, value: str) -> TableSource:
    """Returns the table in the value of a flag."""
    if not value:
        raise ValueError(f"{name} must be {_KNOWN}, got nothing.")
    if servers.is_server(value):
        return TableSource(**servers.server(name, value))
    if servers.may_hold_secret(value):
        raise ValueError(
            f"{name} must be {_KNOWN}, got another text. The text is not shown here "
            "because it may hold a secret."
        )
    location = Location.from_user(name, value)
    path, table = location.text, None
    if location.is_local:
        path = os.path.expanduser(value)
        if not os.path.lexists(path) and "#" in path:
            path, _, table = path.rpartition("#")
    shown = value if location.is_local else location.shown
    try:
        files = [*patterns.matching(name, path, TABLES)]
    except FileNotFoundError as error:
        if error.filename != path:
            raise
        raise _no_table(name, path, shown) from None
    if len(files) > 1:
        exports = {each for each in files if os.path.basename(each) == EXPORT_NAME}
        lists = {os.path.join(os.path.dirname(each), CLASSES_NAME) for each in exports}
        files = [each for each in files if each not in exports | lists]
    if not files:
        raise _no_table(name, path, shown)
    kind = _kind_of_files(name, files)
    if kind == SQLITE and not location.is_local:
        raise ValueError(
            f"{name} must be a path where it is a SQLite file, got {shown}. Copy the "
            "file here first."
        )
    if table is not None and kind != SQLITE:
        raise ValueError(
            f"{name} takes #{table} behind a database only, got the {kind} file {path}."
        )
    top = patterns.folder_in(path, files)
    return TableSource(kind=kind, shown=shown, files=files, table=table, top=top)


def _no_table(name: str, path: str, shown: str) -> ValueError:
    why, is_local = "there is no such file.", Location(path).is_local
    if is_local:
        errors.require_visible(path)
    if not is_local or os.path.lexists(path):
        why = f"without a file with such an ending.{_other(shown)}"
    return ValueError(f"{name} must be {_KNOWN}, got {shown}: {why}")


def _kind_of_files(name: str, files: Sequence[str]) -> str:
    first: dict[str | None, str] = {}
    for file in files:
        first.setdefault(_kind_of_file(file), file)
    if None in first:
        raise ValueError(
            f"{name} must be {_KNOWN}, got {first[None]}.{_other(first[None])}"
        )
    if len(first) > 1 or (SQLITE in first and len(files) > 1):
        raise ValueError(
            f"{name} must be files of one kind that are one table, got "
            f"{' and '.join(sorted(first.values()))}. Name one kind, such as "
            "'folder/*.parquet'."
        )
    return str(next(iter(first)))


def has_ending(name: str) -> bool:
    """Whether a name ends like a table; behind a database may be `#table`."""
    before = name.rpartition("#")[0]
    return any(_kind_of_name(each) is not None for each in (name, before))


def _kind_of_name(name: str) -> str | None:
    endings = "".join(pathlib.PurePosixPath(name.lower()).suffixes[-2:])
    return _KINDS.get(endings) or _KINDS.get(os.path.splitext(name.lower())[1])


TABLES = patterns.Kind("tables", is_one=lambda name: _kind_of_name(name) is not None)


def _kind_of_file(path: str) -> str | None:
    """Returns the kind of a file by its first bytes on this host, or else its name."""
    if not Location(path).is_local:
        return _kind_of_name(path)
    with open(open_file(path), "rb") as file:
        head = file.read(16)
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    named = _kind_of_name(path)
    if named == JSON and documents.is_extended(path):
        return DOCUMENTS
    if named in _MAGIC.values() and head:
        raise ValueError(f"{path} must be a {named} file, got other bytes.")
    return named


@contextlib.contextmanager
def opened_text(path: str) -> Iterator[TextIO]:
    """Opens a file of text, packed by gzip or not, without its byte order mark."""
    with documents.opened(path) as file:
        yield io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="")


def near(source: TableSource, folder: pathlib.Path) -> TableSource:
    """Returns a source whose files are on the host, copied to a folder if at URLs."""
    if not source.is_remote:
        return source
    folder.mkdir(parents=True, exist_ok=True)
    copies = []
    for number, url in enumerate(map(Location, source.files)):
        location, name = url.split()
        path, files = folder / f"{number:05d}-{url.name}", Files(location)
        metadata.download(files, name, path, files.size(name))
        copies.append(str(path))
    return dataclasses.replace(source, files=copies)
