"""Publish what a job has made: replace an old data set by the new one, at any cut-off.

In: a job's folder in which every file of a data set is complete, its index among them.
Out: the data set in the output folder. Before the first file of the old data set is
removed, a journal in the job's folder says which files go and which come; when all of
the old ones are gone, it says only which come. Whoever meets a journal does what it
says to the end before anything else: each of its steps can be done again. The old index
goes first and the new index comes last, so that an output folder in between is never
taken for a data set.
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
from tfpipe.shards import index

JOB_NAME = "job.json"
JOURNAL_NAME = "publish.json"

# What a data set may hold beside its shards, its index and DALI's folder.
SIDE_FILE_NAMES = frozenset(
    {
        index.CATALOG_NAME,
        "changes.jsonl",
        "rejects.jsonl",
        "duplicates.jsonl",
        *(side_files.SIDE_NAMES - {side_files.DALI_DIR_NAME}),
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Journal:
    """What is left to do to publish a job.

    Attributes:
        remove: Files of the old data set, its index first; none once all are gone.
        move: Files of the new one, without the index.

    Raises:
        ValueError: If a name is not that of a file of a data set.
    """

    remove: Sequence[str]
    move: Sequence[str]

    def __post_init__(self) -> None:
        for name in (*self.remove, *self.move):
            index.require_base_name(name.removeprefix(f"{side_files.DALI_DIR_NAME}/"))

    def write(self, job_dir: pathlib.Path, *, fsync: bool) -> None:
        """Puts it into the job's folder, in place of an earlier one."""
        text = json.dumps(dataclasses.asdict(self))
        index.replace_file(job_dir / JOURNAL_NAME, text.encode(), fsync=fsync)


def old_files(output_dir: pathlib.Path, new: Sequence[str]) -> list[str]:
    """The files of the data set that is there, the index first; none if there is none.

    Args:
        output_dir: Folder with or without a data set.
        new: Files that are to come.

    Raises:
        FileExistsError: If a new file would replace one that is not of the data set, or
            a file of the data set is a folder.
        BadIndexError: If there is an index that does not say which files are its own.
    """
    names: list[str] = []
    if (output_dir / index.INDEX_NAME).exists():
        known = index.load(output_dir)
        names = [shard.name for entries in known.splits.values() for shard in entries]
        names += [f"{side_files.DALI_DIR_NAME}/{name}" for name in names]
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


def publish(
    job_dir: pathlib.Path,
    output_dir: pathlib.Path,
    *,
    new: Sequence[str],
    fsync: bool,
) -> None:
    """Puts the files of a complete job in place of the data set that is there.

    Args:
        job_dir: Folder with the new files, all of them on the disk, and the new index.
        output_dir: Where they go; `old_files` has no objection.
        new: The files, without the index.
        fsync: Whether each step is on the disk before the next one begins.
    """
    journal = Journal(remove=old_files(output_dir, new), move=new)
    journal.write(job_dir, fsync=fsync)
    if fsync:  # else a power loss might cost the journal and not what follows
        index.sync_folder(job_dir.parent)
        index.sync_folder(output_dir)
    _replay(journal, job_dir, output_dir, fsync=fsync)


def _replay(
    journal: Journal, job_dir: pathlib.Path, output_dir: pathlib.Path, *, fsync: bool
) -> None:
    """Does what is left to do of a journal; without a new index, nothing is."""
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
            index.sync_folder(output_dir)
    if fsync:
        _sync_folders(names, output_dir)


def _sync_folders(names: Sequence[str], output_dir: pathlib.Path) -> None:
    # Once for all: a sync after each of thousands of files takes longer than they.
    for folder in {output_dir, *((output_dir / name).parent for name in names)}:
        if folder.exists():
            index.sync_folder(folder)


def _move_all(
    names: Sequence[str],
    job_dir: pathlib.Path,
    output_dir: pathlib.Path,
    *,
    fsync: bool,
) -> None:
    """Gives files their final places, and has that on the disk before it returns."""
    for name in names:
        if (job_dir / name).exists():  # else it was moved before a crash
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
        output_dir: Where its data set goes.
        give_up: Whether what cannot be ended any more may be removed.
        fsync: As for `publish`.

    Returns:
        Whether the job had begun to publish, and its data set is there now.

    Raises:
        OSError: If it cannot be ended, because a file is missing.
    """
    if not (job_dir / JOURNAL_NAME).exists():
        return False
    journal = _read(job_dir / JOURNAL_NAME)
    lost = _missing(journal, job_dir, output_dir)
    if journal is not None and not lost:
        print(
            f"Ending a conversion to {output_dir} that was cut off while its files "
            "were given their places.",
            file=sys.stderr,
        )
        _replay(journal, job_dir, output_dir, fsync=fsync)
        return True
    if not give_up:
        raise OSError(
            f"A conversion to {output_dir} was cut off while its files were given "
            f"their places, and {lost} is not there any more. Remove what is left of "
            "it with --overwrite."
        )
    if journal is not None and not _is_untouched(journal, output_dir):
        names = [index.INDEX_NAME, *journal.remove, *journal.move]
        _remove(names, output_dir, fsync=fsync)
        with contextlib.suppress(OSError):
            (output_dir / side_files.DALI_DIR_NAME).rmdir()
    remove_job(job_dir)
    return False


def _is_untouched(journal: Journal, output_dir: pathlib.Path) -> bool:
    """Whether the old data set is still there as a whole."""
    return bool(journal.remove) and all(
        os.path.lexists(output_dir / name) for name in journal.remove
    )


def _read(path: pathlib.Path) -> Journal | None:
    """The journal; None if a power loss spoiled it, which --nofsync risks."""
    try:
        return Journal(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, AttributeError):
        return None


def _missing(
    journal: Journal | None, job_dir: pathlib.Path, output_dir: pathlib.Path
) -> str | None:
    """A file without which a publishing cannot be ended; None if all are there."""
    if journal is None:
        return JOURNAL_NAME
    if not (job_dir / index.INDEX_NAME).exists():
        # As long as old files are there, an index is that of the old data set.
        placed = not journal.remove and (output_dir / index.INDEX_NAME).exists()
        return None if placed else index.INDEX_NAME
    # As long as old files are there, none has been moved.
    places = (job_dir,) if journal.remove else (job_dir, output_dir)
    for name in journal.move:
        if not any((folder / name).exists() for folder in places):
            return name
    return None


def remove_job(job_dir: pathlib.Path) -> None:
    """Removes a job's folder: its description first and its journal last.

    A folder that has neither is nobody's: a run that was cut off here needs no more.
    A task that is still writing the same shards once more is told by an error.
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
