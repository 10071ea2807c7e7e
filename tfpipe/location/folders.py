"""Files in a folder of this machine, and in a file system that only fsspec knows.

In: a path, or a URL such as hdfs://host/folder. Out: the content, sizes and names of
the files below it, in the way of `object_store.ObjectStore`. fsspec's file systems have
retries and time limits of their own.
"""

import os
import pathlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.location.location import Location


class LocalFolder:
    """The files below a folder of this machine, read with plain system calls."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        with open(self._folder / name, "rb", buffering=0) as file:
            return os.pread(file.fileno(), stop - start, start)

    def version(self, name: str) -> str:
        status = (self._folder / name).stat()
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"

    def size(self, name: str) -> int:
        path = self._folder / name
        if path.is_dir():
            raise FileNotFoundError(f"{path} is a folder")
        return path.stat().st_size

    def names(self) -> dict[str, int]:
        paths = (
            pathlib.Path(folder, name)
            for folder, _, names in os.walk(self._folder, onerror=_raise)
            for name in names
        )
        return {
            str(path.relative_to(self._folder)): path.stat().st_size for path in paths
        }

    def write(self, name: str, content: bytes) -> None:
        with atomic.new_file(self._new_path(name)) as path:
            path.write_bytes(content)

    def upload(self, name: str, path: pathlib.Path) -> None:
        with atomic.new_file(self._new_path(name)) as copy:
            shutil.copyfile(path, copy)

    def delete(self, name: str) -> None:
        (self._folder / name).unlink()

    def _new_path(self, name: str) -> pathlib.Path:
        """Returns the path of a file whose folder is made if it is missing."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def explain(self, error: Exception, *, is_write: bool) -> tuple[bool, str, str]:
        """Explains an error, see `object_store.ObjectStore.explain`."""
        said = getattr(error, "strerror", None) or str(error)
        is_missing = isinstance(error, FileNotFoundError)
        return is_missing, said, "Check its name and its folder." if is_missing else ""


class FsspecFolder:
    """The files below a URL that fsspec opens.

    Raises:
        RemoteError: If fsspec, or what it needs for this scheme, is not installed, or
            the file system cannot be reached.
    """

    def __init__(self, location: Location) -> None:
        try:
            import fsspec

            self._system, self._folder = fsspec.core.url_to_fs(location.text)
        except ImportError as error:
            raise errors.RemoteError(
                f"{location.shown} cannot be opened: {error}. "
                "pip install 'tfpipe[remote]', and what this scheme needs besides."
            ) from None
        except Exception as error:
            raise errors.RemoteError(
                f"{location.shown} cannot be opened: {error}. Check the host and "
                "the settings of the file system."
            ) from None

    def read(self, name: str) -> bytes:
        return bytes(self._system.cat_file(self._path(name)))

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        return bytes(self._system.cat_file(self._path(name), start=start, end=stop))

    def version(self, name: str) -> str:
        info = self._system.info(self._path(name))
        return f"{info['size']} {info.get('mtime')}"

    def size(self, name: str) -> int:
        return int(self._system.info(self._path(name))["size"])

    def names(self) -> dict[str, int]:
        found: dict[str, dict[str, Any]] = self._system.find(self._folder, detail=True)
        start = len(self._folder.rstrip("/")) + 1
        return {path[start:]: int(entry["size"]) for path, entry in found.items()}

    def write(self, name: str, content: bytes) -> None:
        with self._written(name) as path:
            self._system.pipe_file(path, content)

    def upload(self, name: str, path: pathlib.Path) -> None:
        with self._written(name) as copy:
            self._system.put_file(os.fspath(path), copy)

    def delete(self, name: str) -> None:
        self._system.rm_file(self._path(name))

    def explain(self, error: Exception, *, is_write: bool) -> tuple[bool, str, str]:
        """Explains an error, see `object_store.ObjectStore.explain`."""
        said = str(error).split("\n")[0] or type(error).__name__
        is_missing = isinstance(error, FileNotFoundError)
        return is_missing, said, "Check its name and its folder." if is_missing else ""

    def _path(self, name: str) -> str:
        return f"{self._folder.rstrip('/')}/{name}"

    @contextmanager
    def _written(self, name: str) -> Iterator[str]:
        """Gives a temporary path, and renames it when it is written."""
        path = self._path(name)
        partial = f"{path}.{os.urandom(16).hex()}.partial"
        self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
        old = f"{partial}.old"
        try:
            yield partial
            # A rename does not replace there.
            had_one = self._system.exists(path)
            if had_one:
                self._system.mv(path, old)
            self._system.mv(partial, path)
            if had_one:
                self._system.rm_file(old)
        except BaseException:
            if self._system.exists(old) and not self._system.exists(path):
                self._system.mv(old, path)
            if self._system.exists(partial):
                self._system.rm_file(partial)
            raise


def _raise(error: OSError) -> None:
    raise error
