"""How far the ranks of a run are, and which of them holds it up.

In: what ranks say of themselves, and when. Out: an error in words, or None. Nothing
here waits or talks; times are of `time.monotonic`, in seconds.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """How far a rank is: steps that are done, and whether it has the next batch."""

    step: int = 0
    is_fed: bool = False

    def __str__(self) -> str:
        return f"after step {self.step}" if self.step else "before the first step ended"


@dataclasses.dataclass(kw_only=True)
class Peer:
    """What is known of a rank.

    Attributes:
        rank: Its number.
        host: Where it runs.
        heard: When it was last heard of.
        moved: When it was last heard to be elsewhere than before.
        place: How far it was then.
        is_done: Whether it has come to the end.
    """

    rank: int
    host: str
    heard: float
    moved: float
    place: Place = dataclasses.field(default_factory=Place)
    is_done: bool = False

    def hear(self, place: Place, *, is_done: bool, now: float) -> None:
        """Takes its own word for where it is."""
        if place != self.place:
            self.place, self.moved = place, now
        self.heard, self.is_done = now, is_done


@dataclasses.dataclass(kw_only=True)
class Progress:
    """What one rank knows of the run: rank 0 of all, another of itself and rank 0.

    Attributes:
        peers: By rank.
        num_ranks: Of the run.
        timeout: Seconds that a rank may stay where it is.
    """

    peers: dict[int, Peer]
    num_ranks: int
    timeout: float

    @property
    def is_all_done(self) -> bool:
        """Whether every known rank has come to the end."""
        return all(peer.is_done for peer in self.peers.values())

    def forgive(self, seconds: float) -> None:
        """Does not count a time in which this process could not listen."""
        for peer in self.peers.values():
            peer.heard += seconds
            peer.moved += seconds

    def judge(self, now: float, *, silence_limit: float) -> str | None:
        """Which of the known ranks is lost or holds the run up; None while none does.

        Args:
            now: The time.
            silence_limit: Seconds without a word after which a rank is lost.
        """
        silent = [
            peer
            for peer in self.peers.values()
            if not peer.is_done and now - peer.heard > silence_limit
        ]
        if silent:
            return self._silence(silent, now)
        # Who is late can be said only of all of them.
        return self._lateness(now) if len(self.peers) == self.num_ranks else None

    def _lateness(self, now: float) -> str | None:
        # Only those farthest behind hold the run up: others wait for them or go on.
        running = [peer for peer in self.peers.values() if not peer.is_done]
        last = min((peer.place for peer in running), default=None)
        late = [p for p in running if p.place == last and now - p.moved > self.timeout]
        if not late:
            return None
        # One that says nothing either is the reason why the others are late.
        if silent := [p for p in late if now - p.heard > self.timeout / 2]:
            return self._silence(silent, now)
        limit = f"for {self.timeout:g} s (--rank_timeout), {late[0].place}"
        if late[0].place.is_fed:
            return (
                f"{self.names(late)} made no step {limit}, with a batch at hand. Raise "
                "--rank_timeout if steps take that long."
            )
        return (
            f"{self.names(late)} got no batch {limit}. See whether its storage "
            "answers; raise --rank_timeout if batches take that long."
        )

    def lose(self, rank: int) -> str | None:
        """What to say of a rank whose connection broke; None if it was at the end."""
        peer = self.peers[rank]
        # Rank 0 stays until it has told the others that all are done.
        if peer.is_done and rank:
            return None
        return (
            f"{self.names([peer])} ended without a word, last heard of {peer.place}. "
            "Its own output says why, or the kernel's log if memory ran out."
        )

    def names(self, chosen: Sequence[Peer]) -> str:
        """Ranks as messages name them."""
        ranks = ", ".join(f"{peer.rank} ({peer.host})" for peer in chosen)
        return f"Rank {ranks} of {self.num_ranks}"

    def _silence(self, silent: Sequence[Peer], now: float) -> str:
        return (
            f"{self.names(silent)} gave no sign of life for "
            f"{now - silent[0].heard:.1f} s, last heard of {silent[0].place}: it is "
            "stopped, or its host is out of reach."
        )
