"""A job reads every byte once, or until the time is over, in order or at random."""

import ctypes
import itertools
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.storage_probe import reads
from benchmarks.storage_probe.reads import Job, Piece

Seen = list[tuple[int, int]]  # inode and offset of each read


@pytest.fixture
def pieces(tmp_path: pathlib.Path) -> list[Piece]:
    """Three pieces of two files; the second file does not end at a block."""
    sizes = {"a": 8192, "b": 5000}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(os.urandom(size))
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    return [(a, 0, 4096), (a, 4096, 8192), (b, 0, 5000)]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Collects the reads that a job does."""
    found: Seen = []
    real = os.preadv

    def preadv(file: int, buffers: Any, offset: int) -> int:
        found.append((os.fstat(file).st_ino, offset))
        return real(file, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    return found


def _read(kind: str, pieces: list[Piece], **options: Any) -> dict[str, Any]:
    job = Job(kind=kind, pieces=pieces, seconds=60, block_bytes=1024, **options)
    _, outcome = reads.timed(job)
    return outcome


@pytest.mark.parametrize("num_threads", [1, 3])
def test_sequential_reads_each_byte_once(
    pieces: list[Piece], seen: Seen, num_threads: int
) -> None:
    found = _read(reads.SEQUENTIAL, pieces, num_threads=num_threads)

    assert found["num_bytes"] == 8192 + 5000
    assert len(found["nanoseconds"]) == 8 + 5
    assert len(set(seen)) == len(seen) == 13
    assert found["end_ns"] > found["start_ns"]
    if num_threads == 1:
        assert seen == sorted(seen, key=seen.index)
        assert [offset for _, offset in seen[:8]] == list(range(0, 8192, 1024))


@pytest.mark.parametrize("num_threads", [1, 3])
def test_random_reads_each_whole_block_once(
    pieces: list[Piece], seen: Seen, num_threads: int
) -> None:
    found = _read(reads.RANDOM, pieces, num_threads=num_threads, seed=1)

    a, b = (os.stat(name).st_ino for name, _, _ in pieces[1:])
    wanted = [
        *((a, at * 1024) for at in range(8)),
        *((b, at * 1024) for at in range(4)),
    ]
    assert sorted(seen) == sorted(wanted)
    assert seen != wanted
    assert found["num_bytes"] == 12 * 1024


def test_order_is_that_of_the_seed(pieces: list[Piece], seen: Seen) -> None:
    orders = []
    for seed in (1, 1, 2):
        _read(reads.RANDOM, pieces, seed=seed)
        orders.append(tuple(seen))
        seen.clear()

    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("kind", [reads.SEQUENTIAL, reads.RANDOM])
def test_time_ends_a_job_that_repeats(
    pieces: list[Piece], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    ticks = itertools.count(step=500_000_000)  # each look at the clock is 0.5 s later
    monkeypatch.setattr(reads.time, "perf_counter_ns", lambda: next(ticks))

    found = _read(kind, pieces, repeats=True)

    # Start, then two looks a read, until one says 60 s.
    assert found["nanoseconds"].tolist() == [500_000_000] * 60


@pytest.mark.parametrize(("kind", "call"), [(reads.OPEN, "open"), (reads.STAT, "stat")])
def test_names_are_opened_or_asked_for_their_size(
    pieces: list[Piece], monkeypatch: pytest.MonkeyPatch, kind: str, call: str
) -> None:
    asked = []
    real: Callable[..., Any] = getattr(os, call)
    monkeypatch.setattr(os, call, lambda *a: asked.append(a[0]) or real(*a))
    names = [(name, 0, 0) for name in dict.fromkeys(name for name, _, _ in pieces)]

    found = _read(kind, names)

    assert asked == [name for name, _, _ in names]
    assert (len(found["nanoseconds"]), found["num_bytes"]) == (2, 0)


def test_error_of_a_thread_is_the_error_of_the_job(
    pieces: list[Piece], tmp_path: pathlib.Path
) -> None:
    gone = [*pieces, (str(tmp_path / "gone"), 0, 100)]

    with pytest.raises(FileNotFoundError, match="gone"):
        _read(reads.SEQUENTIAL, gone, num_threads=2)
    with pytest.raises(FileNotFoundError, match="gone"):
        _read(reads.RANDOM, gone)


def test_files_in_a_folder_of_a_store_are_read_by_ranges(
    pieces: list[Piece], tmp_path: pathlib.Path
) -> None:
    """A plain folder stands for the store here; tests/system has a real one."""
    names = [(pathlib.Path(name).name, start, stop) for name, start, stop in pieces]

    found = _read(reads.SEQUENTIAL, names, url=str(tmp_path))
    at_random = _read(reads.RANDOM, names, url=str(tmp_path), num_threads=2)
    sizes = _read(reads.STAT, names, url=str(tmp_path))

    assert (found["num_bytes"], len(found["nanoseconds"])) == (8192 + 5000, 13)
    assert at_random["num_bytes"] == 12 * 1024
    assert len(sizes["nanoseconds"]) == 3


@pytest.mark.parametrize("size", [1, 4096, 1 << 20, 3 << 20])
def test_memory_begins_at_a_huge_page(size: int) -> None:
    memory = reads.whole_memory(size)

    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert address % (2 << 20) == 0
    assert len(memory) == size
    assert not any(memory[::997])


def test_a_thread_that_fails_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> int:
        raise OSError("the server is gone")

    threads = [itertools.repeat(lambda: 1), iter([fails])]
    monkeypatch.setattr(reads, "_reads_of", lambda job, files: threads)
    job = reads.timed(Job(kind=reads.OPEN, pieces=[], seconds=600.0, num_threads=2))

    assert next(job) == {}
    with pytest.raises(OSError, match="the server is gone"):
        next(job)
