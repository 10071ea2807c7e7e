"""Liveness: lost and late ranks of a run, and silent workers of a service.

In: the reports of ranks about their steps, and the times of the reports; or the
addresses of the workers of a tf.data service. Out: an error text, or None; or
sentences. Nothing here waits or communicates. Times are seconds of `time.monotonic`.
"""

import dataclasses
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple


class Position(NamedTuple):
    """How far a rank is.

    Attributes:
        loop: Number of beginnings and ends of loops over steps: odd within a loop, even
            before, between and after loops, where no step is due.
    """

    step: int = 0
    is_fed: bool = False
    loop: int = 1

    @property
    def is_in_loop(self) -> bool:
        """Whether a step is due."""
        return self.loop % 2 == 1

    @property
    def order(self) -> tuple[int, int, bool]:
        """Sorts positions: a rank of a smaller position is behind."""
        return self.loop, self.step, self.is_fed

    def __str__(self) -> str:
        if self.step:
            return f"after step {self.step}"
        if self.is_in_loop:
            return "before the first step ended"
        return "before the first step"


@dataclasses.dataclass(kw_only=True)
class Peer:
    """The last report of a rank.

    Attributes:
        heard: Time of the last report.
        moved: Time of the last report with a new position.
    """

    rank: int
    host: str
    heard: float
    moved: float
    position: Position = dataclasses.field(default_factory=Position)
    is_done: bool = False

    def hear(self, position: Position, *, is_done: bool, now: float) -> None:
        """Records a report of the rank."""
        if position != self.position:
            self.position, self.moved = position, now
        self.heard, self.is_done = now, is_done


@dataclasses.dataclass(kw_only=True)
class Liveness:
    """The reports that a rank has.

    Rank 0 has reports of all ranks. Another rank has the reports of rank 0 and its own.

    Attributes:
        timeout: Seconds that a rank may stay at the same position.
    """

    peers: dict[int, Peer]
    num_ranks: int
    timeout: float

    @property
    def is_all_done(self) -> bool:
        """Whether every known rank has finished all its steps."""
        return all(peer.is_done for peer in self.peers.values())

    def forgive(self, seconds: float) -> None:
        """Leaves out seconds in which the process could not receive reports."""
        for peer in self.peers.values():
            peer.heard += seconds
            peer.moved += seconds

    def judge(self, now: float, *, silence_limit: float) -> str | None:
        """Returns an error with the lost or late ranks; None without such ranks.

        Args:
            silence_limit: Seconds without a report after which a rank is lost.
        """
        silent = [
            peer
            for peer in self.peers.values()
            if not peer.is_done and now - peer.heard > silence_limit
        ]
        if silent:
            return self._silence(silent, now)
        # Only a process with reports of all ranks can tell a late rank.
        return self._lateness(now) if len(self.peers) == self.num_ranks else None

    def _lateness(self, now: float) -> str | None:
        # Only the ranks farthest behind delay the run: the others wait for them.
        running = [peer for peer in self.peers.values() if not peer.is_done]
        if not running:
            return None
        last = min(
            (peer.position for peer in running), key=lambda position: position.order
        )
        if not last.is_in_loop:
            return None
        late = [
            p for p in running if p.position == last and now - p.moved > self.timeout
        ]
        if not late:
            return None
        # A late rank without reports makes the others late.
        if silent := [p for p in late if now - p.heard > self.timeout / 2]:
            return self._silence(silent, now)
        limit = f"for {self.timeout:g} s (--rank_timeout), {late[0].position}"
        if late[0].position.is_fed:
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
        if not is_reachable:
            return (
                f"{self.names([peer])} cannot be reached; its last report was "
                f"{peer.position}. Check the network between the hosts, and that the "
                "host is up."
            )
        return (
            f"{self.names([peer])} ended without an error message; its last "
            f"report was {peer.position}. Look at its own output, or at the kernel's "
            "log if memory ran out."
        )

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


@dataclasses.dataclass
class SilentWorkers:
    """Finds the workers without an answer for some time.

    Args:
        limit: Seconds without an answer until a worker is silent.
    """

    limit: float
    is_answering: Callable[[str], bool]
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._answered: dict[str, float] = {}
        self._silent: set[str] = set()

    def look(self, addresses: Collection[str]) -> list[str]:
        """Asks the workers; returns sentences about silent workers and workers back."""
        sentences = []
        for address in addresses:
            is_alive, now = self.is_answering(address), self.clock()
            if is_alive or address not in self._answered:
                self._answered[address] = now
            silence = now - self._answered[address]
            if is_alive and address in self._silent:
                self._silent.remove(address)
                sentences.append(f"The worker at {address} answers again.")
            elif silence >= self.limit and address not in self._silent:
                self._silent.add(address)
                sentences.append(
                    f"The worker at {address} has not answered for {silence:.0f} "
                    "seconds. Epochs of which it has records cannot end without it: "
                    f"start it again with --address={address}, or end their trainers "
                    "and this service."
                )
        return sentences
