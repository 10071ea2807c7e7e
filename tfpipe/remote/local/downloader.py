"""The downloader: the threads that fetch pieces, those that are needed first at first.

In: the pieces that a reader waits for, and those that it reads after them. Out: the
marks of these pieces, once their bytes are in the store. Each piece is fetched by one
process of the host. Imports no TensorFlow.
"""

import atexit
import collections
import threading
import time
import weakref
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tfpipe import errors
from tfpipe.remote import urls
from tfpipe.remote.local import store as stores
from tfpipe.remote.local.directory import Directory, Granted
from tfpipe.remote.local.fetch import Fetcher
from tfpipe.remote.local.store import Store
from tfpipe.shards.records import Ints

# Pieces that are claimed under one lock of the directory.
_BATCH = 8
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
        self._lock = threading.Lock()
        # All below is guarded by the lock.
        self._has_work = threading.Condition(self._lock)
        self._has_come = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        self._is_ended = self._is_claiming = self._is_publishing = False
        self._urgent: dict[int, None] = {}
        self._ahead: dict[int, list[int]] = {}  # by reader, the last one first
        # Claimed pieces, and whether there is room for them.
        self._tasks: collections.deque[tuple[int, bool]] = collections.deque()
        self._in_flight: set[int] = set()
        self._to_publish: collections.deque[int] = collections.deque()
        self._awaited: collections.Counter[int] = collections.Counter()
        # Of pieces that are awaited.
        self._in_memory: dict[int, bytes] = {}
        self._failed: dict[int, Exception] = {}
        self._failure: Exception | None = None  # the last one

    def are_there(self, pieces: Ints) -> bool:
        """Returns whether all of some pieces can be read from the store."""
        return bool((self._store.marks[pieces] >= stores.PRESENT).all())

    def require(self, pieces: Ints) -> dict[int, bytes]:
        """Returns when some pieces, which are pinned, are in the store.

        Returns:
            The bytes of the pieces for which the disk or the cache has no room.

        Raises:
            RemoteError: If a piece cannot be fetched, or no piece comes for longer
                than the time limit.
            BadIndexError: If a shard has another digest than the index says.
        """
        if self.are_there(pieces):
            return {}
        numbers: list[int] = pieces.tolist()
        with self._lock:
            self._start()
            self._awaited.update(numbers)
            try:
                self._wait(numbers)
                return {n: self._in_memory[n] for n in numbers if n in self._in_memory}
            finally:
                self._awaited.subtract(numbers)
                for number in numbers:
                    if not self._awaited[number]:
                        del self._awaited[number]
                        self._in_memory.pop(number, None)
                        self._failed.pop(number, None)

    def _wait(self, numbers: list[int]) -> None:
        marks = self._store.marks
        least, since = len(numbers) + 1, time.monotonic()
        while missing := [
            number
            for number in numbers
            if marks[number] < stores.PRESENT and number not in self._in_memory
        ]:
            if len(missing) < least:
                least, since = len(missing), time.monotonic()
            self._check(missing, time.monotonic() - since)
            absent = [number for number in missing if number not in self._in_flight]
            self._urgent = dict.fromkeys([*self._urgent, *absent])
            self._has_work.notify(len(absent))
            self._has_come.wait(_POLL_SECONDS)

    def _check(self, missing: list[int], seconds: float) -> None:
        """Raises the error of a piece that does not come."""
        for number in missing:
            if number in self._failed:
                raise self._failed[number]
        if self._is_ended or not threading.main_thread().is_alive():
            # The iterators of datasets are ended when the interpreter exits.
            raise errors.RemoteError("The process ends: the shard cache is closed.")
        if seconds > self._time_limit + _GRACE_SECONDS:
            shard = self._store.shards[self._store.shard[missing[0]]]
            place = urls.shown(urls.join(self._store.place, shard.name))
            raise errors.RemoteError(
                f"{place}: {len(missing)} pieces must come within {self._time_limit} s,"
                f" got none for {seconds:.0f} s. Check the store and the connection, or"
                " give ShardCache a larger time_limit."
            )

    def ahead(self, reader: int, pieces: Ints) -> None:
        """Sets the pieces that a reader uses next, in the order of use."""
        missing = pieces[self._store.marks[pieces] < stores.PRESENT].tolist()
        if not missing and reader not in self._ahead:
            return
        with self._lock:
            self._ahead.pop(reader, None)
            if missing:
                self._start()
                self._ahead[reader] = missing[::-1]
                self._has_work.notify()

    def fetch_all(self, reader: int, pieces: Ints) -> Iterator[None]:
        """Fetches pieces in order while there is room; yields now and then.

        It ends when no process of the host fetches one of them any more, and whole
        shards are published.

        Raises:
            RemoteError: If a piece cannot be fetched.
            BadIndexError: If a shard has another digest than the index says.
        """
        marks = self._store.marks
        is_first = True
        while is_first or (marks[pieces] == stores.FETCHING).any():
            is_first, self._failure = False, None
            self.ahead(reader, pieces)
            yield
            while self._is_busy():
                yield
            if self._failure is not None:
                raise self._failure
        for number in pieces[marks[pieces] == stores.WRONG].tolist():
            raise self._wrong(number)

    def _is_busy(self) -> bool:
        """Waits a little if anything is under way; returns whether there was."""
        with self._lock:
            self._start()
            self._check([], 0)
            waiting = self._ahead or self._in_flight or self._to_publish
            is_busy = bool(waiting or self._is_claiming or self._is_publishing)
            if is_busy:
                self._has_come.wait(_PROGRESS_SECONDS)
            return is_busy

    def _start(self) -> None:
        if self._threads or self._is_ended:
            return
        work = [self._work] * self._num_connections
        for run in (*work, self._publish):
            # Daemons: no exit waits for a server that stalls.
            thread = threading.Thread(target=run, name="shard cache", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._is_publishing = True
        atexit.register(_end, weakref.ref(self))

    def _work(self) -> None:
        while (task := self._next_task()) is not None:
            self._run(*task)

    def _next_task(self) -> tuple[int, bool] | None:
        while True:
            with self._lock:
                while not self._tasks:
                    if self._is_ended:
                        return None
                    if not self._is_claiming and (self._urgent or self._ahead):
                        break
                    self._has_work.wait()
                else:
                    return self._tasks.popleft()
                self._is_claiming = True
                numbers, is_ahead = self._take_wishes()
            self._claim(numbers, is_ahead=is_ahead)

    def _take_wishes(self) -> tuple[list[int], bool]:
        """Returns the next pieces to claim, and whether nobody waits for them yet."""
        if self._urgent:
            numbers = list(self._urgent)[:_BATCH]
            for number in numbers:
                del self._urgent[number]
            return numbers, False
        reader, wishes = next(iter(self._ahead.items()))
        numbers = [wishes.pop() for _ in range(min(_BATCH, len(wishes)))]
        del self._ahead[reader]
        if wishes:
            self._ahead[reader] = wishes  # the next reader comes first now
        return numbers, True

    def _claim(self, numbers: list[int], *, is_ahead: bool) -> None:
        failure: Exception | None = None
        granted = Granted([], [], [])
        try:
            granted = self._directory.reserve(self._store, numbers, ahead=is_ahead)
        except Exception as error:  # a thread that ends would leave its reader waiting
            failure = error
        with self._lock:
            self._is_claiming = False
            tasks = [(number, True) for number in granted.pieces]
            if is_ahead and granted.no_room:
                self._ahead.clear()  # until the next window
            elif not is_ahead:
                tasks += [(n, False) for n in granted.no_room]
            tasks = [task for task in tasks if task[0] not in self._in_flight]
            self._tasks.extend(tasks)
            self._in_flight.update(number for number, _ in tasks)
            for number in granted.wrong:
                self._fail(number, self._wrong(number))
            for number in numbers if failure else ():
                self._fail(number, failure)
            self._has_work.notify(len(tasks) + 1)

    def _fail(self, number: int, error: Exception | None) -> None:
        if self._awaited[number] and error is not None:
            self._failed[number] = error
            self._has_come.notify_all()

    def _wrong(self, number: int) -> errors.BadIndexError:
        shard = self._store.shards[self._store.shard[number]]
        place = urls.shown(urls.join(self._store.place, shard.name))
        return errors.BadIndexError(
            f"{place} must have the digest {shard.digest} as index.json says, but was "
            "fetched twice with another one. Copy the shard there again, or convert "
            "the data set again."
        )

    def _run(self, number: int, has_room: bool) -> None:
        content, failure = None, None
        try:
            content, mark = self._fetcher.download(number)
            if has_room and self._fetcher.keep(number, content, mark):
                content = None
        except Exception as error:
            failure = error
            if has_room:
                self._directory.give_up(self._store, number)
        shard = int(self._store.shard[number])
        is_whole = failure is None and self._fetcher.is_whole(shard)
        with self._lock:
            self._in_flight.discard(number)
            self.is_new[number] = failure is None
            if failure is not None:
                self._fail(number, failure)
                self._failure = failure
                self._ahead.clear()  # until the next window
            elif content is not None and self._awaited[number]:
                self._in_memory[number] = content
            if is_whole:
                self._to_publish.append(shard)
                self._has_work.notify_all()
            self._has_come.notify_all()

    def _publish(self) -> None:
        for shard in range(len(self._store.shards)):
            if self._fetcher.is_whole(shard):
                self._to_publish.append(shard)
        while True:
            with self._lock:
                self._is_publishing = False
                while not self._to_publish and not self._is_ended:
                    self._has_work.wait()
                if self._is_ended:
                    return
                self._is_publishing = True
                shard = self._to_publish.popleft()
            try:
                self._fetcher.publish(shard)
            except Exception as error:
                name = self._store.shards[shard].name
                self._fetcher.say_once(f"{name} is not published: {error}")

    def close(self) -> None:
        """Ends the threads, and waits for those that do not wait for the store."""
        with self._lock:
            self._is_ended = True
            self._has_work.notify_all()
            self._has_come.notify_all()
        end = time.monotonic() + _EXIT_SECONDS
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))


def _end(downloader: "weakref.ref[Downloader]") -> None:
    found = downloader()
    if found is not None:
        found.close()
