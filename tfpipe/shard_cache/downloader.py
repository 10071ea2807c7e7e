"""The downloader: threads that fetch pieces, first the pieces that a reader waits for.

In: the pieces that readers wait for, and the pieces that they read later. Out: the
marks of these pieces, after their bytes are in the store. Only a single process of the
host fetches a piece. `Wishes` hands out the work of the threads. Imports no TensorFlow.
"""

import atexit
import collections
import contextlib
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfpipe import errors
from tfpipe.errors import count_of
from tfpipe.location import limits
from tfpipe.shard_cache import store as stores
from tfpipe.shard_cache.fetch import Fetcher
from tfpipe.shard_cache.publish import Publisher
from tfpipe.shard_cache.store import PieceStore
from tfpipe.shards.records import Ints

# Pieces of a claim, under a lock of the directory: more if they are small.
_BATCH, _MOST_IN_BATCH, _BATCH_BYTES = 8, 64, 32 << 20


class FetchTask(NamedTuple):
    """A piece to fetch, and whether the cache has room for it."""

    piece: int
    has_room: bool


class Claim(NamedTuple):
    """Pieces to claim, in the order of use, and whether nobody waits for them yet."""

    pieces: list[int]
    is_ahead: bool


class Wishes:
    """The pieces that the readers of a split in a process want, and their states.

    Args:
        batch: Most pieces of a claim.
    """

    def __init__(self, batch: int = _BATCH) -> None:
        self._lock, self._batch = threading.Lock(), batch
        self._has_work = threading.Condition(self._lock)
        self._has_come = threading.Condition(self._lock)
        self.is_ended = False
        self._claiming: list[int] = []  # a thread asks for room for these pieces
        self._urgent: dict[int, None] = {}
        self._ahead: dict[int, list[int]] = {}  # by reader, the last piece first
        self._tasks: collections.deque[FetchTask] = collections.deque()
        self._in_flight: dict[int, float] = {}  # the time of the claim
        self._awaited: collections.Counter[int] = collections.Counter()
        # Both dicts hold awaited pieces only. A failure has the time of its claim.
        self.in_memory: dict[int, memoryview] = {}
        self.failed: dict[int, tuple[float, Exception]] = {}
        self.last_failure: Exception | None = None

    @contextlib.contextmanager
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
                        for kept in (self._urgent, self.in_memory, self.failed):
                            kept.pop(piece, None)

    def wait_for(self, missing: Sequence[int], seconds: float) -> None:
        """Asks for missing pieces, and waits until something has changed."""
        with self._lock:
            absent = [piece for piece in missing if not self._has(piece)]
            self._urgent |= dict.fromkeys(absent)
            self._has_work.notify(len(absent))
            self._has_come.wait(seconds)

    def _has(self, piece: int) -> bool:
        """Whether a piece is on its way, or came and is kept in memory."""
        on_its_way = piece in self._claiming or piece in self._in_flight
        return on_its_way or piece in self.in_memory

    def set_ahead(self, reader: int, pieces: Sequence[int]) -> None:
        """Sets the pieces that a reader uses next, in the order of use."""
        with self._lock:
            self._ahead.pop(reader, None)
            if pieces:
                self._ahead[reader] = list(reversed(pieces))
                self._has_work.notify()

    def is_busy(self, seconds: float) -> bool:
        """Returns whether pieces are still on their way; waits until none is."""
        with self._lock:
            return not self._has_come.wait_for(self._is_idle, seconds)

    def _is_idle(self) -> bool:
        return not (self._ahead or self._in_flight or self._claiming)

    def next(self) -> FetchTask | Claim | None:
        """Waits for work, a task or a claim; None ends the thread.

        The thread calls `claimed` after a claim, and `done` after a task.
        """
        with self._lock:
            while not self.is_ended:
                if self._tasks:
                    return self._tasks.popleft()
                if not self._claiming and (self._urgent or self._ahead):
                    claim = self._next_claim()
                    self._claiming = claim.pieces
                    return claim
                self._has_work.wait()
            return None

    def _next_claim(self) -> Claim:
        if self._urgent:
            pieces = list(self._urgent)[: self._batch]
            for piece in pieces:
                del self._urgent[piece]
            return Claim(pieces, is_ahead=False)
        reader, wanted = next(iter(self._ahead.items()))
        del self._ahead[reader]
        pieces = [wanted.pop() for _ in range(min(self._batch, len(wanted)))]
        if wanted:
            self._ahead[reader] = wanted  # the other readers come first now
        return Claim(pieces, is_ahead=True)

    def claimed(
        self,
        tasks: Sequence[FetchTask],
        failed: dict[int, Exception],
        is_ahead_full: bool,
    ) -> None:
        """Ends a claim.

        Args:
            tasks: Pieces to fetch now.
            failed: Errors of failed pieces.
            is_ahead_full: Whether there is no room to fetch anything ahead.
        """
        with self._lock:
            self._claiming = []
            # A task with room holds a claim until the task is run. An older task may
            # have ended its own claim and not be done yet.
            # One without room is for a reader that waits for it.
            new = [
                task
                for task in tasks
                if task.has_room
                or (self._awaited[task.piece] and not self._has(task.piece))
            ]
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
            if self._awaited or self._is_idle():  # else nobody waits for a piece
                self._has_come.notify_all()

    def _fail(self, piece: int, begun: float, error: Exception) -> None:
        self.last_failure = error
        self._ahead.clear()  # until the next window
        if self._awaited[piece]:
            self.failed[piece] = begun, error

    def end(self) -> None:
        """Ends all threads without work."""
        with self._lock:
            self.is_ended = True
            self._has_work.notify_all()
            self._has_come.notify_all()


# Seconds between two looks for a piece of another process.
_POLL_SECONDS = 0.01
# The fetcher's own error comes first, and is more precise.
_GRACE_SECONDS = 5.0
# Seconds that an exit waits for requests under way.
_EXIT_SECONDS = 2.0
_PROGRESS_SECONDS = 0.25


class Downloader:
    """Fetches pieces of a split with threads. They start at the first request.

    Args:
        fetcher: Fetches pieces.
    """

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._directory, self._store = fetcher.directory, fetcher.store
        num_pieces = len(fetcher.store.marks)
        # Pieces that this process fetched and no window has used since.
        self.is_new: npt.NDArray[np.bool_] = np.zeros(num_pieces, np.bool_)
        # Pieces that are damaged in the remote store, whether there is room or not.
        self.is_damaged: npt.NDArray[np.bool_] = np.zeros(num_pieces, np.bool_)
        mean = max(fetcher.store.total_cost // max(num_pieces, 1), 1)
        batch = min(max(_BATCH, _BATCH_BYTES // mean), _MOST_IN_BATCH)
        self._wishes = Wishes(batch)
        self._publisher = Publisher(fetcher)
        self._is_filling, self._starting = False, threading.Lock()
        self._threads: list[threading.Thread] = []

    def _start(self) -> None:
        with self._starting:
            if self._threads:
                return
            # Half as many threads more than requests write pieces meanwhile: threads
            # that write a file of some shard wait for each other.
            num_connections = self._fetcher.num_connections
            for _ in range(num_connections + num_connections // 2):
                # Daemons: no exit waits for a server that stalls.
                thread = threading.Thread(
                    target=self._work, name="shard cache", daemon=True
                )
                self._threads.append(thread)
                thread.start()
            self._publisher.start()
            atexit.register(_end, weakref.ref(self))

    def require(self, pieces: Ints) -> dict[int, memoryview]:
        """Waits until some pinned pieces are in the store.

        Returns:
            The bytes of the pieces for which the disk or the cache has no room.

        Raises:
            RemoteError: If a piece cannot be fetched, or no piece comes for longer
                than the time limit.
            BadIndexError: If a shard has another digest than the index says.
        """
        store, wishes = self._store, self._wishes
        if (store.marks[pieces] >= stores.PRESENT).all():
            return {}
        self._start()
        wanted = pieces.tolist()
        with wishes.awaited(wanted):
            waiting = _Wait(self._store, wishes, self._fetcher.time_limit)
            while missing := [
                piece
                for piece in wanted
                if store.marks[piece] < stores.PRESENT and piece not in wishes.in_memory
            ]:
                waiting.check(missing)
                wishes.wait_for(missing, _POLL_SECONDS)
            return {p: wishes.in_memory[p] for p in wanted if p in wishes.in_memory}

    def ahead(self, reader: int, pieces: Ints) -> None:
        """Sets the pieces that a reader uses next, in the order of use."""
        missing = pieces[self._store.marks[pieces] < stores.PRESENT].tolist()
        if missing:
            self._start()
        if missing or self._threads:
            self._wishes.set_ahead(reader, missing)

    def fetch_all(self, reader: int, pieces: Ints) -> Iterator[None]:
        """Fetches pieces in order while there is room; yields now and then.

        The iterator ends when no process of the host fetches any of the pieces, and
        whole shards are published.

        Raises:
            RemoteError: If a piece cannot be fetched.
            BadIndexError: If a shard has another digest than the index says.
        """
        store, wishes = self._store, self._wishes
        self._start()
        is_first = self._is_filling = True
        try:
            while is_first or (store.marks[pieces] == stores.FETCHING).any():
                is_first, wishes.last_failure = False, None
                self.ahead(reader, pieces)
                yield
                while wishes.is_busy(_PROGRESS_SECONDS):
                    yield
                if wishes.last_failure is not None:
                    raise wishes.last_failure
                if (store.marks[pieces] == stores.FETCHING).any():
                    time.sleep(_POLL_SECONDS)  # another process fetches it
        finally:
            self._is_filling = False
        while self._publisher.are_left(_PROGRESS_SECONDS):
            yield
        yield
        for piece in pieces[store.marks[pieces] == stores.WRONG].tolist():
            raise _wrong(self._fetcher, piece)

    def _work(self) -> None:
        while (work := self._wishes.next()) is not None:
            if isinstance(work, Claim):
                self._wishes.claimed(*_claim(self._fetcher, work))
            else:
                self._run(work)

    def _run(self, task: FetchTask) -> None:
        result: memoryview | Exception | None
        try:
            result = self._fetched(task)
        except Exception as error:
            result = error
            if task.has_room and not self._store.is_closed:
                self._directory.give_up(self._store, task.piece)
        self._wishes.done(task.piece, result)

    def _fetched(self, task: FetchTask) -> memoryview | None:
        """Fetches a piece; returns its bytes, or None if the store keeps them."""
        content, mark = self._fetcher.download(task.piece)
        if self._store.is_closed:
            return content  # the claim has ended
        self.is_new[task.piece] = True
        self.is_damaged[task.piece] = mark == stores.DAMAGED
        if not task.has_room:
            return content
        # A filled cache may be larger than the memory, and is not read yet.
        is_direct = self._is_filling
        self._publisher.look(task.piece, content, is_in_order=is_direct)
        if not self._fetcher.keep(task.piece, content, mark, is_direct=is_direct):
            return content
        self._publisher.add(int(self._store.shard[task.piece]))
        return None

    def end(self) -> None:
        """Asks the threads to end."""
        self._wishes.end()
        self._fetcher.end()
        self._publisher.end()

    def close(self) -> None:
        """Ends all claims and threads, except for threads that wait for the store."""
        self.end()
        end = time.monotonic() + _EXIT_SECONDS
        threads = [*self._threads, self._publisher.thread] if self._threads else []
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0))
        self._fetcher.close()
        self._directory.close()


def _end(downloader: "weakref.ref[Downloader]") -> None:
    alive = downloader()
    if alive is not None:
        alive.close()


def _claim(
    fetcher: Fetcher, claim: Claim
) -> tuple[list[FetchTask], dict[int, Exception], bool]:
    """Returns the arguments of `Wishes.claimed`."""
    try:
        granted = fetcher.directory.reserve(
            fetcher.store, claim.pieces, ahead=claim.is_ahead
        )
    except Exception as error:  # a thread that ends would leave its reader waiting
        return [], dict.fromkeys(claim.pieces, error), False
    tasks = [FetchTask(piece, has_room=True) for piece in granted.pieces]
    failed: dict[int, Exception] = {p: _wrong(fetcher, p) for p in granted.wrong}
    if claim.is_ahead:
        return tasks, failed, bool(granted.no_room)
    tasks += [FetchTask(piece, has_room=False) for piece in granted.no_room]
    return tasks, failed, False


class _Wait:
    """The wait of a reader for some pieces."""

    def __init__(self, store: PieceStore, wishes: Wishes, time_limit: float) -> None:
        self._store, self._wishes, self._time_limit = store, wishes, time_limit
        self._start = self._last_came = time.monotonic()
        self._least_missing = 1 << 62

    def check(self, missing: list[int]) -> None:
        """Raises the error of a missing piece that does not come."""
        now = time.monotonic()
        if len(missing) < self._least_missing:
            self._least_missing, self._last_came = len(missing), now
        for piece in missing:
            begun, error = self._wishes.failed.get(piece, (0.0, None))
            is_late = now - self._start > self._time_limit
            # The reason of an older failure may be gone.
            if error is not None and (is_late or begun >= self._start):
                raise error
        if self._wishes.is_ended or not threading.main_thread().is_alive():
            # Iterators of datasets are ended when the interpreter exits.
            raise errors.RemoteError("The shard cache is closed.")
        if now - self._last_came > self._time_limit + _GRACE_SECONDS:
            raise errors.RemoteError(
                f"{_shown(self._store, missing[0])}: "
                f"{count_of(len(missing), 'piece')} must come, each within "
                f"{self._time_limit} s, but none came. Check the store and the "
                f"connection to it, or {limits.remedy(self._time_limit)}."
            )


def _wrong(fetcher: Fetcher, piece: int) -> errors.TfpipeError:
    """Returns the error of a piece whose shard has a wrong digest."""
    if replaced := fetcher.replaced():
        return replaced
    store = fetcher.store
    digest = store.shards[store.shard[piece]].digest
    return errors.BadIndexError(
        f"{_shown(store, piece)} must have the digest {digest} as index.json says, but "
        "was fetched twice with another one. Copy the shard there again, or convert "
        "the data set again."
    )


def _shown(store: PieceStore, piece: int) -> str:
    name: str = store.shards[store.shard[piece]].name
    return (store.location / name).shown
