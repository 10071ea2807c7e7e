"""Checks the files beside the shards against the index: catalog and side files.

In: the files of a data set and its index. Out: faults of files that are missing,
damaged or not part of the data set; digests for an index without them; side files,
written again.
"""

import dataclasses
import fnmatch
import pathlib
from collections.abc import Collection, Iterator, Mapping

from converters.checks.contents import DataSetFiles
from converters.checks.files import parse_shard_name
from converters.checks.shard import Fault
from converters.jobs import duplicates, publish, side_files
from tfpipe.native import entry_file
from tfpipe.shards import atomic, index
from tfpipe.shards.index import File, Index

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
    try:
        if (size := contents.size(path)) is None:
            return "the index lists it, but there is no such file"
        if size != expected.num_bytes:
            return f"must have {expected.num_bytes} bytes as the index says, got {size}"
        if not read:
            return ""
        got = contents.describe(path).digest
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if got != expected.digest:
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
