"""The working folder: whose job is in it, which of its shards are complete.

In: a job's description and its output folder. Out: the job's own folder, with what
earlier runs of the same job completed, while this process holds the lock of its task.

The working folder is one dot-folder inside the output folder, which no reader's glob
matches. It holds locks and, for each job, a folder that is named by a digest of the
job's description: what a task of another job writes on is never among the files of this
one. What a power loss can leave is never taken for complete: a shard's marker is
written after the shard is on the disk.
"""

import contextlib
import functools
import json
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from converters.engines import locks
from converters.jobs import output, replace, write_shard
from converters.jobs.output import WORK_DIR_NAME
from converters.jobs.plan import ShardPlan
from tfpipe.shards import index

_JOB_PREFIX = "job-"
_CLAIM_NAME = "claim.lock"
_LOCK_SUFFIX = ".lock"

Description = Mapping[str, Any]


def identity(description: Description) -> str:
    """What tells a job from any other one: a digest of its description."""
    return index.digest(json.dumps(description, sort_keys=True))


def job_dir(output_dir: pathlib.Path, job: str) -> pathlib.Path:
    """The folder of the job of an identity."""
    return output_dir / WORK_DIR_NAME / f"{_JOB_PREFIX}{job}"


@contextlib.contextmanager
def claimed(output_dir: pathlib.Path) -> Iterator[pathlib.Path]:
    """The working folder, which no other process changes as a whole until the end.

    To begin a job, to drop one and to publish one are done here, one after the other by
    all processes that see the folder. It is removed at the end if no job is in it.

    Raises:
        ValueError: If there is something in its place that no converter made.
    """
    work_dir = output_dir / WORK_DIR_NAME
    if output_dir.exists() and not output_dir.is_dir():
        raise ValueError(f"--output_dir must be a folder, got the file {output_dir}.")
    descriptor = None
    while descriptor is None:
        _require_own(work_dir)
        work_dir.mkdir(parents=True, exist_ok=True)
        # Not there: another process has ended the job and removed the folder.
        with contextlib.suppress(FileNotFoundError):
            descriptor = locks.acquire(work_dir / _CLAIM_NAME, wait=True)
    with locks.holding(descriptor):
        _require_own(work_dir)
        try:
            yield work_dir
        finally:
            idle = _remove_if_idle(work_dir)
    if idle:  # NFS had kept the file of the lock while it was held
        with contextlib.suppress(OSError):
            work_dir.rmdir()


def _require_own(work_dir: pathlib.Path) -> None:
    if work_dir.is_symlink() or (work_dir.exists() and not work_dir.is_dir()):
        raise ValueError(
            f"{work_dir} must be a folder of its own, got a link or a file. What is "
            "behind it is not touched. Move it away."
        )
    for entry in work_dir.iterdir() if work_dir.exists() else ():
        # NFS keeps removed files that are open under hidden names.
        if entry.name.endswith(_LOCK_SUFFIX) or entry.name.startswith("."):
            continue
        job = entry.name.startswith(_JOB_PREFIX) and entry.is_dir()
        if not job or entry.is_symlink():
            raise ValueError(
                f"{work_dir} holds {entry.name}, which this version of the converters "
                f"did not make. Move {work_dir} away."
            )


def _remove_if_idle(work_dir: pathlib.Path) -> bool:
    if _jobs(work_dir) or is_live(work_dir):
        return False
    for lock in sorted(work_dir.glob(f"*{_LOCK_SUFFIX}"), key=_claim_last):
        lock.unlink(missing_ok=True)
    # A process that has just come may have made its lock.
    with contextlib.suppress(OSError):
        work_dir.rmdir()
    return True


def _claim_last(path: pathlib.Path) -> bool:
    return path.name == _CLAIM_NAME


def _jobs(work_dir: pathlib.Path) -> list[pathlib.Path]:
    return sorted(work_dir.glob(f"{_JOB_PREFIX}*"))


@contextlib.contextmanager
def open_work_dir(
    output_dir: pathlib.Path,
    description: Description,
    *,
    task: int,
    restart: bool,
    names: Sequence[str] = (),
    fsync: bool = True,
) -> Iterator[pathlib.Path]:
    """The job's folder; its task is held by this process until the end of the block.

    Args:
        output_dir: Where the data set goes.
        description: What decides the bytes that are written; JSON values.
        task: Which of the job's tasks this process is; each may run once at a time.
        restart: Whether a data set that is there may be replaced, and an unfinished job
            of another description dropped.
        names: Shards that the job will write.
        fsync: Whether the description is on the disk before anything else is.

    Raises:
        ValueError: If this task is running already, or the folder belongs to a data set
            or a job of another description.
        OSError: If an earlier job was cut off and cannot be ended.
    """
    with claimed(output_dir) as work_dir:
        end_cut_off(work_dir, give_up=restart, fsync=fsync)
        output.require_free(output_dir, names, overwrite=restart)
        lock = locks.acquire(work_dir / f"task-{task:05d}{_LOCK_SUFFIX}")
        if lock is None:
            raise _is_running(output_dir)
        try:
            folder = _claim(work_dir, description, restart=restart, fsync=fsync)
            sweep(folder)
        except BaseException:
            locks.release(lock)
            raise
    try:
        with locks.holding(lock):
            yield folder
    finally:
        _leave(work_dir)


def _leave(work_dir: pathlib.Path) -> None:
    """Removes the working folder after the last task of a job that is done.

    Tasks that end together see each other's locks while they publish, so each looks
    once more after it has given its own back. Who has the claim then does it instead.
    """
    with contextlib.suppress(FileNotFoundError):
        descriptor = locks.acquire(work_dir / _CLAIM_NAME)
        if descriptor is not None:
            with locks.holding(descriptor):
                _remove_if_idle(work_dir)


def _is_running(output_dir: pathlib.Path) -> ValueError:
    return ValueError(
        f"Another conversion is writing to {output_dir}. Wait for it, or choose "
        "another folder."
    )


def end_cut_off(work_dir: pathlib.Path, *, give_up: bool, fsync: bool) -> set[str]:
    """Ends the publishing of jobs that were cut off in it; returns their identities.

    Args:
        work_dir: The working folder, claimed.
        give_up: As for `publish.recover`.
        fsync: As for `publish.recover`.

    Raises:
        OSError: If it cannot be ended.
    """
    return {
        folder.name.removeprefix(_JOB_PREFIX)
        for folder in _jobs(work_dir)
        if replace.recover(folder, work_dir.parent, give_up=give_up, fsync=fsync)
    }


def require_whole(data_dir: pathlib.Path) -> None:
    """Refuses a folder whose files are half those of an old data set, half a new one's.

    Raises:
        ValueError: If a conversion was cut off, or is at it, while it published.
    """
    for journal in data_dir.glob(f"{WORK_DIR_NAME}/*/{replace.JOURNAL_NAME}"):
        if (journal.parent / index.INDEX_NAME).exists():
            raise ValueError(
                f"A conversion to {data_dir} was cut off while its files were given "
                "their places. Run it again: that ends it first."
            )


def _claim(
    work_dir: pathlib.Path,
    description: Description,
    *,
    restart: bool,
    fsync: bool,
) -> pathlib.Path:
    """The folder of this job, which is the only one; made if it is not there."""
    # As JSON has it, so that tuples and lists are the same.
    wanted = json.loads(json.dumps(description))
    mine = work_dir / f"{_JOB_PREFIX}{identity(wanted)}"
    for folder in _jobs(work_dir):
        # Without its description, a job is not yet begun or is being dropped.
        if folder == mine or not (folder / replace.JOB_NAME).exists():
            continue
        if not restart:
            raise ValueError(
                f"{work_dir.parent} holds an unfinished conversion that differs from "
                f"this one: {_explained(folder, wanted)}. Finish that one with its own "
                "input and options, or drop it with --overwrite."
            )
        if is_live(work_dir):
            raise _is_running(work_dir.parent)
    for folder in _jobs(work_dir):
        if folder != mine:
            replace.remove_job(folder)
    if _description(mine) != wanted:
        mine.mkdir(exist_ok=True)
        text = json.dumps(wanted, indent=1).encode()
        index.replace_file(mine / replace.JOB_NAME, text, fsync=fsync)
    return mine


def is_live(work_dir: pathlib.Path) -> bool:
    """Whether a task runs in another process, of whatever job."""
    return any(map(locks.is_held, work_dir.glob(f"task-*{_LOCK_SUFFIX}")))


def _description(folder: pathlib.Path) -> Any:
    """The description of a job; None if it is not there or was spoiled."""
    try:
        return json.loads((folder / replace.JOB_NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _explained(folder: pathlib.Path, wanted: Mapping[str, Any]) -> str:
    found = _description(folder)
    if not isinstance(found, dict):
        return f"{folder / replace.JOB_NAME} cannot be read"
    return "; ".join(_differences(found, wanted))


def sweep(folder: pathlib.Path) -> None:
    """Removes the unfinished files in a job's folder that no running task writes.

    This process is at none of its own.
    """
    for path in folder.glob("*.part"):
        writer = re.fullmatch(r".*\.(\d+)-\d+\.part", path.name, re.DOTALL)
        task = writer[1] if writer else None
        if not locks.is_held(folder.parent / f"task-{task}{_LOCK_SUFFIX}"):
            path.unlink(missing_ok=True)


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
    plans: Sequence[ShardPlan], folder: pathlib.Path
) -> dict[str, write_shard.Written]:
    """The shards in a job's folder that are complete, and this job's, by name."""
    done, job = {}, folder.name.removeprefix(_JOB_PREFIX)
    for plan in plans:
        path = folder / plan.name
        written = write_shard.read_marker(path)
        if written is None or (written.job, written.shard.name) != (job, plan.name):
            continue
        if path.exists() and path.stat().st_size == written.shard.num_bytes:
            done[plan.name] = written
    return done


def outdated(
    input_dir: pathlib.Path, plans: Sequence[ShardPlan], folder: pathlib.Path
) -> list[pathlib.Path]:
    """The markers of complete shards that are older than a file of their input.

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
    found = []
    for plan in plans:
        marker = write_shard.marker_path(folder / plan.name)
        if not marker.exists():
            continue
        written, files = _modified_ns(marker), {image.file for image in plan.images}
        if any(modified(input_dir / file) > written for file in files):
            found.append(marker)
    return found


def forget(markers: Sequence[pathlib.Path], folder: pathlib.Path) -> None:
    """Takes away markers, unless another task is publishing or has published.

    Raises:
        FileNotFoundError: If the job's folder was removed.
    """
    if not markers:
        return
    with claimed(folder.parent.parent):
        if not (folder / replace.JOB_NAME).exists():
            raise FileNotFoundError(f"{folder} was removed by another process.")
        if not (folder / replace.JOURNAL_NAME).exists():
            for marker in markers:
                marker.unlink(missing_ok=True)


def drop(folder: pathlib.Path) -> None:
    """Removes a job that cannot be ended, unless another task is at it."""
    with claimed(folder.parent.parent) as work_dir:
        published = (folder / replace.JOURNAL_NAME).exists()
        if folder.exists() and not published and not is_live(work_dir):
            replace.remove_job(folder)


def _modified_ns(path: pathlib.Path) -> int:
    status = path.stat()
    return max(status.st_mtime_ns, status.st_ctime_ns)
