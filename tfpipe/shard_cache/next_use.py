"""Next use: when pieces are read again, and so which pieces to evict.

In: the pieces of the windows to come. Out: the time of the next use of every piece, and
the victims: the pieces whose next use is farthest away. The order of reading is known:
the rule is Belady's optimal rule and no guess (L. A. Belady, "A study of replacement
algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966). The module
is pure numpy.

Time is counted in windows of a reader. All ranks read equally fast, so the distances of
several readers, in records, can be compared.
"""

import collections
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfpipe.shards.records import Ints

# The next use of a piece without a planned use; windows are numbered from 1 on.
NO_USE = 0
# The distance of a piece without a planned use.
NEVER = 1 << 61
# The distance of a piece in use.
PINNED = -1

_FIRST_CAPACITY = 1024

Uses = npt.NDArray[np.int32]


class PlannedWindow(NamedTuple):
    """A window of a plan.

    Attributes:
        window: Number of the window, from 1 on.
        time: Records of the plan before the window.
        first_use: Number of its first use; every piece of a window is a use.
        pieces: int64, sorted: its pieces, without repeats.
    """

    window: int
    time: int
    first_use: int
    pieces: Ints


class UsePlan:
    """The future windows of a reader, and the next use of every piece.

    Planning and releasing a window take time in proportion to its pieces.

    Args:
        use: int32 [num_pieces], is set to the window of the next use of every piece, or
            to NO_USE. The array may be memory that other processes read too.

    Attributes:
        use: The argument; another array with the same content may take its place.
        time: Records of all windows so far.
        windows: The windows that are not released.
    """

    def __init__(self, use: Uses) -> None:
        use[:] = NO_USE
        self.use, self.time = use, 0
        self.windows: collections.deque[PlannedWindow] = collections.deque()
        self._next_window = 1
        # Number of the last planned use of each piece.
        self._last: Ints = np.full(len(use), -1, np.int64)
        # A ring: index n % capacity has the window of the use after use number n. Uses
        # from _base on are not released.
        self._following: Ints = np.zeros(_FIRST_CAPACITY, np.int64)
        self._base = self._end = 0

    def add(self, pieces: Ints, num_records: int) -> None:
        """Plans a window after all other windows."""
        self._grow(len(pieces))
        numbers = np.arange(self._end, self._end + len(pieces))
        capacity = len(self._following)
        before = self._last[pieces]
        is_planned = before >= self._base
        window = self._next_window
        self._following[before[is_planned] % capacity] = window
        self._following[numbers % capacity] = NO_USE
        self.use[pieces[~is_planned]] = window
        self._last[pieces] = numbers
        self.windows.append(PlannedWindow(window, self.time, self._end, pieces))
        self._end += len(pieces)
        self.time += num_records
        self._next_window += 1

    def release(self) -> None:
        """Removes the first window; its pieces get the window of their next use."""
        _, _, first_use, pieces = self.windows.popleft()
        self._base = first_use + len(pieces)
        numbers = np.arange(first_use, self._base)
        self.use[pieces] = self._following[numbers % len(self._following)]

    def _grow(self, count: int) -> None:
        kept = np.arange(self._base, self._end)
        old = self._following
        capacity = len(old)
        while len(kept) + count > capacity:
            capacity *= 2
        if capacity > len(old):
            self._following = np.zeros(capacity, np.int64)
            self._following[kept % capacity] = old[kept % len(old)]


class ReaderRow(NamedTuple):
    """The next uses of a reader, in memory that all processes of the host share.

    Attributes:
        header: int64 [4]: whether the reader is active, the number of its current
            window, the number of the last window that is pinned, and the records of a
            window.
        use: int32 [num_pieces], see `UsePlan`.
    """

    header: Ints
    use: Uses


def distances(
    readers: Iterable[ReaderRow], outside: Iterable[Ints], pieces: Ints
) -> Ints:
    """Returns the distance of the next use of some pieces.

    Args:
        readers: The readers of all processes.
        outside: Pieces that are in use outside of any reader.
        pieces: The pieces to look at.

    Returns:
        int64 [n]: records until the first use by any reader, at most NEVER; PINNED for
        pieces in use.
    """
    nearest: Ints = np.full(len(pieces), NEVER, np.int64)
    for header, use in readers:
        _, now, pinned_until, num_records = header.tolist()
        window = use[pieces].astype(np.int64)
        is_planned = window != NO_USE
        records = np.where(is_planned, (window - now) * num_records, NEVER)
        np.minimum(nearest, records, out=nearest)
        nearest[is_planned & (window <= pinned_until)] = PINNED
    for pinned in outside:
        nearest[np.isin(pieces, pinned)] = PINNED
    return nearest
