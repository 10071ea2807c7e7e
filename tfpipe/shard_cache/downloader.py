"""The downloader: threads that fetch pieces, first those that a reader waits for.

In: the pieces that a reader waits for, and those that it reads after them. Out: the
marks of these pieces, once their bytes are in the store. Each piece is fetched by one
process of the host. Imports no TensorFlow.
"""

import atexit
import threading
import time
import weakref
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tfpipe import errors
from tfpipe.errors import count_of
from tfpipe.remote import urls
from tfpipe.shard_cache import store as stores
from tfpipe.shard_cache.directory import Directory
from tfpipe.shard_cache.fetch import Fetcher
from tfpipe.shard_cache.publish import Publisher
from tfpipe.shard_cache.store import Store
from tfpipe.shard_cache.wishes import Claim, Task, Wishes
from tfpipe.shards.records import Ints

# Another process's piece is looked for this often.
_POLL_SECONDS = 0.01
# The fetcher says first, and more precisely, why no piece comes.
_GRACE_SECONDS = 5.0
# An exit waits this long for requests that are under way.
_EXIT_SECONDS = 2.0
_PROGRESS_SECONDS = 0.25


class Downloader:
    """Fetches pieces of one split with threads that start at the first request.

    Args:
        fetcher: Fetches one piece.
        directory: Directory of the cache.
        store: Store of the split.
        num_connections: Number of threads, each with one request at a time.
        time_limit: Seconds that one piece may take with all retries.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        directory: Directory,
        store: Store,
        *,
        num_connections: int,
        time_limit: float,
    ) -> None:
        self._fetcher, self._directory, self._store = fetcher, directory, store
        self._num_connections, self._time_limit = num_connections, time_limit
        # Pieces that this process fetched and no window has used since.
        self.is_new: npt.NDArray[np.bool_] = np.zeros(len(store.marks), np.bool_)
        # Pieces that are damaged in the remote store, whether there is room or not.
        self.is_damaged: npt.NDArray[np.bool_] = np.zeros(len(store.marks), np.bool_)
        self._wishes = Wishes()
        self._publisher = Publisher(fetcher, directory, store)
        self._starting = threading.Lock()
        self._threads: list[threading.Thread] = []

    def _start(self) -> None:
        with self._starting:
            if self._threads:
                return
            for _ in range(self._num_connections):
                # Daemons: no exit waits for a server that stalls.
                thread = threading.Thread(
                    target=self._work, name="shard cache", daemon=True
                )
                self._threads.append(thread)
                thread.start()
            self._publisher.start()
            atexit.register(_end, weakref.ref(self))

    def require(self, pieces: Ints) -> dict[int, memoryview]:
        """Returns when some pieces, which are pinned, are in the store.

        Returns:
            The bytes of the pieces for which the disk or the cache has no room.

        Raises:
            RemoteError: If a piece cannot be fetched, or no piece comes for longer
                than the time limit.
            BadIndexError: If a shard has another digest than the index says.
        """
        marks, wishes = self._store.marks, self._wishes
        if (marks[pieces] >= stores.PRESENT).all():
            return {}
        self._start()
        wanted = pieces.tolist()
        with wishes.awaited(wanted):
            waiting = _Wait(self._store, wishes, self._time_limit)
            while missing := [
                piece
                for piece in wanted
                if marks[piece] < stores.PRESENT and piece not in wishes.in_memory
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

        It ends when no process of the host fetches one of them any more, and whole
        shards are published.

        Raises:
            RemoteError: If a piece cannot be fetched.
            BadIndexError: If a shard has another digest than the index says.
        """
        marks, wishes = self._store.marks, self._wishes
        self._start()
        is_first = True
        while is_first or (marks[pieces] == stores.FETCHING).any():
            is_first, wishes.last_failure = False, None
            self.ahead(reader, pieces)
            yield
            while wishes.is_busy(_PROGRESS_SECONDS):
                yield
            if wishes.last_failure is not None:
                raise wishes.last_failure
            if (marks[pieces] == stores.FETCHING).any():
                time.sleep(_POLL_SECONDS)  # another process fetches it
        while self._publisher.is_busy:
            time.sleep(_POLL_SECONDS)
            yield
        yield
        for piece in pieces[marks[pieces] == stores.WRONG].tolist():
            raise _wrong(self._store, piece)

    def _work(self) -> None:
        while (found := self._wishes.next()) is not None:
            if isinstance(found, Claim):
                self._wishes.claimed(*_claim(self._directory, self._store, found))
            else:
                self._run(found)

    def _run(self, task: Task) -> None:
        result: memoryview | Exception | None
        try:
            result, mark = self._fetcher.download(task.piece)
            if self._store.is_closed:
                return  # its claim has ended
            self.is_new[task.piece] = True
            self.is_damaged[task.piece] = mark == stores.DAMAGED
            if task.has_room and self._fetcher.keep(task.piece, result, mark):
                result = None
                self._publisher.add(int(self._store.shard[task.piece]))
        except Exception as error:
            result = error
            if task.has_room:
                self._directory.give_up(self._store, task.piece)
        self._wishes.done(task.piece, result)

    def end(self) -> None:
        """Asks the threads to end."""
        self._wishes.end()
        self._fetcher.ended.set()
        self._publisher.end()

    def close(self) -> None:
        """Ends all claims, and the threads, but not one that waits for the store."""
        self.end()
        end = time.monotonic() + _EXIT_SECONDS
        threads = [*self._threads, self._publisher.thread] if self._threads else []
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0))
        self._directory.close()


def _end(downloader: "weakref.ref[Downloader]") -> None:
    found = downloader()
    if found is not None:
        found.close()


def _claim(
    directory: Directory, store: Store, claim: Claim
) -> tuple[list[Task], dict[int, Exception], bool]:
    """Returns the arguments of `Wishes.claimed`."""
    try:
        granted = directory.reserve(store, claim.pieces, ahead=claim.is_ahead)
    except Exception as error:  # a thread that ends would leave its reader waiting
        return [], dict.fromkeys(claim.pieces, error), False
    tasks = [Task(piece, has_room=True) for piece in granted.pieces]
    failed: dict[int, Exception] = {p: _wrong(store, p) for p in granted.wrong}
    if claim.is_ahead:
        return tasks, failed, bool(granted.no_room)
    tasks += [Task(piece, has_room=False) for piece in granted.no_room]
    return tasks, failed, False


class _Wait:
    """The wait of one reader for some pieces."""

    def __init__(self, store: Store, wishes: Wishes, time_limit: float) -> None:
        self._store, self._wishes, self._time_limit = store, wishes, time_limit
        self._start = self._last_came = time.monotonic()
        self._least_missing = 1 << 62

    def check(self, missing: list[int]) -> None:
        """Raises the error of a piece that does not come, given the missing pieces."""
        now = time.monotonic()
        if len(missing) < self._least_missing:
            self._least_missing, self._last_came = len(missing), now
        for piece in missing:
            begun, error = self._wishes.failed.get(piece, (0.0, None))
            is_late = now - self._start > self._time_limit
            # An older request may have failed for a reason that is gone.
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
                "connection to it, or give ShardCache a larger time_limit."
            )


def _wrong(store: Store, piece: int) -> errors.BadIndexError:
    digest = store.shards[store.shard[piece]].digest
    return errors.BadIndexError(
        f"{_shown(store, piece)} must have the digest {digest} as index.json says, but "
        "was fetched twice with another one. Copy the shard there again, or convert "
        "the data set again."
    )


def _shown(store: Store, piece: int) -> str:
    return urls.shown(urls.join(store.place, store.shards[store.shard[piece]].name))
