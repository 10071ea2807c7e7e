"""A reader: windows in an order that is known ahead, and what they need.

In: the records of this window and of those after it. Out: local paths of the records of
this window; the pieces of the next ones are asked for. Imports no TensorFlow.
"""

import collections
import itertools
import time
from collections.abc import Callable, Iterator

import numpy as np

from tfpipe.shard_cache import next_use
from tfpipe.shard_cache.directory import Directory
from tfpipe.shard_cache.downloader import Downloader
from tfpipe.shard_cache.pieces import Pieces, Wanted
from tfpipe.shard_cache.store import MemoryFiles, Store
from tfpipe.shard_cache.users import User
from tfpipe.shards.ranges import RecordRanges
from tfpipe.shards.records import Ints

# Look-ahead of all readers of a host: bytes, and shares of the cache. Room for pieces
# to come is room less for pieces that are kept, if the data set does not fit.
_AHEAD_BYTES = 1 << 30
_AHEAD_SHARE, _AHEAD_SHARE_IF_SMALL = 4, 32
# Windows that are planned at each window until the plan is long enough.
_PLANNED_AT_ONCE = 256
# The other readers of the host are counted this often.
_MEASURE_SECONDS = 10.0
# A reader pins the window before, this one and the next.
_NUM_PINNED = 3


class Reader:
    """Reads windows in the order that is known ahead; one thread at a time uses it.

    Args:
        pieces, downloader, store: Those of the split.
        directory: Directory of the cache.
        user: This process's user of the store.
        local_paths, upcoming: See `OpenCache.local_paths` and `OpenCache.reader`.

    Raises:
        ValueError: If max_bytes is smaller than three windows of each reader.
    """

    def __init__(
        self,
        *,
        pieces: Pieces,
        local_paths: Callable[[Wanted, MemoryFiles], list[str]],
        downloader: Downloader,
        directory: Directory,
        store: Store,
        user: User,
        upcoming: Callable[[], Iterator[RecordRanges]],
    ) -> None:
        self._pieces, self._local_paths = pieces, local_paths
        self._downloader, self._directory, self._store = downloader, directory, store
        self._user, self._upcoming = user, upcoming
        self._number, self._row = user.take_row()
        self._in_memory: collections.deque[MemoryFiles] = collections.deque()
        self._is_closed, self._measured = False, -_MEASURE_SECONDS
        self._start()
        self._plan_more()
        least = sum(list(self._bytes)[:_NUM_PINNED]) * self._num_readers
        if least > directory.max_bytes:
            self.close()
            raise _too_small(least, self._num_readers, directory.max_bytes)

    def _start(self) -> None:
        """Plans windows anew."""
        self._plan, self._windows = next_use.Plan(self._row[2:]), self._upcoming()
        # Windows of the plan that were handed out, and the bytes of all after them.
        self._num_held, self._bytes = 0, collections.deque[int]()

    def _add(self, pieces: Ints, num_records: int) -> None:
        self._plan.add(pieces, num_records)
        self._bytes.append(int(self._store.costs[pieces].sum()))

    def _plan_more(self) -> None:
        """Plans windows, a few at once, until the plan is long enough."""
        self._measure()
        now, num_bytes = int(self._row[0]), sum(self._bytes)
        for _ in range(_PLANNED_AT_ONCE):
            is_long = self._plan.time - now > self._least_records
            if is_long and num_bytes > self._ahead_bytes and len(self._bytes) > 2:
                return
            ranges = next(self._windows, None)
            if ranges is None:
                return
            self._add(self._pieces.of(ranges), ranges.num_records)
            num_bytes += self._bytes[-1]

    def _measure(self) -> None:
        """Shares look-ahead and planning with the other readers of the host."""
        if time.monotonic() < self._measured + _MEASURE_SECONDS:
            return
        self._measured = time.monotonic()
        self._num_readers, num_bytes = self._directory.load()
        most = self._directory.max_bytes
        does_fit = num_bytes <= most
        share = _AHEAD_SHARE if does_fit else _AHEAD_SHARE_IF_SMALL
        ahead_bytes = min(_AHEAD_BYTES, most // share) // self._num_readers
        # More would be the records of the next epoch.
        self._ahead_bytes = min(ahead_bytes, int(self._store.costs.sum()))
        # Two epochs of all readers, so that what is kept is known to be used first.
        num_records = len(self._pieces.byte_offsets)
        self._least_records = 0 if does_fit else 2 * num_records // self._num_readers

    def next_window(self, ranges: RecordRanges) -> list[str]:
        """Returns paths of the records of the next window, after they have come.

        The window before this one stays there too, those before it do not. After an
        error the same window can be asked for again.

        Args:
            ranges: The records of the window.

        Returns:
            The path of each extent of `ranges.by_shard`.

        Raises:
            RemoteError: If they cannot be fetched within the time limit.
            BadIndexError: If a shard has another digest than the index says.
        """
        wanted = self._pieces.wanted(ranges)
        if self._num_held == 2:
            self._plan.release()
            self._num_held -= 1
        if len(self._in_memory) == 2:
            self._in_memory.popleft().close()
        self._hand_out(wanted.pieces, ranges.num_records)
        self._downloader.ahead(self._number, self._ahead(wanted.pieces))
        self._in_memory.append(MemoryFiles())
        try:
            return self._local_paths(wanted, self._in_memory[-1])
        except BaseException:
            self._take_back()
            raise

    def _take_back(self) -> None:
        """Undoes the hand-out of a window that did not come."""
        self._in_memory.pop().close()
        self._num_held -= 1
        pieces = self._plan.windows[self._num_held].pieces
        self._bytes.appendleft(int(self._store.costs[pieces].sum()))

    def _hand_out(self, pieces: Ints, num_records: int) -> None:
        """Pins a window and the next one, and plans more windows."""
        held, windows = self._num_held, self._plan.windows
        if held == len(windows) or not np.array_equal(windows[held].pieces, pieces):
            # The reader goes on elsewhere: what was planned does not hold.
            before = [windows[number].pieces for number in range(held)]
            self._start()
            for kept in (*before, pieces):
                self._add(kept, num_records)
            self._bytes = collections.deque([self._bytes[-1]])
            self._num_held = held
            next(self._windows, None)
            windows = self._plan.windows
        self._bytes.popleft()
        self._plan_more()
        self._row[1] = windows[min(held + 1, len(windows) - 1)].time
        self._row[0] = windows[held].time
        self._num_held += 1

    def _ahead(self, pieces: Ints) -> Ints:
        """Returns the pieces of this window, then those that are fetched ahead."""
        found, num_bytes = [pieces], 0
        later = itertools.islice(self._plan.windows, self._num_held, None)
        for window, size in zip(later, self._bytes, strict=True):
            found.append(window.pieces)
            num_bytes += size
            if num_bytes > self._ahead_bytes:
                break
        return np.concatenate(found)

    def close(self) -> None:
        """Ends the reader: its pieces may be evicted."""
        if not self._is_closed:
            self._is_closed = True
            self._downloader.ahead(self._number, np.empty(0, np.int64))
            self._user.give_back(self._number)
            while self._in_memory:
                self._in_memory.pop().close()


def _too_small(least: int, num_readers: int, max_bytes: int) -> ValueError:
    return ValueError(
        f"ShardCache.max_bytes must be >= {least}, {_NUM_PINNED} windows of each of "
        f"{num_readers} readers, got {max_bytes}. Give more bytes, or a smaller "
        "window_size to the source."
    )
