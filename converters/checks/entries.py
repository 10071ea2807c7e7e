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
import tempfile
from collections.abc import Mapping

from converters.checks.record import ENCODED_KEYS, bytes_of
from converters.checks.shard import Request, Result
from converters.engines import processes
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


def write(request: Request, result: Result) -> None:
    """Writes the files and the index, unless the data set has faults.

    Faults of these files themselves are mended. The result gets the names of the files,
    and the number of images with and without entry points, by reason.

    Raises:
        OSError: If a file cannot be read or written.
        BadIndexError: If the index cannot be read.
        BadRecordError: If a shard was damaged after it was checked.
    """
    remarks = result.details.setdefault("remarks", [])
    folder = request.data_dir
    _forget_own_faults(result)
    if result.num_faults or not (folder / index.INDEX_NAME).exists():
        why = "there are faults" if result.num_faults else "there is no index"
        remarks.append(f"the entry points were not written, because {why}")
        return
    known = index.load(folder)
    if known.files is None:
        remarks.append(
            "the entry points were not written, because the index is of an older "
            "version: add --write_index"
        )
        return
    counts: collections.Counter[str] = collections.Counter()
    files = dict(known.files or {})
    # A random name: a fixed one could be a link, or in use by another process.
    with tempfile.TemporaryDirectory(prefix=_WORK_PREFIX, dir=folder) as name:
        work = pathlib.Path(name)
        for split, shards in known.splits.items():
            make = functools.partial(_write_part, folder, work)
            names = [shard.name for shard in shards]
            num_records = known.num_records(split)
            for found in request.run(make, names, num_records=num_records):
                counts.update(found)
            whole = work / entry_file.name_of(split)
            parts = [_part_path(work, name) for name in names]
            entry_file.join(parts, whole, fsync=True)
            files[whole.name] = index.describe_file(whole)
        # All files are complete before the first one is replaced.
        made = [entry_file.name_of(split) for split in known.splits]
        for name in made:
            os.replace(work / name, folder / name)
    index.write(dataclasses.replace(known, files=files), folder)
    result.details["entry_points"] = dict(sorted(counts.items()))
    written = result.details.get("written", [])
    result.details["written"] = [*written, *made, index.INDEX_NAME]


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
