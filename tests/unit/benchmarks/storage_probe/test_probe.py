"""The plan for each kind of place, the proof of a state, and joined figures."""

import pathlib
from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.storage_probe import latencies, probe
from benchmarks.storage_probe.probe import Measurement
from benchmarks.storage_probe.probe_files import ProbeFiles
from benchmarks.storage_probe.reads import Job
from benchmarks.storage_probe.workers import Workers

_LOCAL: dict[str, Any] = {
    "is_remote": False,
    "is_direct": True,
    "in_memory": False,
    "max_parallel": 8,
    "num_pieces": 100,
}


def _states(what: str, **changes: Any) -> list[tuple[str, int, int]]:
    plan = probe.plan(**{**_LOCAL, **changes})
    assert len(set(plan)) == len(plan)
    return [(m.state, m.num_processes, m.num_threads) for m in plan if m.what == what]


def test_disk_is_read_directly_cold_and_warm() -> None:
    assert _states("sequential") == [("direct", 1, 1), ("warm", 1, 1)]
    assert _states("random") == [("direct", 1, 1), ("warm", 1, 1), ("direct", 1, 8)]
    shards = [("cold", 1, 1), ("cold", 1, 4), ("cold", 1, 8), ("cold", 4, 1)]
    assert _states("shards") == [*shards, ("cold", 8, 1), ("warm", 8, 1)]
    assert _states("open") == _states("stat") == [("cold", 1, 1), ("warm", 1, 1)]


def test_cold_stands_for_direct_where_the_file_system_refuses_it() -> None:
    states = {m.state for m in probe.plan(**{**_LOCAL, "is_direct": False})}

    assert states == {"cold", "warm"}


def test_memory_is_only_warm_and_a_store_only_remote() -> None:
    memory = probe.plan(**{**_LOCAL, "is_direct": False, "in_memory": True})
    store = probe.plan(**{**_LOCAL, "is_direct": False, "is_remote": True})

    assert {m.state for m in memory} == {"warm"}
    assert {m.state for m in store} == {"remote"}
    assert {m.what for m in memory} == {*probe.reads.KINDS, "shards"}
    assert {m.what for m in store} == {"sequential", "random", "shards", "stat"}


def test_one_thread_at_most() -> None:
    assert _states("random", max_parallel=1) == [("direct", 1, 1), ("warm", 1, 1)]
    assert _states("shards", max_parallel=1) == [("cold", 1, 1), ("warm", 1, 1)]


def test_no_more_threads_than_pieces_read_whole_shards() -> None:
    assert _states("shards", num_pieces=3) == [
        *(("cold", 1, 1), ("cold", 1, 3), ("cold", 3, 1), ("warm", 3, 1))
    ]
    assert ("direct", 1, 8) in _states("random", num_pieces=3)


@pytest.mark.parametrize(
    ("state", "resident", "fetched", "wanted"),
    [
        ("cold", 0.0, 1000, True),
        ("cold", 0.2, 1000, False),
        ("cold", None, 1000, True),  # mincore tells only the owner
        ("cold", None, 500, False),
        ("cold", None, None, None),
        ("cold", None, 0, None),  # a file system in user space may count nothing
        ("warm", 1.0, 0, True),
        ("warm", 0.5, 0, False),
        ("warm", None, 0, None),
        ("direct", None, 1000, True),
        ("direct", None, 100, False),
        ("direct", None, 0, None),
        ("remote", None, 0, None),
    ],
)
def test_proof(
    state: str, resident: float | None, fetched: int | None, wanted: bool | None
) -> None:
    found = probe.is_proven(state, resident=resident, num_bytes=1000, fetched=fetched)

    assert found is wanted


_PIECES = [(f"file-{number}", 0, 100 + number) for number in range(10)]


@pytest.mark.parametrize("num_processes", [1, 3, 10])
def test_processes_share_all_pieces_of_a_cold_measurement(num_processes: int) -> None:
    one = Measurement(what="shards", state="cold", num_processes=num_processes)

    jobs = probe.jobs(one, _PIECES, None, 2.0, seed=0)

    assert len(jobs) == num_processes
    assert sorted(piece for job in jobs for piece in job.pieces) == sorted(_PIECES)
    assert {(job.kind, job.repeats) for job in jobs} == {("sequential", False)}


def test_processes_of_a_warm_measurement_begin_at_different_pieces() -> None:
    one = Measurement(what="shards", state="warm", num_processes=12)

    jobs = probe.jobs(one, _PIECES, None, 2.0, seed=0)

    assert [job.pieces[0] for job in jobs] == [*_PIECES, *_PIECES[:2]]
    assert all(sorted(job.pieces) == sorted(_PIECES) for job in jobs)
    assert all(job.repeats for job in jobs)


def test_random_reads_have_4_kb_and_go_around_the_cache_if_direct() -> None:
    for state in ("direct", "warm"):
        (job,) = probe.jobs(
            Measurement(what="random", state=state), _PIECES, None, 2.0, seed=0
        )

        assert (job.kind, job.block_bytes) == ("random", 4096)
        assert job.is_direct == (state == "direct")


def _outcome(start: float, end: float, reads: list[int], fetched: int | None) -> Any:
    return {
        "start_ns": int(start * 1e9),
        "end_ns": int(end * 1e9),
        "num_bytes": len(reads) * 1_000_000,
        "num_reads": len(reads),
        "counts": latencies.count(reads).tolist(),
        "storage_bytes": fetched,
    }


def test_figures_of_processes_join() -> None:
    first = _outcome(10.0, 12.0, [1_000_000] * 300, 300_000_000)
    second = _outcome(10.5, 14.0, [9_000_000] * 100, 100_000_000)
    one = Measurement(what="shards", state="cold", num_processes=2)

    found = probe.figures(one, [first, second], 0.0)

    assert found["seconds"] == 4.0  # from the first start to the last end
    assert found["megabytes_per_second"] == 100.0
    assert found["reads_per_second"] == 100.0
    assert found["latency_seconds"]["p50"] == pytest.approx(1e-3, rel=0.01)
    assert found["latency_seconds"]["p90"] == pytest.approx(9e-3, rel=0.01)
    assert found["storage_bytes"] == 400_000_000
    assert found["is_proven"] is True


def test_unknown_bytes_of_one_process_leave_the_sum_unknown() -> None:
    outcomes = [_outcome(0, 1, [5], 100), _outcome(0, 1, [5], None)]
    one = Measurement(what="open", state="cold")

    found = probe.figures(one, outcomes, None)

    assert found["storage_bytes"] is None
    assert found["megabytes_per_second"] is None  # an open reads no bytes
    assert found["reads_per_second"] == 2.0


class _Workers(Workers):
    """Stands for the processes: notes what is asked, and refuses to drop caches."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def run(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        self.asked.append(f"{len(jobs)} {jobs[0].kind}")
        return [_outcome(0, 1, [1000], 1_000_000) for _ in jobs]

    def act(self, action: str, files: Sequence[str]) -> dict[str, Any]:
        self.asked.append(action)
        if action == "drop_caches":
            raise OSError("Permission denied")
        return {"num_bytes": 100, "resident_bytes": 0}


def test_state_is_made_and_measured_before_each_reading(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(100))
    place = ProbeFiles(
        url=None,
        pieces=[(str(path), 0, 100)],
        names=[str(path)],
        is_own=False,
        file_system="ext4",
    )
    workers, begun = _Workers(), list[str]()

    found = list(
        probe.run(place, workers, seconds=9, max_parallel=1, begin=begun.append)
    )

    cold = workers.asked.index("evict")
    assert workers.asked[cold : cold + 3] == ["evict", "measure", "1 sequential"]
    assert workers.asked[-4:] == ["drop_caches", "1 open", "drop_caches", "1 stat"]
    assert begun[-1] == "ask for the size of a file, 1 thread, warm"
    (skipped, _) = (m for m in found if m["what"] == "open")
    assert skipped["skipped"] == "Only root can make names cold: Permission denied"
    assert "num_reads" not in skipped
    (shards, _) = (m for m in found if m["what"] == "shards")
    assert (shards["resident_fraction"], shards["is_proven"]) == (0.0, True)
