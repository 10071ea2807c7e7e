"""Writes the entry points of a data set that is there, also of another tool's shards.

In: the shards and the index of a data set without faults. Out: the file
`entry_points-<split>` of every split, and the index that lists it. The shards stay as
they are. `tfpipe.native.entry_file` describes the file.
"""

import collections
import contextlib
import dataclasses
import functools
import os
import pathlib
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

from converters.checks.record import ENCODED_KEYS, bytes_of
from converters.checks.shard import Request, Result
from converters.engines import processes
from converters.jobs import at_url, work_dir
from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.native import entry_file, entry_points
from tfpipe.shards import index, records
from tfpipe.shards.example import decode_example

# No reader looks at names with a dot.
_WORK_PREFIX = ".entry_points-"


class Made(NamedTuple):
    """New files: their names, the index last, and the number of images by reason."""

    names: Sequence[str]
    counts: Mapping[str, int]


def require() -> None:
    """Checks that entry points can be made on this machine.

    Raises:
        ValueError: If the library is not built or does not load; says what to do.
    """
    entry_points.require()


def has_faults(result: Result) -> bool:
    """Whether a file of entry points is missing, damaged or not in the index."""
    return any(name.startswith(entry_file.PREFIX) for name in result.bad_names)


def write(request: Request, result: Result) -> None:
    """Writes the files and the index, unless the data set has faults.

    Faults of these files themselves are mended. The result gets the names of the files,
    and the number of images with and without entry points, by reason.

    Raises:
        OSError: If a file cannot be read or written, or the data set was replaced.
        BadIndexError: If the index cannot be read.
        BadRecordError: If a shard was damaged after it was checked.
        RemoteError: If a URL cannot be read or written.
    """
    _forget_own_faults(result)
    if result.num_faults:
        remarks = result.details["remarks"]
        remarks.append("the entry points were not written, because there are faults")
        return
    names, counts = (_in_folder if request.files is None else _at_url)(request)
    result.details["entry_points"] = dict(sorted(counts.items()))
    result.details["written"] = [*result.details.get("written", []), *names]


def _in_folder(request: Request) -> Made:
    """Writes the files of a folder.

    While the folder is claimed, no conversion, and no other call, changes the data set.
    """
    folder = request.data_dir
    with work_dir.claimed(folder) as claimed:
        work_dir.end_cut_off(claimed, give_up=False, fsync=True)
        for left in folder.glob(f"{_WORK_PREFIX}*"):  # a call was killed
            shutil.rmtree(left)
        # A random name: a fixed one could be a link.
        with tempfile.TemporaryDirectory(prefix=_WORK_PREFIX, dir=folder) as name:
            made = _make(request, pathlib.Path(name))
            # All files are complete before the first one is replaced.
            for file in made.names:
                os.replace(pathlib.Path(name, file), folder / file)
            atomic.sync(folder)
    return made


def _at_url(request: Request) -> Made:
    """Uploads the files. A store has no locks, so the index is looked at again."""
    files = request.files
    assert files is not None, "the data set is at a URL"
    with tempfile.TemporaryDirectory() as name:
        made = _make(request, pathlib.Path(name))
        read = (request.data_dir / index.INDEX_NAME).read_bytes()
        if files.exists(at_url.CLAIM_NAME) or files.read(index.INDEX_NAME) != read:
            raise OSError(
                f"{files.location.shown} was replaced just now, or is being "
                "replaced. Nothing was written. Check it again."
            )
        for file in made.names:
            files.upload(file, pathlib.Path(name, file))
    return made


def _make(request: Request, work: pathlib.Path) -> Made:
    """Makes the new files in a work folder, the index last."""
    counts: collections.Counter[str] = collections.Counter()
    known = index.load(request.data_dir)
    files, names = dict(known.files or {}), []
    make = functools.partial(_write_part, request, work)
    for split, shards in known.splits.items():
        for found in request.run(make, shards, num_records=known.num_records(split)):
            counts.update(found)
        whole = work / entry_file.name_of(split)
        parts = [_part_path(work, shard.name) for shard in shards]
        entry_file.join(parts, whole, fsync=True)
        files[whole.name] = index.describe_file(whole)
        names.append(whole.name)
    index.write(dataclasses.replace(known, files=files), work)
    return Made([*names, index.INDEX_NAME], counts)


def _forget_own_faults(result: Result) -> None:
    """Removes the faults if all are of files that are made again."""
    if all(name.startswith(entry_file.PREFIX) for name in result.bad_names):
        remarks = result.details["remarks"]
        remarks += [f"was made again: {fault}" for fault in result.faults]
        result.faults.clear()
        result.bad_names.clear()
        result.num_faults = 0


def _part_path(work: pathlib.Path, shard: str) -> pathlib.Path:
    return work / f"{shard}.part"


def _write_part(
    request: Request, work: pathlib.Path, shard: index.Shard
) -> Mapping[str, int]:
    """Writes the entry points of one shard; runs in a worker process.

    Returns:
        Number of images by the reason why they have no entry points; those that have
        them are under "made".
    """
    tables: list[bytes] = []
    counts: collections.Counter[str] = collections.Counter()
    with contextlib.closing(_records(request, shard)) as found_records:
        for record in found_records:
            if record.fault:
                raise errors.BadRecordError(f"{shard.name}: {record.fault}")
            encoded = bytes_of(decode_example(record.data), ENCODED_KEYS)
            found = entry_points.find(b"" if encoded is None else encoded)
            counts[found.reason or "made"] += 1
            tables.append(found.table)
            processes.image_done()
    if len(tables) != shard.num_records:
        raise OSError(
            f"{shard.name} must have {shard.num_records} records as "
            f"{index.INDEX_NAME} says, got {len(tables)}. Check it with --level=crc."
        )
    _part_path(work, shard.name).write_bytes(entry_file.encode(tables))
    return counts


def _records(
    request: Request, shard: index.Shard
) -> Generator[records.Record, None, None]:
    if request.files is None:
        yield from records.read(request.data_dir / shard.name)
        return
    with at_url.Ahead(request.files, shard.name, shard.num_bytes) as opened:
        yield from records.read_from(opened.pread, shard.num_bytes)
