"""Replaces an old data set by a new one, so that the move can be cut off at any point.

In: a job's folder with every file of a data set, the index included. Out: the data set
in the output folder. Before the first file of the old data set is removed, a journal in
the job's folder lists the files to remove and the files to move. After the old files
are removed, the journal lists only the files to move. A process that finds a journal
first does what is left of it; each of its steps can be done again. The old index is
removed first and the new index is moved last, so that an output folder in between is
never taken for a data set.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Sequence

from converters.jobs import side_files
from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.native import entry_file
from tfpipe.shards import index

JOB_NAME = "job.json"
JOURNAL_NAME = "publish.json"

# Files that a data set may hold beside its shards, its index and DALI's folder.
SIDE_FILE_NAMES = frozenset(
    {
        index.CATALOG_NAME,
        "changes.jsonl",
        "rejects.jsonl",
        "duplicates.jsonl",
        "near_duplicates.jsonl",
        *(side_files.SIDE_NAMES - {side_files.DALI_DIR_NAME}),
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Journal:
    """The steps that are left to publish a job.

    Attributes:
        remove: Files of the old data set, the index first; empty after all are removed.
        move: Files of the new data set, without the index.

    Raises:
        ValueError: If a name cannot be the name of a file of a data set.
    """

    remove: Sequence[str]
    move: Sequence[str]

    def __post_init__(self) -> None:
        for name in (*self.remove, *self.move):
            index.require_base_name(name.removeprefix(f"{side_files.DALI_DIR_NAME}/"))

    def write(self, job_dir: pathlib.Path, *, fsync: bool) -> None:
        """Writes the journal into the job's folder, in place of an earlier one."""
        text = json.dumps(dataclasses.asdict(self))
        atomic.write(job_dir / JOURNAL_NAME, text.encode(), fsync=fsync)


def old_files(output_dir: pathlib.Path, new: Sequence[str]) -> list[str]:
    """Returns the files of the existing data set, the index first.

    Args:
        output_dir: Folder with or without a data set.
        new: Names of the files of the new data set.

    Raises:
        FileExistsError: If a new file would replace a file that is not of the data set,
            or a folder has the name of a file of the data set.
        BadIndexError: If the index does not say which files are the data set's.
    """
    names: list[str] = []
    if (output_dir / index.INDEX_NAME).exists():
        known = index.load(output_dir)
        names = [shard.name for entries in known.splits.values() for shard in entries]
        names += [f"{side_files.DALI_DIR_NAME}/{name}" for name in names]
        names += [entry_file.name_of(split) for split in known.splits]
        names = [index.INDEX_NAME, *names, *sorted(SIDE_FILE_NAMES)]
    dali = output_dir / side_files.DALI_DIR_NAME
    if dali.is_symlink() or (dali.exists() and not dali.is_dir()):
        raise FileExistsError(f"{dali} must be a folder of its own. Move it away.")
    for name in names:
        path = output_dir / name
        if path.is_dir() and not path.is_symlink():
            raise FileExistsError(f"{path} must be a file, got a folder. Move it away.")
    for name in sorted(set(new) - set(names)):
        if "/" not in name and os.path.lexists(output_dir / name):
            raise FileExistsError(
                f"{output_dir} holds {name}, which a new file would replace, but no "
                f"{index.INDEX_NAME} lists it. Move it away."
            )
    return [name for name in names if os.path.lexists(output_dir / name)]


def put_in_place(
    job_dir: pathlib.Path, output_dir: pathlib.Path, *, new: Sequence[str], fsync: bool
) -> None:
    """Moves the files of a complete job to the output folder, and removes the old ones.

    Args:
        job_dir: Folder with the new files and the new index, all of them on the disk.
        output_dir: Folder that they are moved to.
        new: Names of the files, without the index.
        fsync: Whether every step must be on the disk before the next one begins.

    Raises:
        FileExistsError: As `old_files` does.
        BadIndexError: As `old_files` does.
    """
    journal = Journal(remove=old_files(output_dir, new), move=new)
    journal.write(job_dir, fsync=fsync)
    if fsync:  # otherwise a power loss could undo the journal but not the next steps
        atomic.sync(job_dir.parent)
        atomic.sync(output_dir)
    _replay(journal, job_dir, output_dir, fsync=fsync)


def _replay(
    journal: Journal, job_dir: pathlib.Path, output_dir: pathlib.Path, *, fsync: bool
) -> None:
    """Does the steps that a journal lists; none is left once the index was moved."""
    if (job_dir / index.INDEX_NAME).exists():
        if journal.remove:
            _remove(journal.remove, output_dir, fsync=fsync)
            Journal(remove=[], move=journal.move).write(job_dir, fsync=fsync)
        _move_all(journal.move, job_dir, output_dir, fsync=fsync)
        _move_all([index.INDEX_NAME], job_dir, output_dir, fsync=fsync)
    remove_job(job_dir)


def _remove(names: Sequence[str], output_dir: pathlib.Path, *, fsync: bool) -> None:
    for name in names:
        (output_dir / name).unlink(missing_ok=True)
        if fsync and name == index.INDEX_NAME:
            atomic.sync(output_dir)
    if fsync:
        _sync_folders(names, output_dir)


def _sync_folders(names: Sequence[str], output_dir: pathlib.Path) -> None:
    # Once for all files: a sync after each of thousands would take longer than moving.
    for folder in {output_dir, *((output_dir / name).parent for name in names)}:
        if folder.exists():
            atomic.sync(folder)


def _move_all(
    names: Sequence[str],
    job_dir: pathlib.Path,
    output_dir: pathlib.Path,
    *,
    fsync: bool,
) -> None:
    """Moves files to the output folder, and syncs the folders."""
    for name in names:
        if (job_dir / name).exists():  # otherwise it was moved before a crash
            _move(name, job_dir, output_dir)
    if fsync:
        _sync_folders(names, output_dir)


def _move(name: str, job_dir: pathlib.Path, output_dir: pathlib.Path) -> None:
    place = output_dir / name
    place.parent.mkdir(exist_ok=True)
    os.replace(job_dir / name, place)


def recover(
    job_dir: pathlib.Path, output_dir: pathlib.Path, *, give_up: bool, fsync: bool
) -> bool:
    """Ends the publishing of a job that was cut off, and says so on stderr.

    Args:
        job_dir: The job's folder.
        output_dir: Folder of its data set.
        give_up: Whether to remove a half-published data set that cannot be completed.
        fsync: As for `put_in_place`.

    Returns:
        Whether the job had begun to publish, and its data set is complete now.

    Raises:
        OSError: If the data set cannot be completed, because a file is missing.
    """
    if not (job_dir / JOURNAL_NAME).exists():
        return False
    journal = _read(job_dir / JOURNAL_NAME)
    lost = _missing(journal, job_dir, output_dir)
    if journal is not None and not lost:
        print(
            f"Ending a conversion to {output_dir} that was cut off while its files "
            "were published.",
            file=sys.stderr,
        )
        _replay(journal, job_dir, output_dir, fsync=fsync)
        return True
    if not give_up:
        raise OSError(
            f"A conversion to {output_dir} was cut off while its files were published, "
            f"and {lost} is missing. Remove the other files of it with --overwrite."
        )
    if journal is not None and not _is_untouched(journal, output_dir):
        names = [index.INDEX_NAME, *journal.remove, *journal.move]
        _remove(names, output_dir, fsync=fsync)
        with contextlib.suppress(OSError):
            (output_dir / side_files.DALI_DIR_NAME).rmdir()
    remove_job(job_dir)
    return False


def _is_untouched(journal: Journal, output_dir: pathlib.Path) -> bool:
    """Checks whether no file of the old data set was removed yet."""
    return bool(journal.remove) and all(
        os.path.lexists(output_dir / name) for name in journal.remove
    )


def _read(path: pathlib.Path) -> Journal | None:
    """Reads a journal; returns None if a power loss damaged it, as --nofsync allows."""
    try:
        return Journal(**errors.from_json(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, AttributeError):
        return None


def _missing(
    journal: Journal | None, job_dir: pathlib.Path, output_dir: pathlib.Path
) -> str | None:
    """Returns a missing file that publishing needs; None if no file is missing."""
    if journal is None:
        return JOURNAL_NAME
    if not (job_dir / index.INDEX_NAME).exists():
        # While there are old files to remove, an index is the old data set's.
        placed = not journal.remove and (output_dir / index.INDEX_NAME).exists()
        return None if placed else index.INDEX_NAME
    # While there are old files to remove, no new file was moved.
    places = (job_dir,) if journal.remove else (job_dir, output_dir)
    for name in journal.move:
        if not any((folder / name).exists() for folder in places):
            return name
    return None


def remove_job(job_dir: pathlib.Path) -> None:
    """Removes a job's folder: its description first and its journal last.

    A folder without both belongs to no job, so that this removal can be cut off. A task
    that is still writing the same shards again gets an error for the missing folder.
    """
    (job_dir / JOB_NAME).unlink(missing_ok=True)
    while job_dir.exists():
        for entry in sorted(job_dir.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != JOURNAL_NAME:
                entry.unlink(missing_ok=True)
        (job_dir / JOURNAL_NAME).unlink(missing_ok=True)
        try:
            job_dir.rmdir()
        except OSError:
            if not any(job_dir.iterdir()):
                raise
