"""Wishes: the pieces that readers want, and the state of each on its way.

In: the pieces that a reader waits for, and those that it reads after them. Out: what
the threads of a downloader do next. One lock guards all. Opens no file.
"""

import collections
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

# Pieces that are claimed under one lock of the directory.
_BATCH = 8


class Task(NamedTuple):
    """A piece to fetch, and whether the cache has room for it."""

    piece: int
    has_room: bool


class Claim(NamedTuple):
    """Pieces to claim, in the order of use, and whether nobody waits for them yet."""

    pieces: list[int]
    is_ahead: bool


class Wishes:
    """The wishes of all readers of one split in one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_work = threading.Condition(self._lock)
        self._has_come = threading.Condition(self._lock)
        self.is_ended = self._is_claiming = False
        self._urgent: dict[int, None] = {}
        self._ahead: dict[int, list[int]] = {}  # by reader, the last piece first
        self._tasks: collections.deque[Task] = collections.deque()
        self._in_flight: dict[int, float] = {}  # when it was claimed
        self._awaited: collections.Counter[int] = collections.Counter()
        # Both hold awaited pieces only. A failure has the time of its claim.
        self.in_memory: dict[int, memoryview] = {}
        self.failed: dict[int, tuple[float, Exception]] = {}
        self.last_failure: Exception | None = None

    @contextmanager
    def awaited(self, pieces: Sequence[int]) -> Iterator[None]:
        """Keeps the bytes and errors of these pieces until the end of the block."""
        with self._lock:
            self._awaited.update(pieces)
        try:
            yield
        finally:
            with self._lock:
                self._awaited.subtract(pieces)
                for piece in pieces:
                    if not self._awaited[piece]:
                        del self._awaited[piece]
                        self.in_memory.pop(piece, None)
                        self.failed.pop(piece, None)

    def wait_for(self, missing: Sequence[int], seconds: float) -> None:
        """Asks for pieces that are missing, and waits until something has changed."""
        with self._lock:
            absent = [piece for piece in missing if piece not in self._in_flight]
            self._urgent |= dict.fromkeys(absent)
            self._has_work.notify(len(absent))
            self._has_come.wait(seconds)

    def set_ahead(self, reader: int, pieces: Sequence[int]) -> None:
        """Sets the pieces that a reader uses next, in the order of use."""
        with self._lock:
            self._ahead.pop(reader, None)
            if pieces:
                self._ahead[reader] = list(reversed(pieces))
                self._has_work.notify()

    def is_busy(self, seconds: float) -> bool:
        """Returns whether a piece is on its way, after waiting for a change if so."""
        with self._lock:
            is_busy = bool(self._ahead or self._in_flight or self._is_claiming)
            if is_busy:
                self._has_come.wait(seconds)
            return is_busy

    def next(self) -> Task | Claim | None:
        """Waits for something to do and returns it; None ends the thread.

        After a claim `claimed` must be called; after a task `done`.
        """
        with self._lock:
            while not self.is_ended:
                if self._tasks:
                    return self._tasks.popleft()
                if not self._is_claiming and (self._urgent or self._ahead):
                    self._is_claiming = True
                    return self._next_claim()
                self._has_work.wait()
            return None

    def _next_claim(self) -> Claim:
        if self._urgent:
            pieces = list(self._urgent)[:_BATCH]
            for piece in pieces:
                del self._urgent[piece]
            return Claim(pieces, is_ahead=False)
        reader, wanted = next(iter(self._ahead.items()))
        del self._ahead[reader]
        pieces = [wanted.pop() for _ in range(min(_BATCH, len(wanted)))]
        if wanted:
            self._ahead[reader] = wanted  # the other readers come first now
        return Claim(pieces, is_ahead=True)

    def claimed(
        self,
        tasks: Sequence[Task],
        failed: dict[int, Exception],
        is_ahead_full: bool,
    ) -> None:
        """Ends a claim.

        Args:
            tasks: Pieces to fetch now.
            failed: Errors of pieces that cannot be fetched.
            is_ahead_full: Whether there is no room to fetch anything ahead.
        """
        with self._lock:
            self._is_claiming = False
            # A task with room holds a claim, which ends only when the task is run. An
            # older task may have ended its own claim and not be done yet.
            new = [t for t in tasks if t.has_room or t.piece not in self._in_flight]
            self._tasks.extend(new)
            now = time.monotonic()
            self._in_flight.update((task.piece, now) for task in new)
            for piece, error in failed.items():
                self._fail(piece, now, error)
            if is_ahead_full:
                self._ahead.clear()  # until the next window
            self._has_work.notify(len(new) + 1)
            self._has_come.notify_all()

    def done(self, piece: int, result: memoryview | Exception | None) -> None:
        """Ends a task; the result is None if the piece is in the store now."""
        with self._lock:
            begun = self._in_flight.pop(piece, 0.0)
            if isinstance(result, Exception):
                self._fail(piece, begun, result)
            elif result is not None and self._awaited[piece]:
                self.in_memory[piece] = result
            self._has_come.notify_all()

    def _fail(self, piece: int, begun: float, error: Exception) -> None:
        self.last_failure = error
        self._ahead.clear()  # until the next window
        if self._awaited[piece]:
            self.failed[piece] = begun, error

    def end(self) -> None:
        """Ends all threads that wait for something to do."""
        with self._lock:
            self.is_ended = True
            self._has_work.notify_all()
            self._has_come.notify_all()
