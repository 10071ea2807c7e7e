"""The files of a data set in a folder or at a URL, and checks against its index.

In: the folder; for a URL, the files there, and a folder with copies of the index and
the catalog. Out: names, sizes and digests, equal for both; faults of shards and side
files that are missing, damaged, misnamed or not part of the data set; digests for an
index without them; side files, written again. No record is read.
"""

import collections
import concurrent.futures
import dataclasses
import fnmatch
import pathlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple, TypeVar

from converters.checks.shard import Fault
from converters.jobs import at_url, duplicates, publish, side_files
from tfpipe import errors
from tfpipe.location import atomic, limits
from tfpipe.location.files import Files
from tfpipe.native import entry_file
from tfpipe.shards import index
from tfpipe.shards.index import File, Index

_Out = TypeVar("_Out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSetFiles:
    """The files of a data set.

    Attributes:
        data_dir: Folder of the data set; for a URL, folder with copies of the index and
            the catalog.
        files: The files at the URL; None for a folder.
        sizes: Bytes of each file at the URL.
    """

    data_dir: pathlib.Path
    files: Files | None = None
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def size(self, path: str) -> int | None:
        """Returns the bytes of a file; None if there is no such file.

        Raises:
            OSError: If the file cannot be looked at.
        """
        if self.files is not None:
            return self.sizes.get(path)
        local = self.data_dir / path
        return local.stat().st_size if local.is_file() else None

    def names(self, folder: str = "") -> set[str]:
        """Returns the names in the data set, or in a folder of it that may be missing.

        Raises:
            OSError: If the folder cannot be looked at.
        """
        if self.files is not None:
            prefix = f"{folder}/" if folder else ""
            found = (path for path in self.sizes if path.startswith(prefix))
            return {path.removeprefix(prefix).partition("/")[0] for path in found}
        local = self.data_dir / folder
        return {entry.name for entry in local.iterdir()} if local.is_dir() else set()

    def describe(self, path: str) -> index.File:
        """Returns the size and the digest of a file, which is read in pieces.

        Raises:
            OSError: If a file of a folder cannot be read.
            RemoteError: If a file at a URL cannot be read.
        """
        if self.files is not None:
            return at_url.describe(self.files, path, self.sizes[path])
        return index.describe_file(self.data_dir / path)

    def each(
        self, function: Callable[[str], _Out], paths: Collection[str]
    ) -> Iterator[_Out]:
        """Calls a function on each path; at a URL on several paths at a time."""
        if self.files is None:
            yield from map(function, paths)
            return
        with concurrent.futures.ThreadPoolExecutor(limits.connections()) as pool:
            yield from pool.map(function, paths)


def can_list(files: Files) -> bool:
    """Whether the files at a URL can be listed; those of a web server cannot."""
    return not files.location.is_web_server


def remote_sizes(files: Files, names: Collection[str]) -> dict[str, int]:
    """Returns the bytes of each file at a URL.

    Args:
        files: The files.
        names: Files to ask for one by one where the place cannot be listed.

    Raises:
        RemoteError: If a request fails.
    """
    if can_list(files):
        return files.names()

    def size(name: str) -> int | None:
        try:
            return files.size(name)
        except errors.MissingFileError:
            return None

    with concurrent.futures.ThreadPoolExecutor(limits.connections()) as pool:
        found = zip(names, pool.map(size, names), strict=True)
        return {name: num_bytes for name, num_bytes in found if num_bytes is not None}


_NAME = re.compile(
    r"(?P<prefix>.+)-(?P<number>[0-9]{5,})-of-(?P<num_shards>[0-9]{5,})(?:\.tfrecords?)?",
    re.DOTALL,
)
_TFDS_INFIX = ".tfrecord"


class ShardName(NamedTuple):
    """The parts of a shard's file name.

    Attributes:
        prefix: The text before the numbers.
        number: The number of the shard, from 0.
        num_shards: The number of shards in the split.
    """

    prefix: str
    number: int
    num_shards: int

    @property
    def split(self) -> str:
        """The split: the prefix, or its last part in `<name>-<split>.tfrecord`."""
        if self.prefix.endswith(_TFDS_INFIX):
            return self.prefix.removesuffix(_TFDS_INFIX).rpartition("-")[2]
        return self.prefix


def parse_shard_name(name: str) -> ShardName | None:
    """Parses a file name; returns None if it is not the name of a shard.

    Shards are named `<split>-SSSSS-of-NNNNN`. TFDS names them
    `<name>-<split>.tfrecord-SSSSS-of-NNNNN`.
    """
    match = _NAME.fullmatch(name)
    if match is None or name.startswith("."):
        return None
    return ShardName(match["prefix"], int(match["number"]), int(match["num_shards"]))


def index_faults(known: Index, data_dir: pathlib.Path) -> Iterator[Fault]:
    """Yields faults of an index that was changed by hand, or that lists no record."""
    if change := index.change(data_dir):
        fault = f"was changed after it was written: {change}"
        yield Fault(shard=index.INDEX_NAME, fault=fault)
    if not known.splits:
        yield Fault(shard=index.INDEX_NAME, fault="must list a split, got none")
    for split in known.splits:
        if not known.num_records(split):
            fault = f"split {split!r} must have a record, got none"
            yield Fault(shard=index.INDEX_NAME, fault=fault)


def shard_faults(known: Index, contents: DataSetFiles) -> Iterator[Fault]:
    """Yields shards that are missing, of another size, misnamed or listed twice."""
    listed: collections.Counter[str] = collections.Counter()
    for split, shards in known.splits.items():
        for number, shard in enumerate(shards):
            name = parse_shard_name(shard.name)
            wanted = (split, number, len(shards))
            if name is None or (name.split, name.number, name.num_shards) != wanted:
                fault = (
                    f"the index lists this file as shard {number} of {len(shards)} of "
                    f"split {split!r}, but its name says otherwise"
                )
                yield Fault(shard=shard.name, fault=fault)
            if fault := _size_fault(shard, contents):
                yield Fault(shard=shard.name, fault=fault)
            listed[shard.name] += 1
    for file, count in listed.items():
        if count > 1:
            yield Fault(shard=file, fault=f"the index lists it {count} times")


def _size_fault(shard: index.Shard, contents: DataSetFiles) -> str:
    if (size := contents.size(shard.name)) is None:
        return "the index lists it, but there is no such file"
    if size != shard.num_bytes:
        return f"must have {shard.num_bytes} bytes as the index says, got {size}"
    return ""


# File names that common readers glob, besides `<split>-*`.
_READER_GLOBS = ("train*", "valid*", "*.tfrecord*")


def file_faults(known: Index, contents: DataSetFiles, *, read: bool) -> Iterator[Fault]:
    """Yields side files that are missing or differ from what the index says.

    Args:
        known: The index. An index of an older version lists no side files.
        contents: The files of the data set.
        read: Whether to read the files and compare digests; if not, only sizes are
            compared. The catalog is always read, because the other checks rely on it.
    """
    listed = known.files or {}

    def fault_of(path: str) -> str:
        whole = read or path == index.CATALOG_NAME
        return _file_fault(contents, path, listed[path], read=whole)

    faults = contents.each(fault_of, listed)
    for path, fault in zip(listed, faults, strict=True):
        if fault:
            yield Fault(shard=path, fault=fault + _remedy(path))


def _remedy(name: str) -> str:
    """Returns what makes a file again that follows from the shards alone."""
    is_made = name.startswith(entry_file.PREFIX)
    return f"; make it again: {entry_file.REMEDY}" if is_made else ""


def _file_fault(
    contents: DataSetFiles, path: str, expected: File, *, read: bool
) -> str:
    """Returns what is wrong with a file; empty if nothing is."""
    if (size := contents.size(path)) is None:
        return "the index lists it, but there is no such file"
    if size != expected.num_bytes:
        return f"must have {expected.num_bytes} bytes as the index says, got {size}"
    if read and (got := contents.describe(path).digest) != expected.digest:
        return f"the digest must be {expected.digest} as the index says, got {got}"
    return ""


def stray_faults(known: Index, contents: DataSetFiles) -> Iterator[Fault]:
    """Yields files that look like a part of the data set but are not in the index.

    Hidden files are ignored, because no glob of a reader matches them.
    """
    shards = {shard.name for shards in known.splits.values() for shard in shards}
    parsed = [name for name in map(parse_shard_name, shards) if name is not None]
    prefixes = tuple({f"{name.prefix}-" for name in parsed})
    listed = shards | {index.INDEX_NAME, *(known.files or ())}
    for name in sorted(contents.names()):
        if name in listed:
            continue
        if name.startswith(prefixes) or is_taken_for_shard(name):
            fault = "the index does not list it, but readers that look by name read it"
            yield Fault(shard=name, fault=fault)
        elif known.files is not None and (
            name in _SIDE_FILES or name.startswith(entry_file.PREFIX)
        ):
            fault = "the index does not list it: it belongs to another data set"
            yield Fault(shard=name, fault=fault + _remedy(name))
    for name in sorted(contents.names(side_files.DALI_DIR_NAME) - shards):
        path = f"{side_files.DALI_DIR_NAME}/{name}"
        yield Fault(shard=path, fault="the index lists no shard of this name")


_SIDE_FILES = (side_files.SIDE_NAMES - {side_files.DALI_DIR_NAME}) | {
    index.CATALOG_NAME,
    publish.CHANGES_NAME,
    publish.REJECTS_NAME,
    duplicates.NAME,
}


def is_taken_for_shard(name: str) -> bool:
    """Whether a reader that looks for shards by name may read a file of this name."""
    if name.startswith("."):  # no glob matches a hidden file
        return False
    taken = any(fnmatch.fnmatchcase(name, pattern) for pattern in _READER_GLOBS)
    return taken or parse_shard_name(name) is not None


def with_digests(known: Index, data_dir: pathlib.Path) -> Index:
    """Returns the index with the sizes and digests of the side files on disk.

    Raises:
        OSError: If a file cannot be read.
    """
    shards = [shard.name for shards in known.splits.values() for shard in shards]
    dali = [f"{side_files.DALI_DIR_NAME}/{name}" for name in shards]
    paths = [index.CATALOG_NAME, *sorted(_SIDE_FILES - {index.CATALOG_NAME}), *dali]
    files = {
        path: index.describe_file(data_dir / path)
        for path in paths
        if (data_dir / path).is_file()
    }
    return dataclasses.replace(known, files=files)


def restore(known: Index, data_dir: pathlib.Path, names: Collection[str]) -> list[str]:
    """Writes faulty side files again, if they follow from index and catalog.

    Args:
        known: The index.
        data_dir: Folder of the data set.
        names: Names of all faulty files; those that cannot be derived are ignored.

    Returns:
        The names of the files that were written.

    Raises:
        OSError: If a file cannot be read or written.
    """
    expected: Mapping[str, File] = known.files or {}
    if expected.keys().isdisjoint(names):
        return []
    catalog = data_dir / index.CATALOG_NAME
    restored = []
    with index.catalog_connection() as connection:
        places = index.record_places(connection, catalog, known)
        for path, content in side_files.side_files(known, places).items():
            if path in names and expected.get(path) == index.describe(content):
                (data_dir / path).parent.mkdir(exist_ok=True)
                atomic.write(data_dir / path, content)
                restored.append(path)
    return restored
