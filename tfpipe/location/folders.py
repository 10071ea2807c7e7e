"""Files in a folder of this machine.

In: a path. Out: the content, sizes and names of the files below it, in the way of
`object_store.ObjectStore`.
"""

import os
import pathlib
import shutil

from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.location.system_reads import pread


class LocalFolder:
    """The files below a folder of this machine, read with plain system calls."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        with open(self._folder / name, "rb", buffering=0) as file:
            return pread(file.fileno(), stop - start, start)

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

    def create(self, name: str, content: bytes) -> bool:
        return atomic.create(self._new_path(name), content)

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

    def explain(
        self, error: Exception, *, is_write: bool
    ) -> tuple[type[errors.RemoteError], str, str]:
        """Explains an error, see `object_store.ObjectStore.explain`."""
        said = getattr(error, "strerror", None) or str(error)
        if isinstance(error, FileNotFoundError):
            return errors.MissingFileError, said, "Check its name and its folder."
        return errors.RefusedError, said, ""


def _raise(error: OSError) -> None:
    raise error
