"""Growing data sets: generations of shards, and the log that lists them.

In: the files of a growing data set. Out: the generations and their folders, a new
generation that is published once, and a view: index and catalog of all shards of a
generation, as a usual data set has them. Imports no TensorFlow.

    index.json                 the whole log, replaced after each generation; may lag
    generations/000012.json    an entry of the log, made once and never replaced
    gen-000012/                a usual data set: index.json, catalog.parquet, shards

Generation N is what the first N entries of the log say. An entry adds a folder, or puts
a folder in the place of an earlier one. The number of a folder says when its writer
began; with several writers it may differ from the number of the generation.
"""

import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shards import index, sql
from tfpipe.shards.index import CATALOG_NAME, INDEX_NAME, Index, Shard

FORMAT_VERSION = 2
LOG_FOLDER = "generations"
_KEY = "generations"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogEntry:
    """An entry of the log.

    Attributes:
        generation: Number of the generation, from 1.
        folder: The folder that the generation adds; "" adds none.
        digest: Digest of the folder's shards, see `identity`.
        num_records: Records of the folder.
        replaces: The folder in whose place the folder comes; "" adds the folder.

    Raises:
        ValueError: If a folder has another name, or a number is out of range.
    """

    generation: int
    folder: str
    digest: str
    num_records: int
    replaces: str = ""

    def __post_init__(self) -> None:
        errors.settle_ints(self, ["generation"], least=1)
        errors.settle_ints(self, ["num_records"], least=0)
        for folder in [f for f in (self.folder, self.replaces) if f] or [""]:
            if not index.GENERATION_FOLDER.fullmatch(folder):
                raise ValueError(
                    f"Folder of a generation must be as gen-000012, got {folder!r}."
                )


Log = tuple[LogEntry, ...]


def is_log(content: bytes) -> bool:
    """Whether the content of an index.json is the log of a growing data set."""
    return b'"generations": [' in content[:64]


def is_growing(files: Files) -> bool:
    """Whether a data set grows.

    Raises:
        RemoteError: If the data set cannot be read.
    """
    if files.location.is_local:
        return is_growing_folder(files.location.path)
    try:
        return is_log(files.read(INDEX_NAME))
    except errors.MissingFileError:
        return _exists(files, 1)


def is_growing_folder(folder: pathlib.Path) -> bool:
    """Whether a local folder is a growing data set; False for a missing folder."""
    try:
        with open(folder / INDEX_NAME, "rb") as file:
            return is_log(file.read(64))
    except OSError:  # those that read the index say what is wrong
        return os.path.exists(folder / _entry_name(1))


def read_log(files: Files) -> Log:
    """Returns all entries of the log; none if the data set has no generation yet.

    A writer may have been killed before index.json was replaced: the entries after
    those of index.json are read too.

    Raises:
        BadIndexError: If an entry is damaged, or index.json is that of a usual data
            set.
        RemoteError: If the data set cannot be read.
    """
    shown = files.location.shown
    try:
        content = files.read(INDEX_NAME)
    except errors.MissingFileError:
        content = _log_text(())
    if not is_log(content):
        raise errors.BadIndexError(
            f"{shown} must be a growing data set or empty, got a usual data set. "
            "Choose another folder."
        )
    path = f"{shown}/{INDEX_NAME}"
    log = _loaded(content, path)
    if not isinstance(log.get(_KEY), list):
        raise errors.BadIndexError(f"{path} must list its generations. Copy it again.")
    entries = list(_parsed(path, log[_KEY]))
    while True:
        name = _entry_name(len(entries) + 1)
        try:
            content = files.read(name)
        except errors.MissingFileError:
            return tuple(entries)
        path = f"{shown}/{name}"
        entries += _parsed(path, [_loaded(content, path)])


def _loaded(content: bytes, shown: str) -> dict[str, Any]:
    try:
        document = errors.from_json(content)
    except ValueError as error:
        raise errors.BadIndexError(f"{shown} cannot be read: {error}.") from error
    if not isinstance(document, dict):
        raise errors.BadIndexError(f"{shown} must hold an object. Copy it again.")
    return document


def _parsed(shown: str, documents: Sequence[Any]) -> Log:
    try:
        return tuple(
            LogEntry(**{name: each[name] for name in LogEntry.__dataclass_fields__})
            for each in documents
        )
    except (KeyError, TypeError, ValueError) as error:
        raise errors.BadIndexError(
            f"{shown} is no entry of a growing data set: {error}. Copy it again."
        ) from error


def _entry_name(generation: int) -> str:
    return f"{LOG_FOLDER}/{generation:06d}.json"


def _exists(files: Files, generation: int) -> bool:
    return files.exists(_entry_name(generation))


def _log_text(log: Sequence[LogEntry]) -> bytes:
    lines = ",\n  ".join(json.dumps(dataclasses.asdict(entry)) for entry in log)
    return (
        f'{{"generations": [\n  {lines}\n ],\n "format_version": {FORMAT_VERSION}}}\n'
    ).encode()


def publish(files: Files, log: Log, entry: LogEntry) -> bool:
    """Publishes a generation, unless another writer has published its number.

    Args:
        files: The growing data set.
        log: The log that the writer has read.
        entry: The entry after the last one of the log.

    Returns:
        Whether the entry is published. If not, the writer reads the log again and
        decides anew.

    Raises:
        RemoteError: If the place cannot be written.
    """
    content = json.dumps(dataclasses.asdict(entry)).encode()
    if not files.create(_entry_name(entry.generation), content):
        return False
    files.write(INDEX_NAME, _log_text((*log, entry)))
    return True


def folders(log: Log, generation: int) -> list[LogEntry]:
    """Returns the entries whose folders hold the records of a generation, in order.

    Raises:
        BadIndexError: If there is no such generation, or an entry replaces a folder
            that is not there.
    """
    if not 1 <= generation <= len(log):
        raise errors.BadIndexError(
            f"generation must be 1 to {len(log)}, got {generation}."
            + ("" if log else " The data set has no generation yet.")
        )
    entries: list[LogEntry] = []
    for entry in log[:generation]:
        names = [each.folder for each in entries]
        if not entry.replaces:
            entries.append(entry)
        elif entry.replaces in names:
            here = names.index(entry.replaces)
            entries[here : here + 1] = [entry] if entry.folder else []
        else:
            raise errors.BadIndexError(
                f"Generation {entry.generation} must replace one of {names}, got "
                f"{entry.replaces!r}."
            )
    return entries


def newest(log: Log) -> list[LogEntry]:
    """Returns the entries of the newest generation, see `folders`; none without one."""
    return folders(log, len(log)) if log else []


def identity(whole: Index) -> str:
    """Returns a digest of the shards of a data set, 32 characters.

    The digest covers the splits and the name, records, bytes and digest of the shards,
    and nothing else: side files may come and go.
    """
    splits = {
        split: index.rows_of(whole.splits[split]) for split in sorted(whole.splits)
    }
    return index.digest(repr(splits))


def digest_of(entries: Sequence[LogEntry]) -> str:
    """Returns a digest of the folders of a generation, 32 hexadecimal digits."""
    return index.digest(repr([(e.folder, e.digest) for e in entries]))


def combined(
    entries: Sequence[LogEntry], indexes: Sequence[Index], generation: int
) -> Index:
    """Returns the index of all shards of a generation.

    The shards of a generation come after those of the generations before. The classes
    of each folder must begin with the classes of the folder before, or be their
    beginning.

    Raises:
        BadIndexError: If classes, label bases or the kinds of labels contradict.
    """
    splits: dict[str, list[Shard]] = {}
    if not indexes:
        raise errors.BadIndexError(f"Generation {generation} has no record left.")
    ends, classes = [], max((each.classes for each in indexes), key=len)
    for entry, each in zip(entries, indexes, strict=True):
        same = each.label_base == indexes[0].label_base
        if not same or classes[: len(each.classes)] != each.classes:
            raise errors.BadIndexError(
                f"Labels of {entry.folder} must go on those of the generations before, "
                "and they contradict. Convert its images again."
            )
        for split, shards in each.splits.items():
            splits.setdefault(split, []).extend(
                dataclasses.replace(shard, name=f"{entry.folder}/{shard.name}")
                for shard in shards
            )
        ends.append({split: len(shards) for split, shards in splits.items()})
    last = indexes[-1].made_by
    decisions: dict[str, int] = {}
    for each in indexes:
        for reason, count in each.made_by.get("decisions", {}).items():
            decisions[reason] = decisions.get(reason, 0) + count
    more = {"generation": generation, "shards_after": ends, "decisions": decisions}
    return Index(
        name=indexes[-1].name,
        label_base=indexes[0].label_base,
        classes=classes,
        splits={split: tuple(shards) for split, shards in splits.items()},
        made_by={**last, **more},
    )


def prefixes(whole: Index) -> list[Index]:
    """Returns the data set as each earlier generation had it, the newest first.

    The shards of the generations before a replacement are those after it.
    """
    ends = whole.made_by.get("shards_after", [])
    return [
        dataclasses.replace(
            whole,
            splits={name: whole.splits[name][:count] for name, count in each.items()},
        )
        for each in reversed(ends)
    ]


def write_view(
    target: pathlib.Path,
    entries: Sequence[LogEntry],
    parts: Sequence[pathlib.Path],
    generation: int,
    *,
    shards_in: pathlib.Path | None,
) -> None:
    """Writes index.json and catalog.parquet of a generation into a new folder.

    Several processes may write the same folder at once: a process wins.

    Args:
        target: The folder.
        entries: From `folders`.
        parts: A local folder with index.json and catalog.parquet of each entry.
        generation: Number of the generation.
        shards_in: The data set if it is local. The view then links to its folders, and
            is a usual data set for each command.

    Raises:
        BadIndexError: If an index is damaged, or another than the log says.
        OSError: If the folder cannot be written.
    """
    indexes = [
        _require(entry, part) for entry, part in zip(entries, parts, strict=True)
    ]
    whole = combined(entries, indexes, generation)
    part = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
    part.mkdir(parents=True)
    try:
        _write_catalog(part / CATALOG_NAME, whole, indexes, parts)
        entry = index.describe_file(part / CATALOG_NAME)
        index.write(
            dataclasses.replace(whole, files={CATALOG_NAME: entry}), part, fsync=False
        )
        for each in entries if shards_in is not None else ():
            assert shards_in is not None
            (part / each.folder).symlink_to(shards_in.absolute() / each.folder)
        try:
            part.rename(target)
        except OSError:
            if not (target / INDEX_NAME).exists():  # else another process was first
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _require(entry: LogEntry, folder: pathlib.Path) -> Index:
    """Reads the index of a generation's folder, and compares it with the log."""
    whole = index.load(folder)
    if identity(whole) != entry.digest:
        raise errors.BadIndexError(
            f"{folder / INDEX_NAME} must list the shards of generation "
            f"{entry.generation}, got others. Copy the folder again."
        )
    return whole


def _write_catalog(
    path: pathlib.Path,
    whole: Index,
    indexes: Sequence[Index],
    parts: Sequence[pathlib.Path],
) -> None:
    """Joins the catalogs; the numbers of the shards go on from folder to folder."""
    before = dict.fromkeys(whole.splits, 0)
    rows = []
    for each, part in zip(indexes, parts, strict=True):
        cases = " ".join(f"WHEN '{name}' THEN {n}" for name, n in before.items())
        shard = f"(shard + CASE split {cases} END)::INTEGER"
        table = sql.read_files("parquet", [part / CATALOG_NAME])
        rows.append(f"SELECT * REPLACE ({shard} AS shard) FROM {table}")
        for split, shards in each.splits.items():
            before[split] += len(shards)
    splits = ", ".join(f"'{name}'" for name in whole.splits)
    query = " UNION ALL BY NAME ".join(rows)
    with index.catalog_connection() as connection:
        connection.execute(
            f"COPY (FROM ({query}) ORDER BY list_position([{splits}], split), shard, "
            f"record) TO {sql.quoted(path)} (FORMAT parquet, COMPRESSION zstd)"
        )
