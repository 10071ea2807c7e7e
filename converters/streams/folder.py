"""A folder or a URL that is watched: every new file is a message.

In: a folder with a folder for every class. Out: messages; the id of a file is its name
in the watched folder, and its class is the folder above. A file must appear whole: a
writer renames a finished file whose name began with a dot.
"""

import contextlib
import time
from collections.abc import Container, Sequence

from converters.inputs import listing
from converters.streams.message import Message, message_of
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.location.location import Location

_SECONDS_BETWEEN_LISTINGS = 1.0


class FolderStream:
    """Files that appear in a folder, see `message.Stream`.

    Args:
        location: The folder or URL.
        stored: Names of stored files; the set may grow.
    """

    errors: tuple[type[Exception], ...] = (errors.RemoteError,)

    def __init__(self, location: Location, stored: Container[str]) -> None:
        self._files, self._stored = Files(location), stored
        self._read: set[str] = set()
        self._waiting: list[str] = []

    def refusal(self, error: Exception) -> str:
        is_refused = isinstance(error, errors.RefusedError | errors.MissingFileError)
        return str(error) if is_refused else ""

    def read(self, count: int, seconds: float) -> list[Message]:
        """Returns new files; lists the folder again if all were read."""
        if not self._waiting:
            self._waiting = [name for name in self._files.names() if self._is_new(name)]
        if not self._waiting:
            time.sleep(min(seconds, _SECONDS_BETWEEN_LISTINGS))
        names, messages = self._waiting[:count], []
        for name in names:
            with contextlib.suppress(errors.MissingFileError):  # removed meanwhile
                fields = {"label": name.rpartition("/")[0].encode()}
                messages.append(message_of(name, fields, self._files.read(name)))
        self._read.update(names)
        self._waiting = self._waiting[count:]
        return messages

    def _is_new(self, name: str) -> bool:
        return (
            listing.has_suffix(name, listing.IMAGE_SUFFIXES)
            and not any(map(listing.is_hidden, name.split("/")))
            and name not in self._read
            and name not in self._stored
        )

    def acknowledge(self, positions: Sequence[str]) -> None:
        """Does nothing: the claims of the data set say what is stored."""

    def close(self) -> None:
        """Does nothing."""
