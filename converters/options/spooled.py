"""The folder for data of tables, in the working folder of a conversion.

In: options with an output folder. Out: a folder for the rows and the image bytes of a
table. The folder stays while the conversion can go on, and is removed at the end.
"""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from converters.inputs.tables import images, scan, spool, table_sources
from converters.jobs import changed, work_dir
from converters.options import shared
from converters.options.job import JobOptions
from tfpipe.location import urls
from tfpipe.shards import index


def root_of(
    flag: str, value: str | None, source: table_sources.TableSource
) -> images.Root:
    """Returns the folder or URL above the relative paths of a table.

    Args:
        flag: The flag of the folder or URL.
        value: Value of the flag; None takes the folder of the table.
        source: The table.

    Raises:
        ValueError: If the value is no folder and no known kind of URL.
    """
    if value is None:
        return images.Root(place=source.folder or ".", is_given=False)
    if urls.is_url(value):
        return images.Root(place=urls.require_place("", flag, value), is_given=True)
    path = shared.path_of(flag, value)
    if not path.is_dir():
        raise ValueError(f"{flag} must be a folder, got {path}: no such folder.")
    return images.Root(place=str(path), is_given=True)


def require_free(
    options: JobOptions,
    recorded: Mapping[str, Any],
    tables: Iterable[table_sources.TableSource],
) -> None:
    """Refuses an output folder before a table is read, if the job would refuse it.

    Args:
        options: Options of the conversion.
        recorded: The command and those of its options that decide the bytes.
        tables: The tables.

    Raises:
        ValueError: If the job would.
        OSError: If a table cannot be looked at.
    """
    output_dir = options.local_dir
    jobs = output_dir.glob(f"{work_dir.WORK_DIR_NAME}/*/*.json")
    if not output_dir.is_dir() or any(jobs):
        return
    overwrite = options.overwrite
    work_dir.require_free(output_dir, (), overwrite=overwrite, options=recorded)
    written = output_dir / index.INDEX_NAME
    near = (file for t in tables if not t.is_remote for file in t.files)
    for file in near if written.exists() and not overwrite else ():
        if changed.modified_ns(pathlib.Path(file)) > written.stat().st_mtime_ns:
            difference = f"{file} was changed after it was written"
            raise work_dir.taken(str(output_dir), difference=difference)


@contextlib.contextmanager
def folder_of(options: JobOptions, state: object) -> Iterator[pathlib.Path]:
    """Yields the folder of a table, and keeps other tasks out in the meantime.

    Args:
        options: Options of the conversion.
        state: JSON values that decide the reading. Equal values get the same folder.
    """
    output_dir = options.local_dir
    key = index.digest(json.dumps([state, scan.ROWS_VERSION], sort_keys=True))
    folder = spool.folder_of(output_dir / work_dir.WORK_DIR_NAME, key)
    is_new = not output_dir.exists()
    try:
        with spool.locked(folder):
            yield folder
    finally:
        # Folders with content stay: all folders, unless reading failed.
        for path in (folder.parent, output_dir) if is_new else (folder.parent,):
            with contextlib.suppress(OSError):
                path.rmdir()


def convert(options: JobOptions, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Does a conversion, and removes the folders of tables at its end.

    The folders are also removed after an error that a second run would meet again.

    Args:
        options: Options of the conversion.
        work: Converts, and returns the summary.
    """
    output_dir = options.local_dir
    is_new = not output_dir.exists()
    try:
        done = work()
    except ValueError:
        if options.num_tasks == 1:
            _clean(output_dir, is_new=is_new)
        raise
    if done["finished"]:
        _clean(output_dir, is_new=urls.is_url(options.output_dir))
    return done


def _clean(output_dir: pathlib.Path, *, is_new: bool) -> None:
    """Removes the copied images, and an output folder that is new and empty.

    Another command may be running, or may go on with its job: its images stay.
    """
    folder = output_dir / work_dir.WORK_DIR_NAME
    if folder.is_dir():
        with work_dir.claimed(output_dir):
            if not work_dir.has_jobs(output_dir) and not work_dir.is_live(folder):
                spool.remove(folder)
    if is_new:
        with contextlib.suppress(OSError):
            output_dir.rmdir()
