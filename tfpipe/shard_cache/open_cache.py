"""An open cache: one split in a shard cache, as one process uses it.

In: the records of a window. Out: the local path of each of its extents, after its
pieces have come, and figures of what came from where. Imports no TensorFlow.
"""

import dataclasses
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import numpy as np

from tfpipe.remote.files import Files
from tfpipe.shard_cache import next_use, store as stores
from tfpipe.shard_cache.directory import Directory
from tfpipe.shard_cache.downloader import Downloader
from tfpipe.shard_cache.fetch import Fetcher
from tfpipe.shard_cache.pieces import Wanted
from tfpipe.shard_cache.reader import Reader
from tfpipe.shard_cache.store import MemoryFiles
from tfpipe.shard_cache.users import User
from tfpipe.shards.ranges import RecordRanges
from tfpipe.shards.records import Ints

# Figures that a process counts in windows, see `CacheStatistics`.
_COUNTED = (
    *("bytes_wanted", "bytes_from_cache"),
    *("num_pieces_wanted", "num_pieces_from_cache"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheStatistics:
    """Figures of one split in one process, since it was opened.

    Attributes:
        bytes_from_server: Bytes that this process fetched, wrong answers included.
        bytes_from_cache: Bytes of records that windows needed and that this process had
            not fetched for them.
        bytes_wanted: Bytes of all records that windows needed.
        num_pieces_wanted: Pieces that windows needed.
        num_pieces_from_cache: Pieces of these that were in the cache.
        num_requests: Ranged reads of the store.
        num_faults: Answers with wrong bytes.
        seconds_waited: Seconds that windows waited for pieces.
        is_reading_through: Whether the last window had pieces that are only in memory,
            because the disk is full or max_bytes is.
    """

    bytes_from_server: int
    bytes_from_cache: int
    bytes_wanted: int
    num_pieces_wanted: int
    num_pieces_from_cache: int
    num_requests: int
    num_faults: int
    seconds_waited: float
    is_reading_through: bool


class OpenCache:
    """One split in a shard cache, opened by one process; any thread may use it.

    Attributes:
        paths: Local path of each shard. The path stays the same while the shard is
            fetched and evicted: the file has holes where pieces are absent.

    Args:
        directory: Directory of the cache.
        files: The files of the data set.
        content: The split, its shards and their pieces.
        num_connections, time_limit: See `ShardCache`.

    Raises:
        ValueError: If the directory cannot be used.
    """

    def __init__(
        self,
        directory: Directory,
        files: Files,
        content: stores.Content,
        *,
        num_connections: int,
        time_limit: float,
    ) -> None:
        self.pieces = content.pieces
        self._directory = directory
        self._store, self._user = self._directory.open(content)
        self.paths = [
            os.fspath(self._store.path(number)) for number in range(len(content.shards))
        ]
        self._fetcher = Fetcher(
            files,
            self._directory,
            self._store,
            self.pieces,
            time_limit=time_limit,
        )
        self.downloader = Downloader(
            self._fetcher,
            self._directory,
            self._store,
            num_connections=num_connections,
            time_limit=time_limit,
        )
        self._figures = dict.fromkeys(_COUNTED, 0)
        self._seconds_waited, self._is_reading_through = 0.0, False
        # Its threads keep the downloader, so they end with this object.
        finalizer = weakref.finalize(self, _end, self.downloader, self._user)
        finalizer.atexit = False  # `Downloader` does this itself
        self._bringing = threading.Lock()
        self._brought: tuple[Ints, MemoryFiles] | None = None

    def reader(self, upcoming: Callable[[], Iterator[RecordRanges]]) -> Reader:
        """Returns a reader of windows, whose next windows are fetched ahead.

        Args:
            upcoming: Function that returns the records of each window, from the next
                one on into later epochs, endless or not.

        Raises:
            ValueError: If max_bytes is too small for the windows, or this process has
                too many readers.
        """
        return Reader(
            pieces=self.pieces,
            local_paths=self.local_paths,
            downloader=self.downloader,
            directory=self._directory,
            store=self._store,
            user=self._user,
            upcoming=upcoming,
        )

    def bring(self, ranges: RecordRanges) -> list[str]:
        """Returns paths of some records, which stay there until the next call.

        Args:
            ranges: The records.

        Returns:
            The path of each extent of `ranges.by_shard`.

        Raises:
            RemoteError: If they cannot be fetched within the time limit.
            BadIndexError: If a shard has another digest than the index says.
        """
        wanted = self.pieces.wanted(ranges)
        with self._bringing:
            if self._brought is not None:
                self._user.outside[2 + self._brought[0]] = next_use.NEVER
                self._brought[1].close()
            self._user.outside[2 + wanted.pieces] = 0
            self._brought = wanted.pieces, MemoryFiles()
            return self.local_paths(wanted, self._brought[1])

    def fill(self) -> Iterator[int]:
        """Fetches all pieces for which there is room; yields the bytes that are there.

        Raises:
            RemoteError: If a piece cannot be fetched.
            BadIndexError: If a shard has another digest than the index says.
        """
        number, row = self._user.take_row()
        # All are used equally soon: none makes room for another.
        row[2:] = 1
        sizes = self.pieces.stop - self.pieces.start
        everything = np.arange(len(self.pieces))
        try:
            for _ in self.downloader.fetch_all(number, everything):
                is_there = self._store.marks >= stores.PRESENT
                yield int(sizes[is_there].sum())
        finally:
            self._user.give_back(number)

    def are_sound(self, ranges: RecordRanges) -> bool:
        """Returns whether no piece of some records is damaged in the remote store.

        The records of all other pieces have the lengths that the catalog states.
        """
        pieces = self.pieces.of(ranges)
        is_damaged = self._store.marks[pieces] == stores.DAMAGED
        return not bool((is_damaged | self.downloader.is_damaged[pieces]).any())

    def local_paths(self, wanted: Wanted, in_memory: MemoryFiles) -> list[str]:
        """Returns the path of each extent, after its pieces have come.

        Args:
            wanted: The pieces, which are pinned.
            in_memory: Gets the extents for which the disk has no room.
        """
        start = time.perf_counter()
        memory = self.downloader.require(wanted.pieces)
        self._count(wanted, time.perf_counter() - start)
        self._is_reading_through = bool(memory)
        paths = [self.paths[shard] for shard in wanted.shard.tolist()]
        if memory:
            # An extent is read from one file.
            extents = np.unique(wanted.extent[np.isin(wanted.piece, [*memory])])
            for part in np.flatnonzero(np.isin(wanted.extent, extents)).tolist():
                piece, extent = int(wanted.piece[part]), int(wanted.extent[part])
                content = memory.get(piece) or self._store.read(piece)
                shard = int(wanted.shard[extent])
                in_memory.add(shard, int(self.pieces.start[piece]), content)
                paths[extent] = in_memory.path(shard)
        return paths

    def _count(self, wanted: Wanted, seconds: float) -> None:
        is_new = self.downloader.is_new
        self._figures["bytes_wanted"] += int(wanted.num_bytes.sum())
        self._figures["num_pieces_wanted"] += len(wanted.pieces)
        is_kept = ~is_new[wanted.piece]
        self._figures["bytes_from_cache"] += int(wanted.num_bytes[is_kept].sum())
        num_kept = np.count_nonzero(~is_new[wanted.pieces])
        self._figures["num_pieces_from_cache"] += int(num_kept)
        is_new[wanted.pieces] = False
        self._seconds_waited += seconds

    def statistics(self) -> CacheStatistics:
        """Returns the figures of this split in this process since it was opened."""
        return CacheStatistics(
            **self._figures,
            **dataclasses.asdict(self._fetcher.counts),
            seconds_waited=self._seconds_waited,
            is_reading_through=self._is_reading_through,
        )

    def close(self) -> None:
        """Ends the threads and all readers."""
        self.downloader.close()
        self._user.close()


def _end(downloader: Downloader, user: User) -> None:
    downloader.end()
    user.close()
