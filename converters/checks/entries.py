"""Writes the entry points of a data set that is there, also of another tool's shards.

In: the shards and the index of a data set without faults. Out: the file
`entry_points-<split>` of each split, and the index that lists it. The shards stay as
they are. `tfpipe.native.entry_file` describes the file.
"""

import collections
import dataclasses
import functools
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping

from converters.checks.record import ENCODED_KEYS, bytes_of
from converters.checks.shard import Request, Result
from converters.engines import processes
from converters.jobs import work_dir
from tfpipe import errors
from tfpipe.native import entry_file, entry_points
from tfpipe.shards import index, records
from tfpipe.shards.example import decode_example

# No reader looks at names with a dot.
_WORK_PREFIX = ".entry_points-"


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
    and the number of images with and without entry points, by reason. While the folder
    is claimed, no conversion, and no other call, changes the data set.

    Raises:
        OSError: If a file cannot be read or written.
        BadIndexError: If the index cannot be read.
        BadRecordError: If a shard was damaged after it was checked.
    """
    folder = request.data_dir
    _forget_own_faults(result)
    if result.num_faults:
        remarks = result.details.setdefault("remarks", [])
        remarks.append("the entry points were not written, because there are faults")
        return
    with work_dir.claimed(folder) as claimed:
        work_dir.end_cut_off(claimed, give_up=False, fsync=True)
        for left in folder.glob(f"{_WORK_PREFIX}*"):  # a call was killed
            shutil.rmtree(left)
        known = index.load(folder)
        # A random name: a fixed one could be a link.
        with tempfile.TemporaryDirectory(prefix=_WORK_PREFIX, dir=folder) as name:
            made, counts = _make(request, known, pathlib.Path(name))
            # All files are complete before the first one is replaced.
            for path in made:
                os.replace(path, folder / path.name)
            index.sync_folder(folder)
    result.details["entry_points"] = dict(sorted(counts.items()))
    written = result.details.get("written", [])
    names = [path.name for path in made]
    result.details["written"] = [*written, *names]


def _make(
    request: Request, known: index.Index, work: pathlib.Path
) -> tuple[list[pathlib.Path], Mapping[str, int]]:
    """Makes the new files in a work folder, the index last, and counts the images."""
    counts: collections.Counter[str] = collections.Counter()
    files, made = dict(known.files or {}), []
    for split, shards in known.splits.items():
        make = functools.partial(_write_part, request.data_dir, work)
        names = [shard.name for shard in shards]
        num_records = known.num_records(split)
        for found in request.run(make, names, num_records=num_records):
            counts.update(found)
        whole = work / entry_file.name_of(split)
        entry_file.join([_part_path(work, name) for name in names], whole, fsync=True)
        files[whole.name] = index.describe_file(whole)
        made.append(whole)
    index.write(dataclasses.replace(known, files=files), work)
    return [*made, work / index.INDEX_NAME], counts


def _forget_own_faults(result: Result) -> None:
    """Removes the faults if all are of files that are made again."""
    if all(name.startswith(entry_file.PREFIX) for name in result.bad_names):
        remarks = result.details.setdefault("remarks", [])
        remarks += [f"was made again: {fault}" for fault in result.faults]
        result.faults.clear()
        result.bad_names.clear()
        result.num_faults = 0


def _part_path(work: pathlib.Path, shard: str) -> pathlib.Path:
    return work / f"{shard}.part"


def _write_part(
    folder: pathlib.Path, work: pathlib.Path, shard: str
) -> Mapping[str, int]:
    """Writes the entry points of one shard; runs in a worker process.

    Returns:
        Number of images by the reason why they have no entry points; those that have
        them are under "made".
    """
    tables: list[bytes] = []
    counts: collections.Counter[str] = collections.Counter()
    for record in records.read(folder / shard):
        if record.fault:
            raise errors.BadRecordError(f"{folder / shard}: {record.fault}")
        encoded = bytes_of(decode_example(record.data), ENCODED_KEYS)
        found = entry_points.find(b"" if encoded is None else encoded)
        counts[found.reason or "made"] += 1
        tables.append(found.table)
        processes.image_done()
    _part_path(work, shard).write_bytes(entry_file.encode(tables))
    return counts
