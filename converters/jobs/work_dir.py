"""The working folder: its jobs, and the complete shards of the jobs.

In: a job's description and its output folder. Out: the job's own folder, with the
shards completed by earlier runs of the same job. The process holds the lock of its task
meanwhile.

The working folder is a dot-folder inside the output folder: no reader's glob matches
the name. The folder holds locks, and a folder for every job. The name of a job's folder
is a digest of the job's description, so no task of another job writes there. The marker
of a shard is written after the shard is on the disk: an incomplete shard never counts
as complete after a power loss.
"""

import contextlib
import json
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from converters.engines import locks
from converters.jobs import replace, write_shard
from converters.jobs.job import OUTPUT_FLAG, changes_since, differences, identity_of
from converters.jobs.plan import ShardPlan
from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.shards import index

WORK_DIR_NAME = ".converting"
_JOB_PREFIX = "job-"
_CLAIM_NAME = "claim.lock"
_LOCK_SUFFIX = ".lock"
# Files in the folder of an unfinished job.
_SIGNS = (replace.JOB_NAME, replace.JOURNAL_NAME)

Description = Mapping[str, Any]


def job_dir(output_dir: pathlib.Path, identity: str) -> pathlib.Path:
    """Returns the folder of a job."""
    return output_dir / WORK_DIR_NAME / f"{_JOB_PREFIX}{identity}"


def require_folder(output_dir: pathlib.Path, flag: str) -> None:
    """Refuses a file in the place of the output folder.

    Raises:
        ValueError: If a file is there.
    """
    if output_dir.exists() and not output_dir.is_dir():
        raise ValueError(f"{flag} must be a folder, got the file {output_dir}.")


@contextlib.contextmanager
def claimed(
    output_dir: pathlib.Path, *, flag: str = OUTPUT_FLAG
) -> Iterator[pathlib.Path]:
    """Locks the working folder, and makes a missing folder.

    Only the holder of the lock begins, drops or publishes a job, on any host with
    access to the folder. At the end of the block a folder without jobs is removed.

    Args:
        output_dir: Folder of the data set.
        flag: Its flag, for errors.

    Yields:
        The working folder.

    Raises:
        ValueError: If the folder has content of other programs.
    """
    work_dir = output_dir / WORK_DIR_NAME
    require_folder(output_dir, flag)
    descriptor = None
    while descriptor is None:
        _require_own(work_dir)
        work_dir.mkdir(parents=True, exist_ok=True)
        # FileNotFoundError: another process ended its job and removed the folder.
        with contextlib.suppress(FileNotFoundError):
            descriptor = locks.acquire(work_dir / _CLAIM_NAME, wait=True)
    with locks.holding(descriptor):
        _require_own(work_dir)
        try:
            yield work_dir
        finally:
            idle = _remove_if_idle(work_dir)
    if idle:  # on NFS the file of the lock stays as long as the lock is held
        with contextlib.suppress(OSError):
            work_dir.rmdir()


def _require_own(work_dir: pathlib.Path) -> None:
    """Refuses a working folder with content of other programs."""
    if work_dir.is_symlink() or (work_dir.exists() and not work_dir.is_dir()):
        raise ValueError(
            f"{work_dir} must be a folder of its own, got a link or a file. It was not "
            "changed. Move it away."
        )
    for entry in work_dir.iterdir() if work_dir.exists() else ():
        # NFS keeps a removed file under a hidden name while the file is open.
        if entry.name.endswith(_LOCK_SUFFIX) or entry.name.startswith("."):
            continue
        job = entry.name.startswith(_JOB_PREFIX) and entry.is_dir()
        if not job or entry.is_symlink():
            raise ValueError(
                f"{work_dir} holds {entry.name}, which this version of the converters "
                f"did not make. Move {work_dir} away."
            )


def _remove_if_idle(work_dir: pathlib.Path) -> bool:
    """Removes a working folder without jobs and tasks; returns whether it was idle."""
    if _jobs(work_dir) or is_live(work_dir):
        return False
    for lock in sorted(work_dir.glob(f"*{_LOCK_SUFFIX}"), key=_claim_last):
        lock.unlink(missing_ok=True)
    # OSError: another process has just made its lock in the folder.
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
    flag: str = OUTPUT_FLAG,
) -> Iterator[pathlib.Path]:
    """Opens the job's folder, and locks the task until the end of the block.

    Args:
        output_dir: Folder of the data set.
        description: Everything behind the written bytes; JSON values.
        task: Number of the process among the job's tasks; a task runs once at a time.
        restart: Whether an existing data set may be replaced, and an unfinished job of
            another description dropped.
        names: Names of the shards of the job.
        fsync: Whether the description must be on the disk before anything else is done.
        flag: Flag of the folder, for errors.

    Yields:
        The job's folder.

    Raises:
        ValueError: If the task is running already, or the folder belongs to a data set
            or to a job of another description.
        OSError: If an earlier job was cut off and cannot be ended.
    """
    with claimed(output_dir, flag=flag) as work_dir:
        end_cut_off(work_dir, give_up=restart, fsync=fsync)
        require_free(output_dir, names, overwrite=restart, flag=flag)
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


def require_free(
    output_dir: pathlib.Path,
    names: Sequence[str],
    *,
    overwrite: bool,
    options: Description | None = None,
    flag: str = OUTPUT_FLAG,
) -> None:
    """Refuses an output folder whose content a conversion would mix with or lose.

    Args:
        output_dir: Folder of the data set to write.
        names: Names of its shards.
        overwrite: Whether an existing data set may be replaced.
        options: The command and some options of the job. A data set written with the
            same options may be the wanted data set.
        flag: Flag of the folder, for errors.

    Raises:
        ValueError: If there is another data set and `overwrite` is not set, or there
            are files of other programs.
        OSError: If a file outside the data set has the name of a new file.
        BadIndexError: If the index does not list the files of the data set.
    """
    if (output_dir / index.INDEX_NAME).exists():
        if not overwrite and options is not None:
            made_by = index.load(output_dir).made_by
            before = made_by | made_by.get("options", {})
            if difference := changes_since(before, options):
                raise taken(str(output_dir), difference=difference, flag=flag)
            return
        if not overwrite:
            more = " Add --overwrite also to go on with an unfinished conversion."
            more = more if has_jobs(output_dir) else ""
            raise taken(str(output_dir), more=more, flag=flag)
        replace.old_files(output_dir, names)
        return
    others = {entry.name for entry in output_dir.iterdir()} - {WORK_DIR_NAME}
    if others:
        raise ValueError(
            f"{flag} {output_dir} must be empty or hold a data set, "
            f"got other files, the first is {min(others)}. Choose another folder."
        )


def has_jobs(output_dir: pathlib.Path) -> bool:
    """Whether a job for the output folder was begun and has not ended."""
    return any(_jobs(output_dir / WORK_DIR_NAME))


def taken(
    output: str, *, difference: str = "", more: str = "", flag: str = OUTPUT_FLAG
) -> ValueError:
    """Returns the error for an output with another data set.

    Args:
        output: The path or the URL, without secrets.
        difference: How the data set differs from the wanted data set; empty if unknown.
        more: A sentence for the end.
        flag: Flag of the output.
    """
    of_another = f" that differs from this one: {difference}" if difference else ""
    return ValueError(
        f"{flag} {output} already holds a data set{of_another}. Choose another "
        f"folder, or replace it with --overwrite.{more}"
    )


def _leave(work_dir: pathlib.Path) -> None:
    """Removes the working folder after the last task of a finished job.

    Two tasks may end together: both see a lock of the other task while they publish. A
    task therefore looks again after the release of its own lock. If another process has
    locked the working folder then, the other process removes the folder.
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
    """Publishes the jobs whose publishing was cut off; returns their identities.

    The remains of the folder of an ended job are removed.

    Args:
        work_dir: The working folder, claimed.
        give_up: As for `replace.recover`.
        fsync: As for `replace.recover`.

    Raises:
        OSError: If a job cannot be published.
    """
    ended = {
        folder.name.removeprefix(_JOB_PREFIX)
        for folder in _jobs(work_dir)
        if replace.recover(folder, work_dir.parent, give_up=give_up, fsync=fsync)
    }
    for folder in () if is_live(work_dir) else _jobs(work_dir):
        # A folder without both was being removed: see `replace.remove_job`.
        if not any((folder / n).exists() for n in _SIGNS):
            replace.remove_job(folder)
    return ended


def require_whole(data_dir: pathlib.Path) -> None:
    """Refuses a folder with files of an old data set and of a new data set.

    Raises:
        ValueError: If a conversion is publishing, or was cut off during the publishing.
    """
    for journal in data_dir.glob(f"{WORK_DIR_NAME}/*/{replace.JOURNAL_NAME}"):
        if (journal.parent / index.INDEX_NAME).exists():
            raise ValueError(
                f"A conversion to {data_dir} was cut off while its files were "
                "published. Run the conversion again to complete it."
            )


def _claim(
    work_dir: pathlib.Path, description: Description, *, restart: bool, fsync: bool
) -> pathlib.Path:
    """Makes the job's folder the only folder of the working folder; returns it."""
    # Values as they come back from JSON, where a tuple is a list.
    wanted = json.loads(json.dumps(description))
    mine = work_dir / f"{_JOB_PREFIX}{identity_of(wanted)}"
    for folder in _jobs(work_dir):
        # A folder without a description: its job has not begun, or is being dropped.
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
        atomic.write(mine / replace.JOB_NAME, text, fsync=fsync)
    return mine


def is_live(work_dir: pathlib.Path) -> bool:
    """Checks whether a task of any job is running in another process."""
    return any(map(locks.is_held, work_dir.glob(f"task-*{_LOCK_SUFFIX}")))


def _description(folder: pathlib.Path) -> Any:
    """Reads the description of a job; returns None for a missing or damaged file."""
    try:
        return errors.from_json((folder / replace.JOB_NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _explained(folder: pathlib.Path, wanted: Mapping[str, Any]) -> str:
    before = _description(folder)
    if not isinstance(before, dict):
        return f"{folder / replace.JOB_NAME} cannot be read"
    return "; ".join(differences(before, wanted))


def sweep(folder: pathlib.Path) -> None:
    """Removes the unfinished files of a job's folder, but for those of running tasks.

    The calling process must not be writing a shard.
    """
    for path in folder.glob("*.part"):
        writer = re.fullmatch(r".*\.(\d+)-\d+\.part", path.name, re.DOTALL)
        task = writer[1] if writer else None
        if not locks.is_held(folder.parent / f"task-{task}{_LOCK_SUFFIX}"):
            path.unlink(missing_ok=True)


def completed(
    plans: Sequence[ShardPlan],
    folder: pathlib.Path,
    *,
    uploaded: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, write_shard.Written]:
    """Returns the complete shards of the job, by name.

    Args:
        plans: Shards of the job.
        folder: The job's folder. A shard that was uploaded is no longer there, but its
            marker is.
        uploaded: Bytes of the files at the URL of the job.
    """
    done, job = {}, folder.name.removeprefix(_JOB_PREFIX)
    for plan in plans:
        path = folder / plan.name
        written = write_shard.read_marker(path)
        if written is None or (written.job, written.shard.name) != (job, plan.name):
            continue
        here = path.exists()
        num_bytes = path.stat().st_size if here else uploaded.get(plan.name)
        if num_bytes == written.shard.num_bytes:
            done[plan.name] = written
    return done


def forget(markers: Sequence[pathlib.Path], folder: pathlib.Path) -> None:
    """Removes markers of shards, unless another task is publishing or has published.

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
    """Removes the folder of a failed job, unless another task uses the folder."""
    with claimed(folder.parent.parent) as work_dir:
        published = (folder / replace.JOURNAL_NAME).exists()
        if folder.exists() and not published and not is_live(work_dir):
            replace.remove_job(folder)
