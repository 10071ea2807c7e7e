"""A folder that appears under its name when it is complete, and replaces only its like.

In: the folder's path and a mark, a small file that is written into it first. Out: the
folder, whole, in place of one that was there. Until then the content is in a hidden
folder beside it. What a killed run left there is cleared up by the next one.
"""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator

from converters.engines import locks

MARK_NAME = ".synthesized.json"


@contextlib.contextmanager
def claimed(output: pathlib.Path) -> Iterator[None]:
    """Keeps other runs away from a folder, and undoes what a killed one left half-done.

    Raises:
        ValueError: If another run is at the folder, or something that none wrote is
            where this one wants to work.
        OSError: If the folder cannot be made.
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
                old.rename(output)  # a run was killed before the new one took its place
            _remove(old)
            _remove(partial)
            yield
        finally:
            lock.unlink(missing_ok=True)


def _beside(output: pathlib.Path, what: str) -> pathlib.Path:
    return output.with_name(f".{output.name}.synthesize-{what}")


@contextlib.contextmanager
def filling(output: pathlib.Path, mark: str) -> Iterator[pathlib.Path]:
    """A folder to fill, which is `output` after the block; on an error it is removed.

    Args:
        output: The folder, claimed; one that is there is replaced.
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
    """Removes a folder with a mark, the mark last; one without it is refused."""
    mark = folder / MARK_NAME
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ValueError(f"{folder} must be a folder of its own. Move it away.")
    entries = sorted(folder.iterdir()) if folder.exists() else []
    if entries and mark not in entries:
        # An empty folder may stand for one that was replaced.
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
