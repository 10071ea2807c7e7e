"""A folder or a URL that is watched: every new file is a message.

In: a folder with a folder for every class. Out: messages; the id of a file is its name
in the watched folder, and its class is the folder above. A file must appear whole: a
writer renames a finished file whose name began with a dot.
"""

import contextlib
import time
from collections.abc import Container, Iterator, Sequence

from converters.inputs import listing
from converters.streams.message import Message, StreamError, message_of
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.location.location import Location

_SECONDS_BETWEEN_LISTINGS = 1.0


class FolderStream:
    """Files that appear in a folder.

    Args:
        location: The folder or URL.
        stored: Names of stored files; the set may grow.
    """

    def __init__(self, location: Location, stored: Container[str]) -> None:
        self._files, self._stored = Files(location), stored
        self._is_local = location.is_local
        self._read: set[str] = set()
        self._waiting: list[str] = []

    def read(self, count: int, seconds: float) -> list[Message]:
        """Returns new files; lists the folder again if all were read."""
        if not self._waiting:
            self._waiting = self._list()
        if not self._waiting:
            time.sleep(min(seconds, _SECONDS_BETWEEN_LISTINGS))
            return []
        names, self._waiting = self._waiting[:count], self._waiting[count:]
        messages = self.fetch(names)
        self._read.update(names)
        return messages

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        """Says that a store may answer later; a folder of this host will not."""
        try:
            yield
        except errors.RemoteError as error:
            if self._is_local:
                raise
            raise StreamError(str(error)) from error

    def _list(self) -> list[str]:
        with self._asked():
            names = self._files.names()
        return [
            name
            for name in names
            if listing.has_suffix(name, listing.IMAGE_SUFFIXES)
            and not any(map(listing.is_hidden, name.split("/")))
            and not (name in self._read or name in self._stored)
        ]

    def fetch(self, positions: Sequence[str]) -> list[Message]:
        """Reads files by their names; removed files are left out."""
        messages = []
        with self._asked():
            for name in positions:
                with contextlib.suppress(errors.MissingFileError):
                    image = self._files.read(name)
                    fields = {"label": name.rpartition("/")[0].encode()}
                    messages.append(message_of(name, fields, image))
        return messages

    def acknowledge(self, positions: Sequence[str]) -> None:
        """Does nothing: the claims of the data set say what is stored."""

    def close(self) -> None:
        """Does nothing."""
