"""Files in HDFS, through hdfs-native, without Java and Hadoop.

In: a URL such as hdfs://host:8020/folder. Out: the content, sizes and names of the
files below it, in the way of `object_store.ObjectStore`. Without a host, the name node
comes from core-site.xml in HADOOP_CONF_DIR; a login comes from Kerberos.
"""

import os
import pathlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tfpipe import errors
from tfpipe.location.location import Location

_COPY_BYTES = 8 << 20
# A silent name node is asked so often, with growing pauses. The longest pause is a
# share of the time limit, so that all tries fit the limit.
_NUM_TRIES, _PAUSE_SHARE = 10, 0.05


class HdfsFolder:
    """The files below a URL of HDFS.

    Args:
        location: The URL.
        time_limit: Seconds in which a name node must answer, > 0.

    Raises:
        RemoteError: If hdfs-native is not installed, or there is no name node in the
            URL and in the settings of Hadoop.
    """

    def __init__(self, location: Location, time_limit: float) -> None:
        try:
            import hdfs_native
        except ImportError:
            raise errors.RemoteError(
                f"{location.shown} needs hdfs-native: pip install 'tfpipe[hdfs]'"
            ) from None
        authority, _, folder = location.text.removeprefix("hdfs://").partition("/")
        milliseconds = 1000 * time_limit
        config = {
            "dfs.client.failover.max.attempts": _NUM_TRIES,
            "dfs.client.failover.sleep.base.millis": min(500, milliseconds / 100),
            "dfs.client.failover.sleep.max.millis": milliseconds * _PAUSE_SHARE,
        }
        texts = {name: str(int(value)) for name, value in config.items()}
        self._folder, self._options = f"/{folder}", hdfs_native.WriteOptions
        try:
            url = f"hdfs://{authority}" if authority else None
            self._client: Any = hdfs_native.Client(url, texts)
        except Exception as error:
            raise errors.RemoteError(
                f"{location.shown} cannot be used: {_said(error)}. Write the host of "
                "the name node, hdfs://HOST:8020/FOLDER, or set HADOOP_CONF_DIR."
            ) from None

    def read(self, name: str) -> bytes:
        with self._client.read(self._path(name)) as file:
            return bytes(file.read())

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        with self._client.read(self._path(name)) as file:
            # hdfs-native panics behind the end of a file.
            num_bytes = min(stop, file.size) - start
            return bytes(file.read_range(start, num_bytes)) if num_bytes > 0 else b""

    def size(self, name: str) -> int:
        return int(self._status(name).length)

    def version(self, name: str) -> str:
        status = self._status(name)
        return f"{status.length} {status.modification_time}"

    def _status(self, name: str) -> Any:
        status = self._client.get_file_info(self._path(name))
        if status.isdir:
            raise FileNotFoundError("it is a folder")
        return status

    def names(self) -> dict[str, int]:
        start = len(self._folder.rstrip("/")) + 1
        with suppress(FileNotFoundError):
            return {
                status.path[start:]: status.length
                for status in self._client.list_status(self._folder, True)
                if not status.isdir
            }
        return {}

    def write(self, name: str, content: bytes) -> None:
        with self._written(name) as file:
            file.write(content)

    def create(self, name: str, content: bytes) -> bool:
        try:
            with self._written(name, replaces=False) as file:
                file.write(content)
        except FileExistsError:
            return False
        return True

    def upload(self, name: str, path: pathlib.Path) -> None:
        with open(path, "rb") as source, self._written(name) as file:
            shutil.copyfileobj(source, file, _COPY_BYTES)

    def delete(self, name: str) -> None:
        self._client.delete(self._path(name), False)

    def explain(
        self, error: Exception, *, is_write: bool
    ) -> tuple[type[errors.RemoteError], str, str]:
        """Explains an error, see `object_store.ObjectStore.explain`."""
        said = _said(error)
        if isinstance(error, FileNotFoundError):
            return errors.MissingFileError, said, "Check its name and its folder."
        if "AccessControlException" in said or "Permission denied" in said:
            login = "Log in (kinit), or set HADOOP_USER_NAME."
            return errors.RefusedError, said, login
        remedy = "Check HDFS and the network, and try again."
        if "Connection refused" in said or "lookup address" in said:
            remedy = "Check the host and the port of the name node."
        return errors.RemoteError, said, remedy

    def _path(self, name: str) -> str:
        return f"{self._folder.rstrip('/')}/{name}"

    @contextmanager
    def _written(self, name: str, *, replaces: bool = True) -> Iterator[Any]:
        """Gives a new file. The whole file replaces the old file, or is refused."""
        path = self._path(name)
        partial = f"{path}.{os.urandom(16).hex()}.partial"
        options = self._options(overwrite=True, create_parent=True)
        try:
            with self._client.create(partial, options) as file:
                yield file
            self._client.rename(partial, path, replaces)
        except BaseException:
            with suppress(Exception):  # the first error says more
                self._client.delete(partial, False)
            raise


def _said(error: Exception) -> str:
    """Returns the first line of an error; the rest is a stack of Java."""
    return (str(error).splitlines() or [type(error).__name__])[0].strip(" .")
