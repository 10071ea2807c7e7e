"""Leases: a single process of several hosts does a piece of work; no lock daemon.

In: paths in a folder shared by several hosts. Out: a lease of a path, held by a single
live process. A lease is a file, created exclusively. Its content is the token of its
owner and a counter, raised by the owner. A process that reads the same content
for STALE_SECONDS of its own monotonic clock renames the file away and creates its own.
Hosts compare no clocks, share no memory and take no locks. Imports no TensorFlow.

A pause of a process between two lines can give two owners to a path. The work must
therefore be harmless if two processes do the work; publishing by rename is. All calls
raise OSError if the file system fails, except those that say otherwise.
"""

import contextlib
import os
import pathlib
import threading
import time
import uuid
from collections.abc import Callable

# Seconds without a change after which the owner of a lease counts as dead.
STALE_SECONDS = 30.0
# Seconds between two raises of a counter: an owner may miss several raises.
RAISE_SECONDS = 5.0

_TOKEN_CHARACTERS = 32


class Lease:
    """A lease of the own process.

    Attributes:
        part: A path for an unfinished file of the owner. The next owner after a death
            removes the file.

    Args:
        path: The file of the lease; the file must be absent.

    Raises:
        FileExistsError: If a process has the lease.
        OSError: If the file cannot be created.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._token, self._counter = uuid.uuid4().hex, 0
        self.part = _part(path, self._token)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o666)
        try:
            os.pwrite(self._descriptor, self._content(), 0)
        except OSError:
            self.release()
            raise

    def _content(self) -> bytes:
        return f"{self._token} {self._counter:019}\n".encode()

    def raise_counter(self) -> None:
        """Shows other hosts the life of the own process."""
        self._counter += 1
        os.pwrite(self._descriptor, self._content(), 0)
        os.fsync(self._descriptor)  # other hosts see the content after a flush

    def is_held(self) -> bool:
        """Returns whether no other process took the lease over."""
        try:
            return self._is_own(self.path.read_bytes())
        except FileNotFoundError:
            return False

    def _is_own(self, content: bytes) -> bool:
        return content.startswith(self._token.encode())

    def release(self) -> None:
        """Ends the lease, but not the lease of a later owner."""
        os.close(self._descriptor)
        _remove(self.path, lambda content: not content or self._is_own(content))


class Leases:
    """The leases of the own process, and the leases seen in the hands of others.

    Args:
        clock: Function with seconds as its result, such as `time.monotonic`.
        ended: Ends the thread for the counters.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        ended: threading.Event,
    ) -> None:
        self._clock, self._ended = clock, ended
        self._lock = threading.Lock()
        self._held: set[Lease] = set()
        self._raising: threading.Thread | None = None
        # By path: the content of a lease, and the time of the first look at it.
        self._seen: dict[pathlib.Path, tuple[bytes, float]] = {}

    def take(self, path: pathlib.Path) -> Lease | None:
        """Returns the lease of a path; None while another live process has it."""
        try:
            lease = Lease(path)
        except FileExistsError:
            return self.take(path) if self._has_ended(path) else None
        self._seen.pop(path, None)
        with self._lock:
            self._held.add(lease)
            if self._raising is None:
                self._raising = threading.Thread(
                    target=self._raise_counters, name="shard cache: leases", daemon=True
                )
                self._raising.start()
        return lease

    def _has_ended(self, path: pathlib.Path) -> bool:
        """Returns whether the call removed the lease of a dead process."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return False
        seen, since = self._seen.get(path, (None, 0.0))
        if content != seen:
            self._seen[path] = content, self._clock()
            return False
        if self._clock() - since < STALE_SECONDS:
            return False
        if not _remove(path, lambda text: text == content):
            return False
        if token := content[:_TOKEN_CHARACTERS].decode("ascii", "replace"):
            _part(path, token).unlink(missing_ok=True)
        return True

    def release(self, lease: Lease) -> None:
        """Ends a lease of the own process."""
        with self._lock:
            if lease not in self._held:
                return
            self._held.remove(lease)
        lease.release()

    def close(self) -> None:
        """Ends all leases of the own process, as far as the file system works."""
        with self._lock:
            held, self._held = self._held, set()
            for lease in held:
                with contextlib.suppress(OSError):
                    lease.release()

    def raise_counters(self) -> None:
        """Raises the counters of all leases, as far as the file system works."""
        with self._lock:
            for lease in self._held:
                with contextlib.suppress(OSError):  # then others take the lease over
                    lease.raise_counter()

    def _raise_counters(self) -> None:
        while not self._ended.wait(RAISE_SECONDS):
            self.raise_counters()


def _part(path: pathlib.Path, token: str) -> pathlib.Path:
    return path.with_name(f"{path.name}.{token}.part")


def _remove(path: pathlib.Path, is_expected: Callable[[bytes], bool]) -> bool:
    """Removes a file with the expected content; a single process succeeds.

    A file with other content keeps its path, unless another process took the path.
    """
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return False
    try:
        if is_expected(aside.read_bytes()):
            return True
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
        return False
    finally:
        aside.unlink()
