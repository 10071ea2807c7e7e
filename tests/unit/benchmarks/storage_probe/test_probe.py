"""The plan for each kind of place, the proof of a state, and joined figures."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks.page_cache import states
from benchmarks.results.other_results import ReadLatency, StorageReading
from benchmarks.storage_probe import probe, reads
from benchmarks.storage_probe.probe import FileFacts, StorageProbe
from benchmarks.storage_probe.probe_files import ProbeFiles
from benchmarks.storage_probe.reads import Job, Workers
from benchmarks.system.mounts import Beneath

_LOCAL = FileFacts(is_remote=False, in_memory=False, is_direct=True, num_pieces=100)


def _planned(
    facts: FileFacts = _LOCAL, *, max_parallel: int = 8
) -> list[StorageReading]:
    planned = [each for group in probe.plan(facts, max_parallel) for each in group]
    assert len({m.way for m in planned}) == len(planned)
    return planned


def _states(what: str, **changes: Any) -> list[tuple[str, int, int]]:
    most = changes.pop("max_parallel", 8)
    planned = _planned(_LOCAL._replace(**changes), max_parallel=most)
    return [
        (m.state, m.num_processes, m.num_threads) for m in planned if m.what == what
    ]


def test_disk_is_read_directly_cold_and_warm() -> None:
    assert _states("sequential") == [("direct", 1, 1), ("warm", 1, 1)]
    assert _states("random") == [("direct", 1, 1), ("warm", 1, 1), ("direct", 1, 8)]
    assert _states("shards") == [
        *(("cold", 1, threads) for threads in (1, 2, 4, 8)),
        *(("cold", processes, 1) for processes in (2, 4, 8)),
        ("warm", 8, 1),
    ]
    assert _states("open") == _states("stat") == [("cold", 1, 1), ("warm", 1, 1)]


def test_cold_stands_for_direct_where_the_file_system_refuses_it() -> None:
    planned = _planned(_LOCAL._replace(is_direct=False))

    assert {m.state for m in planned} == {"cold", "warm"}


def test_memory_is_only_warm_and_a_store_only_remote() -> None:
    not_direct = _LOCAL._replace(is_direct=False)
    memory = _planned(not_direct._replace(in_memory=True))
    store = _planned(not_direct._replace(is_remote=True))

    assert {m.state for m in memory} == {"warm"}
    assert {m.state for m in store} == {"remote"}
    read = {kind for kind in reads.KINDS if kind != "write"}
    assert {m.what for m in memory} == {*read, "shards"}
    assert {m.what for m in store} == {"sequential", "random", "shards", "stat"}
    large = {m.block_bytes for m in store if m.what in ("sequential", "shards")}
    assert large == {4 << 20}, "as a shard cache fetches"


def test_one_thread_at_most() -> None:
    assert _states("random", max_parallel=1) == [("direct", 1, 1), ("warm", 1, 1)]
    assert _states("shards", max_parallel=1) == [("cold", 1, 1), ("warm", 1, 1)]


def test_no_more_threads_than_pieces_read_whole_shards() -> None:
    assert _states("shards", num_pieces=3) == [
        *(("cold", 1, threads) for threads in (1, 2, 3)),
        *(("cold", processes, 1) for processes in (2, 3)),
        ("warm", 3, 1),
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
    one = probe.way("shards", "cold", num_processes=num_processes)

    jobs = probe.jobs(one, _PIECES, None, 2.0, seed=0)

    assert len(jobs) == num_processes
    assert sorted(piece for job in jobs for piece in job.pieces) == sorted(_PIECES)
    assert {(job.kind, job.repeats) for job in jobs} == {("sequential", False)}


def test_processes_of_a_warm_measurement_begin_at_different_pieces() -> None:
    one = probe.way("shards", "warm", num_processes=12)

    jobs = probe.jobs(one, _PIECES, None, 2.0, seed=0)

    assert [job.pieces[0] for job in jobs] == [*_PIECES, *_PIECES[:2]]
    assert all(sorted(job.pieces) == sorted(_PIECES) for job in jobs)
    assert all(job.repeats for job in jobs)


def test_random_reads_have_4_kb_and_go_around_the_cache_if_direct() -> None:
    for state in ("direct", "warm"):
        (job,) = probe.jobs(probe.way("random", state), _PIECES, None, 2.0, seed=0)

        assert (job.kind, job.block_bytes) == ("random", 4096)
        assert job.is_direct == (state == "direct")


def _outcome(start: float, end: float, times: list[int], fetched: int | None) -> Any:
    return {
        "start_ns": int(start * 1e9),
        "end_ns": int(end * 1e9),
        "num_bytes": len(times) * 1_000_000,
        "nanoseconds": np.array(times),
        "storage_bytes": fetched,
    }


def test_figures_of_processes_join() -> None:
    first = _outcome(10.0, 12.0, [1_000_000] * 300, 300_000_000)
    second = _outcome(10.5, 14.0, [9_000_000] * 100, 100_000_000)
    one = probe.way("shards", "cold", num_processes=2)

    found = probe.with_figures(one, [[first, second]], [0.0])

    assert found.seconds == 4.0  # from the first start to the last end
    assert found.megabytes_per_second == 100.0
    assert found.reads_per_second == 100.0
    assert found.latency_seconds == ReadLatency(p50=1e-3, p90=9e-3, p99=9e-3)
    assert found.storage_bytes == 400_000_000
    assert found.is_proven is True


def test_unknown_bytes_of_one_process_leave_the_sum_unknown() -> None:
    outcomes = [_outcome(0, 1, [5], 100), _outcome(0, 1, [5], None)]
    one = probe.way("open", "cold")

    found = probe.with_figures(one, [outcomes], [None])

    assert found.storage_bytes is None
    assert found.megabytes_per_second is None  # an open reads no bytes
    assert found.reads_per_second == 2.0


def test_figures_of_hosts_are_those_of_all_in_the_time_of_the_slowest() -> None:
    """The clocks of two hosts have nothing in common."""
    fast = [_outcome(10.0, 12.0, [1_000] * 300, 300_000_000)]
    slow = [_outcome(9000.0, 9004.0, [1_000] * 100, 100_000_000)]
    one = probe.way("shards", "cold")

    found = probe.with_figures(one, [fast, slow], [0.0, 0.3])

    assert found.seconds == 4.0
    assert found.megabytes_per_second == 100.0
    assert found.megabytes_per_second_per_host == (150.0, 25.0)
    assert (found.resident_fraction, found.is_proven) == (0.3, False)
    warm = probe.with_figures(probe.way("shards", "warm"), [fast, slow], [1.0, 0.3])
    assert (warm.resident_fraction, warm.is_proven) == (0.3, False)


class _Workers(Workers):
    """Stands for the processes: notes what is asked, and refuses to drop caches.

    Args:
        rates: Rate of a reading of shards in MB/s, by its number of threads.
    """

    def __init__(self, rates: Mapping[int, float] | None = None) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._rates = rates or {}

    def run(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        self.asked.append(f"{len(jobs)} {jobs[0].kind}")
        rate = self._rates.get(jobs[0].num_threads, 1.0) / len(jobs) ** 2
        return [_outcome(0, 1 / rate, [1000], 1_000_000) for _ in jobs]

    def act(self, action: Callable[..., Any], files: Sequence[str]) -> Any:
        self.asked.append(action.__name__)
        if action is states.drop_caches:
            raise OSError("Permission denied")
        return {"num_bytes": 100, "resident_bytes": 0}


@pytest.fixture
def place(tmp_path: pathlib.Path) -> ProbeFiles:
    path = tmp_path / "a"
    path.write_bytes(bytes(100))
    return ProbeFiles(
        url=None,
        pieces=[(str(path), 0, 100)] * 64,
        names=[str(path)],
        is_own=False,
        file_system="ext4",
    )


def _probe(place: ProbeFiles, workers: Workers, **changes: Any) -> StorageProbe:
    options = {"seconds": 9.0, "max_parallel": 1, "begin": str, **changes}
    return StorageProbe(files=place, workers=workers, **options)


def test_state_is_made_and_measured_before_each_reading(place: ProbeFiles) -> None:
    workers, begun = _Workers(), list[str]()

    found = list(_probe(place, workers, begin=begun.append).run())

    cold = workers.asked.index("evict")
    assert workers.asked[cold : cold + 3] == ["evict", "measure", "1 sequential"]
    first, last = [i for i, ask in enumerate(workers.asked) if ask == "drop_caches"]
    between = ["drop_caches", "1 open", "drop_caches", "1 stat"]
    assert workers.asked[first : last + 2] == between
    assert "ask for the size of a file, 1 thread, warm" in begun
    (skipped, _) = (m for m in found if m.what == "open")
    assert skipped.skipped == "Only root can make names cold: Permission denied"
    assert skipped.num_reads is None
    shards = [m for m in found if m.what == "shards" and m.state == "cold"]
    assert {(m.resident_fraction, m.is_proven) for m in shards} == {(0.0, True)}


def test_threads_grow_until_two_numbers_gain_nothing(place: ProbeFiles) -> None:
    workers = _Workers({1: 100.0, 2: 180.0, 4: 350.0, 8: 360.0, 16: 340.0, 32: 900.0})

    found = list(_probe(place, workers, max_parallel=64).run())

    rows = [m for m in found if (m.what, m.state) == ("shards", "cold")]
    threads = [m.num_threads for m in rows if m.num_processes == 1]
    assert threads == [1, 2, 4, 8, 16, 8], "the fastest is measured again"
    assert [m.is_again for m in rows if m.num_threads == 8] == [False, True]
    assert probe.best(found) in rows


def test_writes_come_last_and_with_little_room_are_small(place: ProbeFiles) -> None:
    workers = _Workers()
    files = dataclasses.replace(place, write_folder="/room", write_bytes=20 << 20)

    found = list(_probe(files, workers, max_parallel=2).run())

    assert [m.num_threads for m in found if m.what == "write"] == [1, 2]
    alone = list(_probe(files, workers).run())
    assert [m.num_threads for m in alone if m.what == "write"] == [1]
    assert found[-1].what == "write"
    one = probe.way("write", "durable")
    for room, size in ((20 << 20, 5 << 20), (1 << 40, 64 << 20), (1, 1 << 20)):
        files = dataclasses.replace(files, write_bytes=room)
        assert probe._pieces(files, one, 2) == [("/room", 0, size)]


def test_hosts_do_what_all_of_them_can(place: ProbeFiles) -> None:
    def facts(*other: object) -> FileFacts:
        gather = lambda value: [value, other]  # noqa: E731
        return _probe(place, _Workers(), gather=gather).facts()

    assert facts(False, False, 3) == (False, False, False, 3)
    assert facts(False, True, 70).num_pieces == 64
    with pytest.raises(ValueError, match="must be on the same storage on all hosts"):
        facts(True, False, 3)


def test_all_hosts_stop_a_measurement_that_one_host_cannot_do(
    place: ProbeFiles,
) -> None:
    def gather(value: Any) -> list[Any]:
        is_ready = isinstance(value, tuple) and len(value) == 2
        return [value, (None, "The other host says no.") if is_ready else value]

    found = list(_probe(place, _Workers(), gather=gather).run())

    assert {m.skipped for m in found if m.skipped} == {
        *("The other host says no.", "Only root can make names cold: Permission denied")
    }


def test_memory_beneath_a_disk_is_never_cold(place: ProbeFiles) -> None:
    """As ext4 on a loop device on tmpfs, or on zram."""
    files = dataclasses.replace(place, beneath=Beneath(True, "zram0"))
    workers = _Workers()

    found = list(_probe(files, workers).run())

    assert {m.state for m in found} == {"warm"}
    assert "evict" not in workers.asked
