"""benchmarks.system.residency, page_cache: files in memory, in and out.

The child process of `page_cache.run` is replaced by a call; tests/system starts it.
"""

import json
import mmap
import os
import pathlib
import threading

import pytest

from benchmarks.system import page_cache, residency
from benchmarks.system.residency import HostStatus

SIZES = (300_000, 4096, 1, 0)  # odd ends, a page, a byte, nothing
TOTAL = sum(SIZES)


@pytest.fixture(autouse=True)
def _without_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(action, files, *, timeout_seconds):
        return page_cache.perform(action, [os.path.abspath(path) for path in files])

    monkeypatch.setattr(page_cache, "run", run)


@pytest.fixture
def files(tmp_path: pathlib.Path) -> list[str]:
    """Files on disk, whose pages are in memory because they were just written."""
    paths = []
    for number, size in enumerate(SIZES):
        path = tmp_path / f"shard {number}"
        path.write_bytes(os.urandom(size))
        paths.append(str(path))
    if page_cache.filesystem(tmp_path) in ("tmpfs", "ramfs"):
        pytest.skip("a file system in memory cannot be emptied")
    return paths


def _alone(value):
    return [value]


def _prepare(state, files, **options):
    options = {"host_wide": False, "timeout_seconds": 60.0, **options}
    return residency.prepare(state, files, _alone, **options)


def test_files_leave_memory_and_come_back(files):
    (before,) = _prepare("as_is", files)
    (cold,) = _prepare("cold", files)
    (warm,) = _prepare("warm", files)
    (after,) = _prepare("as_is", files)

    held = [status.resident_bytes for status in (before, cold, warm, after)]
    assert held == [TOTAL, 0, TOTAL, TOTAL]
    assert {status.num_bytes for status in (before, cold, warm)} == {TOTAL}
    assert cold.actions == {"evict": "done", "measure": "done"}
    assert warm.actions == {"fill": "done", "measure": "done"}
    assert (cold.resident_fraction, warm.resident_fraction) == (0.0, 1.0)
    assert (cold.error, cold.remark) == ("", "")


def test_evicting_is_tried_again_while_the_kernel_works_on_a_page(files, monkeypatch):
    held, pauses = iter([TOTAL, 4096, 0]), []
    monkeypatch.setattr(
        page_cache, "measure", lambda files: {"resident_bytes": next(held)}
    )
    monkeypatch.setattr(page_cache.time, "sleep", pauses.append)

    page_cache.evict(files)

    assert pauses == [0.0, 0.01, 0.05]


def test_a_page_that_was_read_is_in_memory(files):
    page_cache.evict(files)
    with open(files[0], "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no readahead
        os.pread(file.fileno(), 1, 5 * mmap.PAGESIZE)
        held = page_cache.resident_bytes(file.fileno(), SIZES[0])
        os.pread(file.fileno(), 1, SIZES[0] - 1)
        with_last = page_cache.resident_bytes(file.fileno(), SIZES[0])

    assert held == mmap.PAGESIZE
    assert with_last == mmap.PAGESIZE + SIZES[0] % mmap.PAGESIZE


def test_mapped_parts_of_a_large_file_add_up(files, monkeypatch):
    monkeypatch.setattr(page_cache, "_MAPPED_BYTES", 16 * mmap.PAGESIZE)

    assert page_cache.measure(files)["resident_bytes"] == TOTAL


def test_the_kernel_counts_what_a_cold_file_gives_and_a_warm_one_does_not(files):
    held = {}
    for state in ("cold", "warm"):
        (status,) = _prepare(state, files)
        before = page_cache._bytes_read()
        for path in files:
            pathlib.Path(path).read_bytes()
        held[state] = page_cache._bytes_read() - before
        # If it did not count, the bytes from storage could prove nothing.
        assert status.counts_reads is True

    assert held["cold"] >= TOTAL
    assert held["warm"] == 0


@pytest.mark.parametrize("is_in", [True, False])
def test_the_trial_of_the_kernels_counter_leaves_the_page_cache_as_it_was(files, is_in):
    if not is_in:
        page_cache.evict(files)

    (status,) = _prepare("as_is", files)

    assert status.counts_reads is True
    assert page_cache.measure(files)["resident_bytes"] == (TOTAL if is_in else 0)


def test_a_file_on_tmpfs_cannot_be_cold():
    shm = pathlib.Path("/dev/shm")
    if page_cache.filesystem(shm) != "tmpfs":
        pytest.skip("there is no tmpfs at /dev/shm")
    path = shm / f"tfpipe-test-{os.getpid()}"
    path.write_bytes(b"x")
    try:
        with pytest.raises(ValueError, match="is on tmpfs: memory is its storage"):
            _prepare("cold", [str(path)])
        (warm,) = _prepare("warm", [str(path)])
    finally:
        path.unlink()

    assert (warm.resident_fraction, warm.counts_reads) == (1.0, None)


def test_a_missing_file_is_an_error_that_names_it(files):
    with pytest.raises(ValueError, match=r"--cache=cold: host .* \(rank 3\).*nothing"):
        _prepare("cold", [*files, "/nothing"], rank=3)
    (status,) = _prepare("as_is", ["/nothing"])
    assert "No such file" in status.error
    with pytest.raises(ValueError, match="must be one of as_is, warm, cold, got 'hot'"):
        _prepare("hot", files)


def test_a_mapped_file_is_not_cold(files, monkeypatch):
    monkeypatch.setattr(page_cache, "_PAUSES", (0.0,))
    with (
        open(files[0], "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
    ):
        assert sum(view[:: mmap.PAGESIZE]) > 0  # touches each page
        with pytest.raises(ValueError, match=r"% of the files are still in memory"):
            _prepare("cold", files)


def test_a_host_that_may_not_drop_its_caches_is_cold_all_the_same(files, monkeypatch):
    real = page_cache.run

    def run(action, files, **options):
        if action == "drop_caches":
            return {"error": "[Errno 30] Read-only file system"}
        return real(action, files, **options)

    monkeypatch.setattr(page_cache, "run", run)
    (status,) = _prepare("cold", files, host_wide=True)

    assert status.actions["drop_caches"] == "[Errno 30] Read-only file system"
    assert (status.resident_bytes, status.error) == (0, "")


def test_residency_of_files_that_others_own_is_unknown(files, monkeypatch):
    monkeypatch.setattr(page_cache, "may_see_residency", lambda path: False)

    found = page_cache.measure(files)

    assert (found["num_bytes"], found["resident_bytes"]) == (TOTAL, None)
    assert "only to a process that owns it" in found["remark"]


def test_caches_are_dropped_by_the_kernels_file(tmp_path, monkeypatch):
    monkeypatch.setattr(page_cache, "_DROP_CACHES", tmp_path / "drop_caches")

    assert page_cache.drop_caches([]) == {}
    assert (tmp_path / "drop_caches").read_text() == "3"


def test_one_rank_a_host_does_it_and_all_ranks_know(files):
    """Four ranks on two hosts, as threads that meet in gather."""
    values, everyone, told = {}, threading.Barrier(4), {}

    def rank(number):
        def gather(value):
            values[number] = value
            everyone.wait(60)
            return [values[n] for n in range(4)]

        told[number] = residency.prepare(
            "cold", files, gather, rank=number, local_rank=number % 2, host_wide=False
        )

    threads = [threading.Thread(target=rank, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [status.rank for status in told[0]] == [0, 2]
    assert told[0] == told[1] == told[2] == told[3]


def test_a_status_is_for_json_and_names_no_host():
    status = HostStatus(
        rank=2, host="n7", actions={}, num_bytes=100, resident_bytes=25
    ).as_json()

    assert json.loads(json.dumps(status)) == status
    assert (status["resident_fraction"], status["rank"]) == (0.25, 2)
    assert "n7" not in str(status)


MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
tmpfs /dev/shm tmpfs rw 0 0
server:/set /mnt/my\\040data nfs4 rw,vers=4.2 0 0
/dev/old /mnt/twice xfs rw 0 0
overlay /mnt/twice overlay rw 0 0
"""


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("/", "ext4"),
        ("/dev/shm", "tmpfs"),
        ("/mnt/my data", "nfs4"),
        ("/mnt/twice", "overlay"),
        ("/mnt", ""),
    ],
)
def test_parse_filesystem(point, expected):
    assert page_cache.parse_filesystem(MOUNTS, point) == expected


def test_a_mount_point_is_above_what_is_on_it():
    assert page_cache.mount_point("/proc/self/io") == "/proc"
    assert page_cache.filesystem("/proc/self/io") == "proc"
