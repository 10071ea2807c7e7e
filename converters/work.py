"""The working folder of a job: whose it is, which of its shards are complete.

In: a job's description and its output folder. Out: the folder, locked, with what
earlier runs of the same job completed. It is one dot-folder inside the output folder,
which no reader's glob matches. What a power loss can leave in it is never taken for
complete: a shard's marker is written after the shard is on the disk.
"""

import contextlib
import fcntl
import functools
import json
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from converters import compat, shards
from converters.plan import ShardPlan
from tfpipe import index

WORK_DIR_NAME = ".converting"
_JOB_NAME = "job.json"

Description = Mapping[str, Any]


@contextlib.contextmanager
def open_work_dir(
    output_dir: pathlib.Path,
    description: Description,
    *,
    task: int,
    restart: bool,
    fsync: bool = True,
) -> Iterator[pathlib.Path]:
    """The working folder, held by this process until the end of the block.

    Args:
        output_dir: Where the data set goes.
        description: What decides the bytes that are written; JSON values.
        task: Which of the job's tasks this process is; each may run once at a time.
        restart: Whether to drop what another job left.
        fsync: Whether the description is on the disk before anything else is.

    Raises:
        ValueError: If this task is running already, or the folder belongs to a job of
            another description.
    """
    work_dir = output_dir / WORK_DIR_NAME
    work_dir.mkdir(parents=True, exist_ok=True)
    with _lock(work_dir / f"task-{task:05d}.lock") as free:
        if not free:
            raise ValueError(
                f"Another conversion is writing to {output_dir}. Wait for it, "
                "or choose another folder."
            )
        # One task at a time: the first writes what the others compare with.
        with _lock(work_dir / "claim.lock", wait=True):
            _claim(work_dir, description, restart=restart, fsync=fsync)
        yield work_dir


def _claim(
    work_dir: pathlib.Path, description: Description, *, restart: bool, fsync: bool
) -> None:
    """Writes the job's description, or checks it against the one that is there."""
    path = work_dir / _JOB_NAME
    # As JSON has it, so that tuples and lists are the same.
    wanted = json.loads(json.dumps(description))
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    if found == wanted:
        return
    if found is not None and not restart:
        raise ValueError(
            f"{work_dir.parent} holds an unfinished conversion that differs from this "
            f"one: {'; '.join(_differences(found, wanted))}. Finish that one with its "
            "own input and options, or drop it with --overwrite."
        )
    for entry in work_dir.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.suffix != ".lock":
            entry.unlink()
    index.replace_file(path, json.dumps(wanted, indent=1).encode(), fsync=fsync)


def _differences(
    found: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = ""
) -> list[str]:
    """`name was x, is y` for each value that differs, at any depth."""
    differences = []
    for key in sorted({*found, *wanted}):
        old, new = found.get(key), wanted.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            differences += _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            differences.append(f"{prefix}{key} was {old!r}, is {new!r}")
    return differences


def completed(
    plans: Sequence[ShardPlan], work_dir: pathlib.Path
) -> dict[str, shards.Written]:
    """The complete shards, by name; those half-way to their final place included."""
    done = {}
    for plan in plans:
        path = work_dir / plan.name
        marker = shards.marker_path(path)
        if not marker.exists():
            continue
        written = shards.Written.from_json(marker.read_text(encoding="utf-8"))
        places = (path, work_dir.parent / plan.name)
        sizes = [place.stat().st_size for place in places if place.exists()]
        if written.shard.num_bytes in sizes:
            done[plan.name] = written
    return done


def forget_outdated(
    input_dir: pathlib.Path, plans: Sequence[ShardPlan], work_dir: pathlib.Path
) -> None:
    """Takes its marker from each complete shard that is older than a file of its input.

    Names and sizes, which are part of the job's description, tell most changes of the
    input; an image that was edited in place shows only in its times: that of its
    content, which tools that copy set back, and that of its attributes, which they
    cannot. `changed.find` compares what the images hold. Times are compared
    as make does, between runs of one unfinished job, and are no part of the
    description: a copied tree then costs work and is never refused, and the plan holds
    no times. Not seen is a file that changes while its own shard is being written.

    Raises:
        OSError: If a file that was listed cannot be looked at.
    """
    # Images by the thousand share a tar; those of a tree are looked at once anyway.
    modified = functools.lru_cache(maxsize=1024)(_modified_ns)
    for plan in plans:
        marker = shards.marker_path(work_dir / plan.name)
        if not marker.exists():
            continue
        written, files = _modified_ns(marker), {image.file for image in plan.images}
        if any(modified(input_dir / file) > written for file in files):
            marker.unlink()


def _modified_ns(path: pathlib.Path) -> int:
    status = path.stat()
    return max(status.st_mtime_ns, status.st_ctime_ns)


def require_free(
    output_dir: pathlib.Path, plans: Sequence[ShardPlan], *, overwrite: bool
) -> None:
    """Refuses an output folder whose content a conversion would mix with or lose.

    Raises:
        ValueError: If there is a data set and `overwrite` is not set, or there are
            files that no converter wrote.
    """
    if not output_dir.exists():
        return
    if not output_dir.is_dir():
        raise ValueError(f"--output_dir must be a folder, got the file {output_dir}.")
    if (output_dir / index.INDEX_NAME).exists():
        if overwrite:
            return
        raise ValueError(
            f"--output_dir {output_dir} already holds a data set. "
            "Choose another folder, or replace it with --overwrite."
        )
    names = {entry.name for entry in output_dir.iterdir()}
    # A run that ended while it moved its files left some under their final names.
    if WORK_DIR_NAME in names:
        names -= {plan.name for plan in plans} | SIDE_NAMES | {WORK_DIR_NAME}
    if names:
        raise ValueError(
            f"--output_dir {output_dir} must be empty or hold a data set, "
            f"got other files, the first is {min(names)}. Choose another folder."
        )


# What a data set may hold beside its shards and its index.
SIDE_NAMES = frozenset(
    {
        index.CATALOG_NAME,
        "changes.jsonl",
        "rejects.jsonl",
        "duplicates.jsonl",
        *compat.SIDE_NAMES,
    }
)


def require_space(
    output_dir: pathlib.Path, plans: Sequence[ShardPlan], num_complete_bytes: int
) -> None:
    """Checks before the start that the shards still to be written fit on the disk.

    Raises:
        OSError: If they do not.
    """
    images = [image.num_bytes for plan in plans for image in plan.images]
    # A record adds its other fields and frame: 1 kB is more than they take.
    needed = sum(images) + 1024 * len(images) - num_complete_bytes
    free = shutil.disk_usage(output_dir).free
    if needed > free:
        raise OSError(
            f"{output_dir} needs {needed / 1e9:.2f} GB for the shards still to be "
            f"written, got {free / 1e9:.2f} GB free. Make room or choose another disk."
        )


@contextlib.contextmanager
def _lock(path: pathlib.Path, *, wait: bool = False) -> Iterator[bool]:
    """Holds a lock file for the block, if asked to once it is free; yields whether.

    It is not where another task has finished the job and removed the folder.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except FileNotFoundError:
        yield False
        return
    _lock_descriptors.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        _lock_descriptors.remove(descriptor)
        os.close(descriptor)


def _close_locks() -> None:
    for descriptor in _lock_descriptors:
        os.close(descriptor)
    _lock_descriptors.clear()


# A lock is free when its last descriptor is closed: without this, a worker that was
# forked would hold it a moment longer than its killed parent.
_lock_descriptors: set[int] = set()
os.register_at_fork(after_in_child=_close_locks)


def finishing(work_dir: pathlib.Path) -> contextlib.AbstractContextManager[bool]:
    """Lock for the last part of a job, which one of its tasks does; see `_lock`."""
    return _lock(work_dir / "finish.lock")
