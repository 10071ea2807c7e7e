"""A folder of several hosts, between their shard caches and the store.

In: the number of a piece that a host lacks. Out: the right bytes of the piece from the
shared folder, or a lease: the process with the lease fetches the piece for all hosts. A
piece is a file and appears whole, by rename. A fault of the folder costs a fetch from
the store, which a line on stderr says once. Imports no TensorFlow.

    FOLDER/<fingerprint>/data_set.json   for people: data set, split and <shard>s
    FOLDER/<shard>/<start>-<stop>        the bytes of a piece
    FOLDER/<shard>/<start>-<stop>.lease  see `leases`

<shard> is a digest of the shard's line in the index: generations share their shards.
"""

import contextlib
import dataclasses
import json
import pathlib
import threading
import time
from collections.abc import Iterator

import numpy as np

from tfpipe.location import atomic
from tfpipe.shard_cache import disk, pieces as cuts
from tfpipe.shard_cache.leases import Lease, Leases
from tfpipe.shard_cache.lines import Lines
from tfpipe.shard_cache.store import SplitContent
from tfpipe.shards import index

# Seconds without reading, or without writing, after the file system failed at it.
_FAILING_SECONDS = 10.0
# Seconds between two looks for a piece on its way to another host.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5


class SharedPieces:
    """The pieces of a split in a shared folder; several threads use the object.

    The pieces at the start of the split are kept, up to `max_bytes`. All hosts thus
    agree about them, and no host has to make room.

    Args:
        folder: The folder of all data sets; a missing folder is made.
        content: The split and its pieces.
        max_bytes: Most bytes of the split in the folder; None is no limit.
        longest_wait: Seconds to wait for another host, which fetches a piece.

    Raises:
        ValueError: If files cannot be created and renamed in the folder.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        content: SplitContent,
        *,
        max_bytes: int | None,
        longest_wait: float,
    ) -> None:
        self.folder, self._pieces = folder, content.pieces
        self._shards = [
            index.digest(repr(dataclasses.astuple(shard))) for shard in content.shards
        ]
        self._longest_wait, self.ended = longest_wait, threading.Event()
        self.leases = Leases(ended=self.ended)
        self._lines = Lines()
        self._not_before = {"read": -np.inf, "written": -np.inf}
        self._sizes = self._pieces.stop - self._pieces.start
        self._is_kept = np.cumsum(self._sizes) <= (
            np.inf if max_bytes is None else max_bytes
        )
        try:
            self._describe(content)
        except OSError as error:
            raise ValueError(
                "ShardCache.shared_directory must be a folder in which this host can "
                f"create files, got {folder}: {error.strerror or error}. "
                f"{disk.remedy(error.errno)}"
            ) from None

    def _describe(self, content: SplitContent) -> None:
        path = self.folder / content.fingerprint / "data_set.json"
        if path.exists():
            return  # the folder may also be read-only, after another job filled it
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {"data_set": content.location.text, "split": content.split}
        text = json.dumps({**about, "shards": self._shards}, indent=1)
        with atomic.new_file(path) as part:
            part.write_text(f"{text}\n", encoding="utf-8")

    def path(self, piece: int) -> pathlib.Path:
        """Returns the file of a piece."""
        start, stop = self._pieces.start[piece], self._pieces.stop[piece]
        return (
            self.folder
            / self._shards[int(self._pieces.shard[piece])]
            / f"{start}-{stop}"
        )

    def find(self, piece: int) -> memoryview | Lease | None:
        """Returns the bytes of a piece, or the lease to fetch the piece for all hosts.

        The call waits while another host fetches the piece.

        Returns:
            None if the folder does not keep the piece, or fails, or if the other host
            takes too long: the bytes must come from the store, for this host only.
        """
        end, pause = time.monotonic() + self._longest_wait, _FIRST_PAUSE
        while self._is_kept[piece]:
            if (content := self._read(piece)) is not None:
                return content
            if (lease := self._take(piece)) is not None:
                # Another host may have published the piece before.
                if (content := self._read(piece)) is None:
                    return lease
                self.release(lease)
                return content
            works = self._works("read", "written")
            if not works or time.monotonic() > end or self.ended.wait(pause):
                return None
            pause = min(2 * pause, _LONGEST_PAUSE)
        return None

    def lacks(self, piece: int) -> bool:
        """Whether the folder keeps a piece, and does not have the piece yet."""
        return bool(self._is_kept[piece]) and not self.path(piece).exists()

    def _read(self, piece: int) -> memoryview | None:
        """Returns the right bytes of a piece; removes a file with other bytes."""
        path = self.path(piece)
        if not self._works("read"):
            return None
        with self._tolerated("read"), contextlib.suppress(FileNotFoundError):
            content = memoryview(path.read_bytes())
            is_whole = len(content) == self._sizes[piece]
            if is_whole and not cuts.fault(content, self._pieces.record_sizes(piece)):
                return content
            self._lines.say_once(
                f"{path} was damaged in the shared folder. Only damaged pieces are "
                "fetched again, and no record is lost.",
                kind="damage",
            )
            path.unlink(missing_ok=True)
        return None

    def _take(self, piece: int) -> Lease | None:
        path, lease = self.path(piece).with_suffix(".lease"), None
        if not self._works("read", "written"):
            return None
        with self._tolerated("written"):
            try:
                lease = self.leases.take(path)
            except FileNotFoundError:  # the first piece of a shard, or a removed folder
                path.parent.mkdir(parents=True, exist_ok=True)
                lease = self.leases.take(path)
        return lease

    def publish(self, piece: int, content: memoryview, lease: Lease | None) -> None:
        """Gives a piece to all hosts, unless the lease was taken over meanwhile.

        Args:
            piece: Number of the piece.
            content: Its right bytes.
            lease: The lease of the piece; None replaces the file.
        """
        path = self.path(piece)
        part = None if lease is None else lease.part
        with self._tolerated("written"):
            if lease is not None and not lease.is_held():
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            with (
                contextlib.suppress(FileNotFoundError),  # taken over meanwhile
                atomic.new_file(path, part=part) as new,
            ):
                new.write_bytes(content)

    def release(self, lease: Lease) -> None:
        """Ends a lease."""
        with self._tolerated("written"):
            self.leases.release(lease)

    def close(self) -> None:
        """Ends all waits and all leases."""
        self.ended.set()
        self.leases.close()

    def _works(self, *uses: str) -> bool:
        return all(time.monotonic() >= self._not_before[use] for use in uses)

    @contextlib.contextmanager
    def _tolerated(self, use: str) -> Iterator[None]:
        """Ends the block at an error of the file system, and says the error once.

        Args:
            use: "read" or "written".
        """
        try:
            yield
        except OSError as error:
            self._not_before[use] = time.monotonic() + _FAILING_SECONDS
            self._lines.say_once(
                f"the shared folder {self.folder} cannot be {use}: "
                f"{error.strerror or error}. Pieces come from the store meanwhile, for "
                f"this host only. {disk.remedy(error.errno)}",
                kind=use,
            )
