"""A watch over the ranks: if a rank is lost, the others end with an error about it.

A collective operation waits for every rank, so a rank that died, was stopped or gets no
data leaves the others waiting. Here a thread of every rank reports the position of the
rank to rank 0 over TCP, and rank 0 answers; no collective operation is used. Rank 0
watches the others, and the others watch rank 0.

In: the ranks, a time-out, and two calls a step. Out: nothing; or, if a rank is lost,
"Error: " with the rank and its last step on stderr of every other rank, and exit code
1, even if the main thread is blocked.

SIGTERM at any rank, from a scheduler, a launcher or `kill`, may end a training instead:
a rank that has `Stop.is_asked` tells the others with the averages of its next step, so
that all ranks save and end after the same step, by `StoppedError`.
"""

import contextlib
import dataclasses
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import tfpipe
from benchmarks.distributed import rank_links
from benchmarks.distributed.rank_links import Links, Message
from benchmarks.distributed.ranks import Ranks
from tfpipe.cli import signals


class Position(NamedTuple):
    """How far a rank is; a rank of a smaller position is behind.

    `loop` counts beginnings and ends of loops over steps: odd within a loop, even
    before, between and after loops, where no step is due.
    """

    loop: int = 1
    step: int = 0
    is_fed: bool = False

    @property
    def is_in_loop(self) -> bool:
        return self.loop % 2 == 1

    def __str__(self) -> str:
        if self.step:
            return f"after step {self.step}"
        return f"before the first step{' ended' if self.is_in_loop else ''}"


@dataclasses.dataclass(kw_only=True)
class Peer:
    """The last report of a rank: when it was heard, and when its position moved."""

    rank: int
    host: str
    heard: float
    moved: float
    position: Position = dataclasses.field(default_factory=Position)
    is_done: bool = False

    def hear(self, position: Position, *, is_done: bool, now: float) -> None:
        if position != self.position:
            self.position, self.moved = position, now
        self.heard, self.is_done = now, is_done


@dataclasses.dataclass(kw_only=True)
class Liveness:
    """The reports that a rank has: rank 0 of all ranks, others of rank 0 and their own.

    A rank may stay at the same position for `timeout` seconds.
    """

    peers: dict[int, Peer]
    num_ranks: int
    timeout: float

    def forgive(self, seconds: float) -> None:
        """Leaves out seconds in which the process could not receive reports."""
        for peer in self.peers.values():
            peer.heard += seconds
            peer.moved += seconds

    def judge(self, now: float, *, silence_limit: float) -> str | None:
        """Returns an error with the lost or late ranks; None without such ranks.

        A rank is lost after `silence_limit` seconds without a report.
        """
        running = [peer for peer in self.peers.values() if not peer.is_done]
        silent = [peer for peer in running if now - peer.heard > silence_limit]
        if silent:
            return self._silence(silent, now)
        # Only a process with reports of all ranks can tell a late rank.
        has_all = running and len(self.peers) == self.num_ranks
        return self._lateness(running, now) if has_all else None

    def _lateness(self, running: Sequence[Peer], now: float) -> str | None:
        # Only the ranks farthest behind delay the run: the others wait for them.
        last = min(peer.position for peer in running)
        late = [
            peer
            for peer in running
            if peer.position == last and now - peer.moved > self.timeout
        ]
        if not (late and last.is_in_loop):
            return None
        # A late rank without reports makes the others late.
        if silent := [p for p in late if now - p.heard > self.timeout / 2]:
            return self._silence(silent, now)
        limit = f"for {self.timeout:g} s (--rank_timeout), {last}"
        if last.is_fed:
            return (
                f"{self.names(late)} made no step {limit}, although the batch was "
                "there. Raise --rank_timeout if steps take that long."
            )
        return (
            f"{self.names(late)} got no batch {limit}. Check that its storage "
            "responds; raise --rank_timeout if batches take that long."
        )

    def lose(self, rank: int, *, is_reachable: bool = True) -> str | None:
        """Returns the error for a broken connection; None if the rank was done."""
        peer = self.peers[rank]
        # Rank 0 reports the end of all ranks before it closes a connection.
        if peer.is_done and rank:
            return None
        fate = "ended without an error message"
        advice = "Look at its own output, or at the kernel's log if memory ran out."
        if not is_reachable:
            fate = "cannot be reached"
            advice = "Check the network between the hosts, and that the host is up."
        report = f"its last report was {peer.position}"
        return f"{self.names([peer])} {fate}; {report}. {advice}"

    def names(self, chosen: Sequence[Peer]) -> str:
        """Returns the ranks as messages name them: "Rank 1 (host) of 2"."""
        ranks = ", ".join(f"{peer.rank} ({peer.host})" for peer in chosen)
        return f"Rank {ranks} of {self.num_ranks}"

    def _silence(self, silent: Sequence[Peer], now: float) -> str:
        return (
            f"{self.names(silent)} sent no report for "
            f"{now - silent[0].heard:.1f} s; the last one was {silent[0].position}. "
            "The process is stopped, or its host cannot be reached."
        )


_INTERVAL_SECONDS = 0.1  # between messages of a rank; longer with very many ranks
_INTERVAL_SECONDS_PER_RANK = 0.002
_INTERVALS_PER_TIMEOUT = 10  # smallest number of messages in a time-out
_SILENCE_SECONDS = 2.0  # silence of a rank that explains a failed collective
_PATIENCE_SECONDS = 5.0  # time to learn of a lost rank that explains an error
_LAST_WORDS_SECONDS = 2.0  # time after SIGTERM for the watch to print its error
_OWN_ERROR_SECONDS = 0.3  # time for a rank to fail with the error of another rank
_CLOSE_SECONDS = 1.0  # time for another rank to read the last message
_MAX_TEXT = 500  # characters of an error for other ranks


class Beat:
    """The loop's reports to the watch; a call costs about a microsecond."""

    def __init__(self) -> None:
        self.position = Position(0)

    @contextlib.contextmanager
    def loop(self) -> Iterator[None]:
        """Reports that steps are due while the block runs; no step is due outside."""
        self.position = Position(self.position.loop + 1)
        yield
        self.position = self.position._replace(
            loop=self.position.loop + 1, is_fed=False
        )

    def __call__(self, step: int) -> None:
        """Reports that `step` steps are done; the rank now waits for its next batch."""
        self.position = Position(self.position.loop, step)

    def fed(self) -> None:
        self.position = self.position._replace(is_fed=True)


def end_process(message: str) -> None:
    """Prints an error and ends the process with exit code 1 at once."""
    # Not by sys.stderr: a blocked main thread may hold its lock.
    os.write(2, f"Error: {message}\n".encode())
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(1)


@contextlib.contextmanager
def watched(
    ranks: Ranks,
    timeout: float,
    *,
    is_elastic: bool = False,
    is_ended_by_sigterm: bool = True,
    end: Callable[[str], None] = end_process,
) -> Iterator[Beat]:
    """Ends the process if another rank is lost while the block runs.

    All ranks enter the block together, and leave the block after all have reached the
    end or a `StoppedError`. If a rank leaves the block by another exception, the others
    end with its message. A single rank is not watched.

    Args:
        timeout: Seconds that a rank may stay without a new step or batch within
            `Beat.loop`, also before the first step; and without a report anywhere.
        is_elastic: Whether elastic Horovod handles a dead rank, by an error in the
            other ranks. A stopped rank, or a rank without data, still ends the others.
        end: Called with the message if a rank is lost, in another thread.
    """
    beat = Beat()
    if ranks.num_ranks == 1:
        yield beat
        return
    others, hosts = rank_links.connect(ranks)
    now = time.monotonic()
    peers = {
        rank: Peer(rank=rank, host=host, heard=now, moved=now)
        for rank, host in enumerate(hosts)
        if ranks.is_first or rank in (0, ranks.rank)
    }
    liveness = Liveness(peers=peers, num_ranks=ranks.num_ranks, timeout=timeout)
    watch = _Watch(ranks.rank, liveness, others, beat, is_elastic, end)
    threading.Thread(target=watch.run, name="watch", daemon=True).start()
    with _last_words(watch) if is_ended_by_sigterm else contextlib.nullcontext():
        try:
            yield beat
        except StoppedError:
            watch.finish()
            raise
        except BaseException as error:
            watch.fail(error)
            raise
        watch.finish()


@contextlib.contextmanager
def _last_words(watch: "_Watch") -> Iterator[None]:
    """Delays the end of the process by SIGTERM until the watch has printed its error.

    A launcher ends all ranks after the death of a rank, possibly before the other ranks
    have printed the lost rank. A signal handler alone is not enough: Python runs the
    handler in the main thread, and the main thread may be blocked.
    """
    told, tell = os.pipe()
    os.set_blocking(tell, False)

    def end() -> None:
        while kind := os.read(told, 1):
            if kind[0] == signal.SIGTERM:
                watch.is_broken = True
                watch.has_ended.wait(_LAST_WORDS_SECONDS)
                os._exit(128 + signal.SIGTERM)
        os.close(told)

    threading.Thread(target=end, name="last words", daemon=True).start()
    with signals.sigterm_handled(lambda *_: None) as is_main:
        before = signal.set_wakeup_fd(tell) if is_main else -1
        try:
            yield
        finally:
            if is_main:
                signal.set_wakeup_fd(before)
            os.close(tell)


class _Watch:
    def __init__(
        self,
        rank: int,
        liveness: Liveness,
        others: Links,
        beat: Beat,
        is_elastic: bool,
        end: Callable[[str], None],
    ) -> None:
        self._rank, self._liveness, self._others = rank, liveness, others
        self._beat, self._is_elastic, self._end = beat, is_elastic, end
        # Rank 0 answers every rank, so many ranks must send fewer messages each.
        each = _INTERVAL_SECONDS_PER_RANK * liveness.num_ranks
        self._interval = min(
            max(_INTERVAL_SECONDS, each), liveness.timeout / _INTERVALS_PER_TIMEOUT
        )
        # The main thread sets these, and the thread of the watch reads them.
        self._is_done, self.is_broken, self._has_left = False, False, False
        self._failure, self._verdict = "", ""
        self._is_ending = False
        self._has_failed, self.has_ended = threading.Event(), threading.Event()

    def finish(self) -> None:
        """Reports the end of the rank, and returns after the end of all ranks."""
        self._is_done = True
        self.has_ended.wait()

    def fail(self, error: BaseException) -> None:
        """Reports an error to the other ranks, unless a lost rank explains it."""
        # Horovod raises this class after a change of the ranks of an elastic run.
        if type(error).__name__ == "HostsUpdatedInterrupt":
            self._has_left = True
        elif type(error).__module__.startswith(("tensorflow", "horovod")):
            # A collective failed: the watch may soon learn which rank is lost.
            self.is_broken = True
            self.has_ended.wait(_PATIENCE_SECONDS)
            self._has_left = self._is_elastic
        text = str(error).partition("\n")[0][:_MAX_TEXT]
        self._failure = text or type(error).__name__
        self._has_failed.set()
        self.has_ended.wait(_PATIENCE_SECONDS)

    def run(self) -> None:
        """Watches until all ranks are done or a rank is lost."""
        try:
            self._loop()
        except Exception as error:
            self._conclude(f"The watch over the ranks broke: {error!r}")
        self._others.close(_CLOSE_SECONDS)
        # If the rank raises an own error, its text says more and is printed instead.
        if self._verdict and not self._has_failed.wait(_OWN_ERROR_SECONDS):
            self._end(self._verdict)
        self.has_ended.set()

    def _loop(self) -> None:
        due = time.monotonic()
        while not self._is_ending:
            wait = max(0.0, due - time.monotonic())
            for rank, messages in self._others.receive(wait):
                if messages is None:
                    self._lose(rank)
                for message in messages or ():
                    self._take(message, self._liveness.peers[rank])
            now = time.monotonic()
            if now < due or self._is_ending:
                continue
            # If the process was stopped for a time, the others may have been as well.
            if now - due > self._liveness.timeout / 2:
                self._liveness.forgive(now - due)
            due = now + self._interval
            self._tell(now)

    def _lose(self, rank: int) -> None:
        is_reachable = rank not in self._others.unreachable
        error = self._liveness.lose(rank, is_reachable=is_reachable)
        if error and self._is_elastic:
            os.write(2, f"Elastic Horovod goes on without a rank: {error}\n".encode())
            self._stop()
        else:
            self._conclude(error)

    def _stop(self) -> None:
        if self._rank == 0:
            self._others.send({"is_over": True})
        self._is_ending = True

    def _take(self, message: Message, peer: Peer) -> None:
        if "error" in message:
            self._conclude(message["error"])
        elif "is_over" in message:
            self._is_ending = True
        else:
            position, is_done = Position(*message["position"]), message["is_done"]
            peer.hear(position, is_done=is_done, now=time.monotonic())

    def _tell(self, now: float) -> None:
        """Sends the report of the rank, and checks the reports of the others."""
        position, is_done = self._beat.position, self._is_done
        own = self._liveness.peers[self._rank]
        own.hear(position, is_done=is_done, now=now)
        peers = self._liveness.peers.values()
        all_done = self._rank == 0 and all(peer.is_done for peer in peers)
        if self._has_left or all_done:
            self._stop()
        elif self._failure:
            name = self._liveness.names([own])
            self._others.send({"error": f"{name} failed, {position}: {self._failure}"})
            self._is_ending = True
        else:
            self._others.send({"position": position, "is_done": is_done})
            # Gloo gives up a silent rank after 30 s without its name: the watch must be
            # faster once a collective has failed or the launcher ends the ranks.
            limit = self._liveness.timeout
            if self.is_broken:
                limit = min(limit, max(_SILENCE_SECONDS, 2 * self._interval))
            self._conclude(self._liveness.judge(now, silence_limit=limit))

    def _conclude(self, error: str | None) -> None:
        if error is None or self._is_ending:
            return
        self._is_ending, self._verdict = True, error
        # Without the message rank 0 would only see a closed connection.
        self._others.send({"error": error})


# EX_TEMPFAIL of sysexits.h: the same command may succeed later.
EXIT_CODE = 75


class StoppedError(Exception):
    """A training ended by SIGTERM, with the `error` of its checkpoint or None."""

    def __init__(self, state: tfpipe.State, error: str | None = None) -> None:
        super().__init__(f"SIGTERM ended epoch {state.epoch} after step {state.step}.")
        self.state, self.error = state, error


class Stop:
    """Whether SIGTERM has come to this rank while `listening`: `is_asked`."""

    is_asked = False

    def listening(self) -> AbstractContextManager[bool]:
        """Lets SIGTERM set `is_asked` while the block runs, and do nothing else."""

        def ask(*_: object) -> None:
            self.is_asked = True

        return signals.sigterm_handled(ask)
