"""Files that share the bytes of another file: reflinks and hard links.

In: the path of a file, and of a new one. Out: the new file, without a byte copied; or
the news of a file system without both.

A reflink (`FICLONE` of Btrfs, XFS and others) is a file of its own whose blocks are
shared until one of the two is written. A hard link is a second name of the same file:
a change of one is a change of all.
"""

import fcntl
import os
import pathlib
from typing import Literal

from converters.exports.source import Source
from converters.jobs import write_shard
from converters.jobs.job import Job
from tfpipe.location import atomic

# How the bytes of a shard are shared. "auto" is the first way of the disk.
By = Literal["auto", "reflink", "link", "copy"]
_FICLONE = 0x40049409  # _IOW(0x94, 9, int), linux/fs.h


def share(source: pathlib.Path, path: pathlib.Path, job: Job, *, by: By) -> str:
    """Makes a file that shares the bytes of another one.

    Args:
        source: The file with the bytes.
        path: The new file; an old file is replaced.
        job: The job, which names the unfinished file.
        by: "reflink" or "link"; "auto" tries a reflink first.

    Returns:
        "reflink" or "link"; empty if the file system can do neither and `by` is "auto".

    Raises:
        OSError: If `by` names a way that the file system does not have.
    """
    for way, make in (("reflink", _reflink), ("link", _link)):
        if by not in ("auto", way):
            continue
        part = write_shard.part_path(path, job)
        fsync = job.fsync and way == "reflink"
        try:
            with atomic.new_file(path, part=part, fsync=fsync):
                make(source, part)
        except OSError as error:
            if by == way:
                raise _refused(way, source, path, error) from error
        else:
            return way
    return ""


def _reflink(source: pathlib.Path, path: pathlib.Path) -> None:
    with open(source, "rb") as old, open(path, "wb") as new:
        fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())


def _link(source: pathlib.Path, path: pathlib.Path) -> None:
    # The file itself: a link to a symbolic link would be a symbolic link.
    os.link(os.path.realpath(source), path)


def _refused(
    by: str, source: pathlib.Path, path: pathlib.Path, error: OSError
) -> OSError:
    return OSError(
        f"--identical_by={by}: {path.parent} must be in a file system in which "
        f"{source} can be shared so, got: {error.strerror}. Choose another folder or "
        "--identical_by=copy."
    )


def way(source: Source, folder: pathlib.Path, by: By) -> str:
    """Returns how shards will probably be shared: "reflink", "link" or "copy".

    Args:
        source: The data set.
        folder: A folder in the file system of the copies.
        by: The wanted way.
    """
    if by != "auto" or source.files is not None:
        return "copy" if by == "auto" else by
    is_near = source.folder.stat().st_dev == folder.stat().st_dev
    return "link" if is_near else "copy"
