"""Next use: when pieces are read again, and so which pieces to evict.

In: the pieces of the windows to come. Out: the time of the next use of every piece, and
the victims: the pieces whose next use is farthest away. The order of reading is known:
the rule is Belady's optimal rule and no guess (L. A. Belady, "A study of replacement
algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966). The module
is pure numpy.

Time is counted in records of a reader. All ranks read equally fast, so the times of
several readers can be compared.
"""

import collections
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfpipe.shards.records import Ints

# The time of an unplanned use.
NEVER = 1 << 61
# The distance of a piece in use.
PINNED = -1

_FIRST_CAPACITY = 1024


class PlannedWindow(NamedTuple):
    """A window of a plan.

    Attributes:
        time: Records of the plan before the window.
        first_use: Number of its first use; every piece of a window is a use.
        pieces: int64, sorted: its pieces, without repeats.
    """

    time: int
    first_use: int
    pieces: Ints


class UsePlan:
    """The future windows of a reader, and the next use of every piece.

    Planning and releasing a window take time in proportion to its pieces.

    Args:
        use: int64 [num_pieces], is set to the time of the next use of every piece, or
            to NEVER. The array may be memory that other processes read too.
    """

    def __init__(self, use: Ints) -> None:
        use[:] = NEVER
        self.time = 0
        self.windows: collections.deque[PlannedWindow] = collections.deque()
        self._use = use
        # Number of the last planned use of each piece.
        self._last: Ints = np.full(len(use), -1, np.int64)
        # A ring: index n % capacity has the time of the use after use number n. Uses
        # from _base on are not released.
        self._following: Ints = np.full(_FIRST_CAPACITY, NEVER, np.int64)
        self._base = self._end = 0

    def add(self, pieces: Ints, num_records: int) -> None:
        """Plans a window after all other windows."""
        self._grow(len(pieces))
        numbers = np.arange(self._end, self._end + len(pieces))
        capacity = len(self._following)
        before = self._last[pieces]
        is_planned = before >= self._base
        self._following[before[is_planned] % capacity] = self.time
        self._following[numbers % capacity] = NEVER
        self._use[pieces[~is_planned]] = self.time
        self._last[pieces] = numbers
        self.windows.append(PlannedWindow(self.time, self._end, pieces))
        self._end += len(pieces)
        self.time += num_records

    def release(self) -> None:
        """Removes the first window; its pieces get the time of their next use."""
        _, first_use, pieces = self.windows.popleft()
        self._base = first_use + len(pieces)
        numbers = np.arange(first_use, self._base)
        self._use[pieces] = self._following[numbers % len(self._following)]

    def _grow(self, count: int) -> None:
        kept = np.arange(self._base, self._end)
        old = self._following
        capacity = len(old)
        while len(kept) + count > capacity:
            capacity *= 2
        if capacity > len(old):
            self._following = np.full(capacity, NEVER, np.int64)
            self._following[kept % capacity] = old[kept % len(old)]


def distances(readers: Sequence[Ints], num_pieces: int) -> Ints:
    """Returns the distance of the next use of every piece.

    Args:
        readers: int64 [2 + num_pieces] for each reader: the time now, the end of the
            time in which its pieces are pinned, and the next use of every piece.
        num_pieces: Number of pieces.

    Returns:
        int64 [num_pieces]: records until the first use by any reader, at most NEVER;
        PINNED for pieces in use.
    """
    nearest: Ints = np.full(num_pieces, NEVER, np.int64)
    for reader in readers:
        now, pinned_until, use = int(reader[0]), int(reader[1]), reader[2:]
        np.minimum(nearest, use - now, out=nearest)
        nearest[use <= pinned_until] = PINNED
    return nearest


def distance(readers: Sequence[Ints], piece: int) -> int:
    """Returns the distance of a single piece, at least 0."""
    return max(min((int(row[2 + piece] - row[0]) for row in readers), default=NEVER), 0)


def candidates(distance: Ints, is_there: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Returns the possible victims, and their distances."""
    pieces = np.flatnonzero(is_there & (distance > PINNED))
    return pieces, distance[pieces]
