"""A lease at a store whose writes cannot be conditional: one writer at a time.

In: the files of a growing data set. Out: whether this writer may write. A writer reads
the lease, waits, and takes an unchanged lease: the writer writes a name, waits, and
reads the lease back. The last of several names stays. Hosts compare no clocks.

Two writers at once are possible if a writer stops for longer than the time of the lease
between a look at the lease and the next write.
"""

import os
import time
from collections.abc import Callable

from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shards.generations import LOG_FOLDER

_NAME = f"{LOG_FOLDER}/lease"
_SETTLE_SECONDS = 5.0  # more than a write of some bytes takes


class WriterLease:
    """The lease of a writer, who holds it from the start.

    Args:
        files: The growing data set.
        writer: Name of the writer. A writer of the same name goes on at once.
        seconds: Time without a sign of life after which another writer may take over.
        sleep: Waits for some seconds.

    Raises:
        RemoteError: If another writer holds the lease, or the store fails.
    """

    def __init__(
        self,
        files: Files,
        writer: str,
        seconds: float,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._files, self._owner = files, f"{writer} {os.urandom(8).hex()}"
        self._counter = 0
        seen = self._content()
        if seen and not seen.startswith(f"{writer} "):
            sleep(seconds)
            if seen != self._content():
                raise self._lost()
        self._raise_counter()
        sleep(_SETTLE_SECONDS)
        self.require()

    def _content(self) -> str:
        try:
            return self._files.read(_NAME).decode()
        except errors.MissingFileError:
            return ""

    def _is_own(self) -> bool:
        return self._content().startswith(f"{self._owner} ")

    def _raise_counter(self) -> None:
        self._counter += 1
        self._files.write(_NAME, f"{self._owner} {self._counter}\n".encode())

    def _lost(self) -> errors.RemoteError:
        return errors.RefusedError(
            f"{self._files.location.shown} has no conditional writes (If-None-Match), "
            f"and takes one writer at a time, which is {self._content().split(' ')[0]} "
            "now. Stop that one, or use a store with conditional writes."
        )

    def require(self) -> None:
        """Shows the life of the writer.

        Raises:
            RemoteError: If another writer holds the lease.
        """
        if not self._is_own():
            raise self._lost()
        self._raise_counter()

    def release(self) -> None:
        """Ends the lease: another writer need not wait."""
        if self._is_own():
            self._files.delete(_NAME)
