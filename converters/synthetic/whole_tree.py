"""Writes a folder that gets its name only when it is complete.

In: the path of the folder and a mark, a small file that is written into it first. Out:
the complete folder, in place of an earlier one with a mark. Until then the content is
in a hidden folder beside it. The next run removes what a killed run left there.
"""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator

from converters.engines import locks

MARK_NAME = ".synthesized.json"


@contextlib.contextmanager
def claimed(output: pathlib.Path) -> Iterator[None]:
    """Locks a folder against other runs, and cleans up after a killed run.

    Raises:
        ValueError: If another run has the lock, or if a hidden folder beside this one
            was not written by a run.
        OSError: If the parent folder cannot be made or written.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        lock = _beside(output, "lock")
        descriptor = locks.acquire(lock)
    except OSError as error:
        raise OSError(
            f"--output_dir must be in a folder that can be written, got {output}: "
            f"{error.strerror}. Choose another folder."
        ) from error
    if descriptor is None:
        raise ValueError(f"Another run is writing to {output}. Wait for it.")
    with locks.holding(descriptor):
        try:
            old, partial = _beside(output, "old"), _beside(output, "partial")
            if old.exists() and not output.exists():
                old.rename(output)  # a run was killed between the two renames
            _remove(old)
            _remove(partial)
            yield
        finally:
            lock.unlink(missing_ok=True)


def _beside(output: pathlib.Path, what: str) -> pathlib.Path:
    """Returns the path of a hidden file or folder beside the output folder."""
    return output.with_name(f".{output.name}.synthesize-{what}")


@contextlib.contextmanager
def filling(output: pathlib.Path, mark: str) -> Iterator[pathlib.Path]:
    """Yields a hidden folder to fill, and renames it to `output` after the block.

    On an error the hidden folder is removed.

    Args:
        output: The folder, which `claimed` has locked; an existing one is replaced.
        mark: Content of the mark.

    Raises:
        OSError: If it cannot be written.
    """
    old, partial = _beside(output, "old"), _beside(output, "partial")
    partial.mkdir()
    try:
        (partial / MARK_NAME).write_text(mark, encoding="utf-8")
        yield partial
        if output.exists():
            output.rename(old)
        try:
            partial.rename(output)
        except OSError:
            old.rename(output)
            raise
        _remove(old)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(partial)
        raise


def _remove(folder: pathlib.Path) -> None:
    """Removes a folder with a mark, the mark last.

    Raises:
        ValueError: If the folder has content but no mark, or is a link or a file.
    """
    mark = folder / MARK_NAME
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ValueError(f"{folder} must be a folder of its own. Move it away.")
    entries = sorted(folder.iterdir()) if folder.exists() else []
    if entries and mark not in entries:
        # An empty folder needs no mark: the user may have made the output folder.
        raise ValueError(
            f"{folder} holds {entries[0].name} and not {MARK_NAME}: no run wrote it. "
            "Move it away."
        )
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry != mark:
            entry.unlink()
    mark.unlink(missing_ok=True)
    if folder.exists():
        folder.rmdir()
