"""An open cache: a split in a shard cache, as a process uses the split.

In: the records of a window, and the order of later windows. Out: the local path of
every extent, after its pieces have come, and figures of the sources of the bytes. The
pieces of later windows are asked for ahead. Imports no TensorFlow.
"""

import collections
import contextlib
import dataclasses
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import numpy as np

from tfpipe.location.files import Files
from tfpipe.shard_cache import store as stores
from tfpipe.shard_cache.directory import Directory
from tfpipe.shard_cache.disk import used_as_cache
from tfpipe.shard_cache.downloader import Downloader
from tfpipe.shard_cache.fetch import Fetcher
from tfpipe.shard_cache.metadata import DataVersion
from tfpipe.shard_cache.pieces import Wanted, fault
from tfpipe.shard_cache.shared import SharedPieces
from tfpipe.shard_cache.store import MemoryFiles
from tfpipe.shard_cache.users import ReaderUse, User
from tfpipe.shards.ranges import RecordRanges
from tfpipe.shards.records import Ints

# Look-ahead of all readers of a host: bytes, and shares of the cache. If the data set
# does not fit, look-ahead takes room from pieces for the next epoch.
_AHEAD_BYTES = 1 << 30
_AHEAD_SHARE, _AHEAD_SHARE_IF_SMALL = 4, 32
# Windows to plan at every window until the plan is long enough.
_PLANNED_AT_ONCE = 256
# Seconds between two counts of the other readers of the host.
_MEASURE_SECONDS = 10.0
# Number of the need of `OpenCache.bring`.
_BROUGHT = 0
# Tries to get the right bytes of a piece from the local disk.
_MENDING_TRIES = 2
# Pieces in memory at once on their way to the shared folder.
_SHARED_AT_ONCE = 64
# A reader pins the last window, the current window and the next window.
_NUM_PINNED = 3
# Most bytes of such windows on a host for which the cache has no room.
_MEMORY_BYTES = 1 << 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheStatistics:
    """Figures of a split in a process, since the cache was opened.

    Example:
        >>> from tfpipe.shard_cache.open_cache import CacheStatistics
        >>> cache = tfpipe.ShardCache("cache", max_bytes=10**8)
        >>> source = tfpipe.TFRecordSource("DIR", "train", shard_cache=cache)
        >>> isinstance(source.cache_statistics(), CacheStatistics)
        True

    Attributes:
        bytes_from_server: Bytes that the process fetched, wrong answers included.
        bytes_from_shared: Bytes of pieces from the folder that hosts share.
        bytes_from_cache: Bytes of wanted records that the process had not fetched for
            the windows.
        bytes_wanted: Bytes of all records of the windows.
        num_pieces_wanted: Pieces of the windows.
        num_pieces_from_cache: Wanted pieces that were in the cache.
        num_requests: Ranged reads of the store.
        num_faults: Answers with wrong bytes.
        seconds_waited: Seconds that windows waited for pieces.
        is_reading_through: Whether the last window had pieces only in memory, because
            the disk or the cache is full.
    """

    bytes_from_server: int = 0
    bytes_from_shared: int = 0
    bytes_from_cache: int = 0
    bytes_wanted: int = 0
    num_pieces_wanted: int = 0
    num_pieces_from_cache: int = 0
    num_requests: int = 0
    num_faults: int = 0
    seconds_waited: float
    is_reading_through: bool

    @property
    def bytes_fetched(self) -> int:
        """Bytes that came over the network, from the store or the shared folder."""
        return self.bytes_from_server + self.bytes_from_shared


class OpenCache:
    """A split in a shard cache, opened by a process; any thread may use the object.

    Attributes:
        paths: Local path of every shard. The path stays the same while the shard is
            fetched and evicted: the file has holes where pieces are absent.
        content: The argument.
        index_digest: Digest of index.json at the opening; "" if the index may change.

    Args:
        directory: Directory of the cache.
        files: The files of the data set.
        content: The split, its shards and their pieces.
        version: The version of the data set.
        shared: Pieces in a folder that several hosts share; None without a folder.
        num_connections: See `ShardCache`.

    Raises:
        ValueError: If the directory cannot be used.
    """

    def __init__(
        self,
        directory: Directory,
        files: Files,
        content: stores.SplitContent,
        *,
        version: DataVersion,
        shared: SharedPieces | None = None,
        num_connections: int,
    ) -> None:
        self.pieces, self.directory = content.pieces, directory
        self.content, self.index_digest = content, version.digest
        self.store, self.user = directory.open(content)
        self.paths = [self.store.file(shard) for shard in range(len(content.shards))]
        self._fetcher = Fetcher(
            files,
            directory,
            self.store,
            self.pieces,
            num_connections=num_connections,
            shared=shared,
            version=version,
        )
        self.downloader = Downloader(self._fetcher)
        self._seconds_waited, self._is_reading_through = 0.0, False
        # The threads keep the downloader alive, and end with this object.
        finalizer = weakref.finalize(self, _end, self.downloader, self.user)
        finalizer.atexit = False  # the exit of the process ends a `Downloader` itself
        self._bringing = threading.Lock()
        self._brought: MemoryFiles | None = None

    def reader(self, upcoming: Callable[[], Iterator[RecordRanges]]) -> "Reader":
        """Returns a `Reader` of windows, whose next windows are fetched ahead."""
        return Reader(self, upcoming)

    def bring(self, ranges: RecordRanges) -> list[str]:
        """Returns paths of some records, which stay there until the next call.

        Args:
            ranges: The records.

        Returns:
            The path of every extent of `ranges.by_shard`.

        Raises:
            RemoteError: If the records cannot be fetched within the time limit.
            BadIndexError: If a shard has another digest than the index says.
        """
        wanted = self.pieces.wanted(ranges)
        with self._bringing:
            if self._brought is not None:
                self._brought.close()
            self.user.pin(_BROUGHT, wanted.pieces)
            self._brought = MemoryFiles()
            return self.local_paths(wanted, self._brought)

    def fill(self, pieces: Ints | None = None) -> Iterator[int]:
        """Fetches pieces for which there is room; yields their bytes in the cache.

        The shared folder gets the other pieces too.

        Args:
            pieces: int64, rising: numbers of the pieces; None is all.

        Raises as `Downloader.fetch_all`.
        """
        key, use = self.take_row()
        use.need_all()
        wanted = np.arange(len(self.pieces)) if pieces is None else pieces
        sizes = (self.pieces.stop - self.pieces.start)[wanted]
        fetched = self.downloader.fetch_all(key, wanted)
        try:
            for _ in itertools.chain(fetched, self._share(wanted)):
                is_there = self.store.marks[wanted] >= stores.PRESENT
                yield int(sizes[is_there].sum())
        finally:
            self.user.give_back(key)

    def _share(self, pieces: Ints) -> Iterator[None]:
        """Brings the pieces without room here into the shared folder."""
        if (shared := self._fetcher.shared) is None:
            return
        absent = pieces[self.store.marks[pieces] < stores.PRESENT].tolist()
        missing = np.array([piece for piece in absent if shared.lacks(piece)], np.int64)
        for first in range(0, len(missing), _SHARED_AT_ONCE):
            self.downloader.require(missing[first : first + _SHARED_AT_ONCE])
            yield

    def read_again(self, record: int) -> bytes | None:
        """Returns a record as the store has it, and mends its piece in the cache.

        Args:
            record: Number of a record in the split that is damaged in the cache.

        Returns:
            The record with header and footer; None if the store has the same damage.

        Raises:
            RemoteError: If the piece cannot be fetched within the time limit.
        """
        piece = int(np.searchsorted(self.pieces.first, record, side="right")) - 1
        sizes = self.pieces.record_sizes(piece)
        content = self._right_bytes(piece)
        begin = int(self.pieces.byte_offsets[record] - self.pieces.start[piece])
        index = record - int(self.pieces.first[piece])
        return None if content is None else bytes(content[begin:][: sizes[index]])

    def _right_bytes(self, piece: int) -> memoryview | None:
        """Returns the bytes of a piece; None if the store itself has it damaged."""
        wanted, sizes = np.array([piece]), self.pieces.record_sizes(piece)
        with self.user.pinned(wanted):
            for _ in range(_MENDING_TRIES):
                in_memory = self.downloader.require(wanted)
                if self.downloader.is_damaged[piece]:
                    return None
                if piece in in_memory:
                    return in_memory[piece]
                if self.store.marks[piece] == stores.DAMAGED:
                    return None
                with contextlib.suppress(OSError):  # unreadable: as if it were wrong
                    content = self.store.read(piece)
                    if fault(content, sizes) is None:
                        return content
                self.directory.mend(self.store, [piece])
        content, mark = self._fetcher.download(piece)  # the disk damages all it gets
        return content if mark == stores.PRESENT else None

    def are_sound(self, ranges: RecordRanges) -> bool:
        """Returns whether no piece of some records is damaged in the remote store.

        The records of all other pieces have the lengths that the catalog states.
        """
        pieces = self.pieces.of(ranges)
        is_damaged = self.store.marks[pieces] == stores.DAMAGED
        return not bool((is_damaged | self.downloader.is_damaged[pieces]).any())

    def local_paths(self, wanted: Wanted, in_memory: MemoryFiles) -> list[str]:
        """Returns the path of every extent, after its pieces have come.

        Args:
            wanted: The pieces, which are pinned.
            in_memory: Gets the extents for which the disk has no room.
        """
        start = time.perf_counter()
        memory = self.downloader.require(wanted.pieces)
        memory |= self._mended(wanted.pieces)
        self._count(wanted, time.perf_counter() - start)
        self._is_reading_through = bool(memory)
        paths = [self.paths[shard] for shard in wanted.shard.tolist()]
        if memory:
            # An extent is read from one file.
            extents = np.unique(wanted.extent[np.isin(wanted.piece, [*memory])])
            for part in np.flatnonzero(np.isin(wanted.extent, extents)).tolist():
                piece, extent = int(wanted.piece[part]), int(wanted.extent[part])
                content = memory.get(piece) or self._right_bytes(piece)
                if content is None:  # damaged in the store
                    content = self._fetcher.download(piece)[0]
                shard = int(wanted.shard[extent])
                in_memory.add(shard, int(self.pieces.start[piece]), content)
                paths[extent] = in_memory.path(shard)
        return paths

    def _mended(self, pieces: Ints) -> dict[int, memoryview]:
        """Fetches pieces again whose files were removed or cut by others.

        Returns:
            The bytes of such pieces for which the disk or the cache has no room.
        """
        there = pieces[self.store.marks[pieces] >= stores.PRESENT]
        shards = np.unique(self.pieces.shard[there]).tolist()
        broken = [shard for shard in shards if not self.store.is_whole(shard)]
        if not broken:
            return {}
        lost = there[np.isin(self.pieces.shard[there], broken)]
        self.directory.mend(self.store, lost.tolist())
        return self.downloader.require(lost)

    def take_row(self) -> tuple[int, ReaderUse]:
        """Returns the number and the row of a new reader of this process.

        Raises:
            ValueError: If the process has too many readers, or the disk has no room.
        """
        with used_as_cache(self.directory.path):
            return self.user.take_row()

    def _count(self, wanted: Wanted, seconds: float) -> None:
        is_new, counts = self.downloader.is_new, self._fetcher.counts
        counts["bytes_wanted"] += int(wanted.num_bytes.sum())
        counts["num_pieces_wanted"] += len(wanted.pieces)
        is_kept = ~is_new[wanted.piece]
        counts["bytes_from_cache"] += int(wanted.num_bytes[is_kept].sum())
        num_kept = np.count_nonzero(~is_new[wanted.pieces])
        counts["num_pieces_from_cache"] += int(num_kept)
        is_new[wanted.pieces] = False
        self._seconds_waited += seconds

    def statistics(self) -> CacheStatistics:
        """Returns the figures of the split in this process since the opening."""
        return CacheStatistics(
            **self._fetcher.counts,
            seconds_waited=self._seconds_waited,
            is_reading_through=self._is_reading_through,
        )

    def close(self) -> None:
        """Ends the threads and all readers."""
        self.downloader.close()
        self.user.close()


def _end(downloader: Downloader, user: User) -> None:
    downloader.end()
    user.close()


class Reader:
    """Reads windows in an order that is known ahead; one thread at a time uses it.

    Args:
        cache: The open cache.
        upcoming: Function that returns the records of every window, from the next
            window on into later epochs, endless or not.

    Raises:
        ValueError: If max_bytes and the memory cannot hold three windows of each
            reader, or the process has too many readers.
    """

    def __init__(
        self, cache: OpenCache, upcoming: Callable[[], Iterator[RecordRanges]]
    ) -> None:
        self._cache, self._upcoming = cache, upcoming
        self._costs = cache.store.costs
        self._key, self._use = cache.take_row()
        self._in_memory: collections.deque[MemoryFiles] = collections.deque()
        self._is_closed, self._measured = False, -_MEASURE_SECONDS
        self._now = 0  # records of the plan before the current window
        self._start()
        self._plan_more()
        self._require_room()

    def _require_room(self) -> None:
        """Checks that the cache and the memory hold the pieces of three windows.

        Pieces without room in the cache are in memory while a window needs them.
        """
        most, costs = self._cache.directory.max_bytes, self._costs
        pinned = itertools.islice(self._plan.windows, _NUM_PINNED)
        pieces = np.unique(np.concatenate([[], *(window.pieces for window in pinned)]))
        needed = int(costs[pieces.astype(np.int64)].sum()) * self._num_readers
        needed = min(needed, int(costs.sum()))  # readers share pieces
        windows = (
            f"{_NUM_PINNED} windows of each of {self._num_readers} readers take "
            f"{needed} bytes of pieces"
        )
        if needed - most > _MEMORY_BYTES:
            self.close()
            raise ValueError(
                f"ShardCache.max_bytes must be >= {needed - _MEMORY_BYTES}, got "
                f"{most}: {windows}, and at most {_MEMORY_BYTES} of them may be in "
                "memory. Give more bytes, or a smaller window_size to the source."
            )
        if needed > most:
            self._cache.directory.lines.say_once(
                f"{windows}, and max_bytes is {most}: the rest is read through memory, "
                "and fetched again for each window."
            )

    def _start(self) -> None:
        """Plans windows anew."""
        self._use.start()
        self._plan, self._windows = self._use.plan, self._upcoming()
        # Windows of the plan that were handed out, and the bytes of all later windows.
        self._num_held, self._bytes = 0, collections.deque[int]()

    def _add(self, pieces: Ints, num_records: int) -> None:
        self._plan.add(pieces, num_records)
        self._bytes.append(int(self._costs[pieces].sum()))

    def _plan_more(self) -> None:
        """Plans windows, a few at once, until the plan is long enough."""
        self._measure()
        now, num_bytes = self._now, sum(self._bytes)
        for _ in range(_PLANNED_AT_ONCE):
            is_long = self._plan.time - now > self._least_records
            if is_long and num_bytes > self._ahead_bytes and len(self._bytes) > 2:
                return
            ranges = next(self._windows, None)
            if ranges is None:
                return
            self._add(self._cache.pieces.of(ranges), ranges.num_records)
            num_bytes += self._bytes[-1]

    def _measure(self) -> None:
        """Shares look-ahead and planning with the other readers of the host."""
        if time.monotonic() < self._measured + _MEASURE_SECONDS:
            return
        self._measured = time.monotonic()
        self._num_readers, num_bytes = self._cache.directory.load()
        most = self._cache.directory.max_bytes
        does_fit = num_bytes <= most
        share = _AHEAD_SHARE if does_fit else _AHEAD_SHARE_IF_SMALL
        ahead_bytes = min(_AHEAD_BYTES, most // share) // self._num_readers
        # More would be the records of the next epoch.
        self._ahead_bytes = min(ahead_bytes, int(self._costs.sum()))
        # With two epochs of all readers, kept pieces are known to be used first.
        num_records = len(self._cache.pieces.byte_offsets)
        self._least_records = 0 if does_fit else 2 * num_records // self._num_readers

    def next_window(self, ranges: RecordRanges) -> list[str]:
        """Returns paths of the records of the next window, after they have come.

        The previous window stays in the cache too; earlier windows do not. After an
        error the same window can be asked for again.

        Args:
            ranges: The records of the window.

        Returns and raises as `OpenCache.bring`.
        """
        wanted = self._cache.pieces.wanted(ranges)
        if self._num_held == 2:
            self._plan.release()
            self._num_held -= 1
        if len(self._in_memory) == 2:
            self._in_memory.popleft().close()
        self._hand_out(wanted.pieces, ranges.num_records)
        self._cache.downloader.ahead(self._key, self._ahead(wanted.pieces))
        self._in_memory.append(MemoryFiles())
        try:
            return self._cache.local_paths(wanted, self._in_memory[-1])
        except BaseException:  # the window did not come: its hand-out is undone
            self._in_memory.pop().close()
            self._num_held -= 1
            pieces = self._plan.windows[self._num_held].pieces
            self._bytes.appendleft(int(self._costs[pieces].sum()))
            raise

    def _hand_out(self, pieces: Ints, num_records: int) -> None:
        """Pins a window and the next window, and plans more windows."""
        held, windows = self._num_held, self._plan.windows
        if held == len(windows) or not np.array_equal(windows[held].pieces, pieces):
            # The reader goes on elsewhere: the plan does not hold.
            before = [windows[index].pieces for index in range(held)]
            self._start()
            for kept in (*before, pieces):
                self._add(kept, num_records)
            self._bytes = collections.deque([self._bytes[-1]])
            self._num_held = held
            next(self._windows, None)
            windows = self._plan.windows
        self._bytes.popleft()
        self._plan_more()
        pinned_until = windows[min(held + 1, len(windows) - 1)].window
        self._use.hand_out(windows[held].window, pinned_until, num_records)
        self._now = windows[held].time
        self._num_held += 1

    def _ahead(self, pieces: Ints) -> Ints:
        """Returns the pieces of the current window, then the pieces to fetch ahead."""
        chosen, num_bytes = [pieces], 0
        later = itertools.islice(self._plan.windows, self._num_held, None)
        for window, size in zip(later, self._bytes, strict=True):
            chosen.append(window.pieces)
            num_bytes += size
            if num_bytes > self._ahead_bytes:
                break
        return np.concatenate(chosen)

    def close(self) -> None:
        """Ends the reader: its pieces may be evicted."""
        if not self._is_closed:
            self._is_closed = True
            self._cache.downloader.ahead(self._key, np.empty(0, np.int64))
            self._cache.user.give_back(self._key)
            while self._in_memory:
                self._in_memory.pop().close()
