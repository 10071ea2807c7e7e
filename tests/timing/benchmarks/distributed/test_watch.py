"""benchmarks.distributed.watch with ranks that are threads of this process."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.distributed import rank_links
from benchmarks.distributed.ranks import Ranks
from benchmarks.distributed.watch import Beat, watched

TIMEOUT = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThreadRanks(Ranks):
    """Ranks that are threads of this process."""

    barrier: threading.Barrier
    box: dict[int, Any]

    def gather(self, value: Any) -> list[Any]:
        self.box[self.rank] = value
        self.barrier.wait(10)
        values = [self.box[rank] for rank in range(self.num_ranks)]
        self.barrier.wait(10)
        return values


def _ranks(num_ranks: int) -> list[ThreadRanks]:
    barrier, box = threading.Barrier(num_ranks), dict[int, Any]()
    return [
        ThreadRanks(rank=rank, num_ranks=num_ranks, barrier=barrier, box=box)
        for rank in range(num_ranks)
    ]


def _run(*loops: Callable[[Beat], None]) -> list[list[str]]:
    """Runs a loop on each rank; returns the errors that ended it or that it raised."""
    said: list[list[str]] = [[] for _ in loops]

    def run(ranks: Ranks, loop: Callable[[Beat], None]) -> None:
        try:
            watch = watched(ranks, TIMEOUT, end=said[ranks.rank].append)
            with watch as beat, beat.loop():
                loop(beat)
        except Exception as error:
            said[ranks.rank].append(f"raised {error}")

    threads = [
        threading.Thread(target=run, args=(ranks, loop), daemon=True)
        for ranks, loop in zip(_ranks(len(loops)), loops, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return said


def _steps(num_steps: int, seconds: float) -> Callable[[Beat], None]:
    def loop(beat: Beat) -> None:
        for step in range(num_steps):
            beat.fed()
            time.sleep(seconds)
            beat(step + 1)

    return loop


def _host() -> str:
    return rank_links.socket.gethostname()


def test_normal_end_is_no_loss_even_if_one_rank_is_much_later() -> None:
    # The first is done 1.6 timeouts before the last.
    assert _run(_steps(2, 0.1), _steps(9, 0.2), _steps(1, 0.0)) == [[], [], []]


def test_single_rank_is_not_watched() -> None:
    with watched(Ranks(), 0.01) as beat:
        time.sleep(0.1)
        beat(1)

    assert not [t for t in threading.enumerate() if t.name == "watch"]


@pytest.mark.parametrize("hungry", [0, 1, 2])
def test_rank_without_data_is_named_by_all(hungry: int) -> None:
    def starve(beat: Beat) -> None:
        beat(7)
        time.sleep(1.5 * TIMEOUT)

    def wait(beat: Beat) -> None:
        beat(7)
        beat.fed()
        time.sleep(1.5 * TIMEOUT)

    said = _run(*[starve if rank == hungry else wait for rank in range(3)])

    expected = f"Rank {hungry} ({_host()}) of 3 got no batch for 1 s (--rank_timeout), "
    for (error,) in said:
        assert error.startswith(expected + "after step 7")


@pytest.mark.parametrize("guilty", [0, 1, 2])
def test_error_of_one_rank_ends_the_others_with_its_message(guilty: int) -> None:
    def fail(beat: Beat) -> None:
        beat(3)
        raise ValueError("disk on fire\nmore")

    said = _run(*[fail if rank == guilty else _steps(8, 0.1) for rank in range(3)])

    assert said.pop(guilty) == ["raised disk on fire\nmore"]
    words = f"Rank {guilty} ({_host()}) of 3 failed, after step 3: disk on fire"
    assert said == [[words], [words]]


def test_error_of_the_same_kind_on_every_rank_stays_its_own() -> None:
    together = threading.Barrier(3)

    def fail(beat: Beat) -> None:
        together.wait(10)  # a rank that is later is told of the first one
        raise ValueError("no such folder")

    assert _run(fail, fail, fail) == [["raised no such folder"]] * 3


def test_error_of_a_broken_collective_is_replaced_by_its_cause() -> None:
    """A rank whose collective failed says which rank was lost."""
    broken = type("OpError", (Exception,), {"__module__": "tensorflow.errors"})

    def follow(beat: Beat) -> None:
        beat(3)
        time.sleep(0.2)
        raise broken("connection reset")

    def fail(beat: Beat) -> None:
        beat(2)
        time.sleep(0.5)
        raise ValueError("disk on fire")

    said = _run(follow, fail)

    assert said[0][0].endswith("failed, after step 2: disk on fire")


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("is_elastic", [False, True])
def test_broken_connection_is_a_loss_unless_elastic_horovod_handles_it(
    lost: int, is_elastic: bool
) -> None:
    said: list[str] = []
    ranks = _ranks(2)

    def vanish() -> None:
        others, _ = rank_links.connect(ranks[lost])
        time.sleep(0.3)
        others.close(0.1)

    thread = threading.Thread(target=vanish)
    thread.start()
    with watched(
        ranks[1 - lost], TIMEOUT, is_elastic=is_elastic, end=said.append
    ) as beat:
        _steps(8, 0.1)(beat)
    thread.join()

    if is_elastic:
        assert said == []
    else:
        (error,) = said
        assert error.startswith(
            f"Rank {lost} ({_host()}) of 2 ended without an error message"
        )


def test_change_of_ranks_ends_an_elastic_watch_without_an_error() -> None:
    change = type("HostsUpdatedInterrupt", (RuntimeError,), {})
    said: list[str] = []

    def run(ranks: Ranks) -> None:
        watch = watched(ranks, TIMEOUT, is_elastic=True, end=said.append)
        with contextlib.suppress(change), watch as beat:
            beat(1)
            time.sleep(0.2 * ranks.rank)
            raise change

    threads = [threading.Thread(target=run, args=(ranks,)) for ranks in _ranks(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert said == []


def test_stranger_is_not_taken_for_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of another program connects with other words, and closes at once."""
    reach = rank_links._reach

    def reach_after_a_stranger(offer: Any, rank: int) -> Any:
        address = ("127.0.0.1", offer.port)
        for words in (b"GET / HTTP/1.1\r\n", b""):
            with rank_links.socket.create_connection(address) as sock:
                sock.sendall(words)
        return reach(offer, rank)

    monkeypatch.setattr(rank_links, "_reach", reach_after_a_stranger)

    assert _run(_steps(2, 0.0), _steps(2, 0.0)) == [[], []]


def test_rank_0_out_of_reach_is_an_error_on_every_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rank_links, "_addresses", lambda: ["127.0.0.1"])
    monkeypatch.setattr(rank_links, "_reach", lambda offer, rank: None)
    begin = time.monotonic()

    said = _run(_steps(1, 0.0), _steps(1, 0.0))

    # No rank waits for a rank that has given up.
    assert time.monotonic() - begin < rank_links._CONNECT_SECONDS / 3
    for (error,) in said:
        assert "must reach rank 0 on one of 127.0.0.1, port" in error
        assert "rank 1 did not" in error
