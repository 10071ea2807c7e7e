"""benchmarks.page_cache.states: files in memory, in and out.

The call in a child process is replaced by a plain call; tests/system starts a child.
"""

import json
import mmap
import os
import pathlib
import threading

import pytest

from benchmarks.distributed.ranks import Ranks
from benchmarks.page_cache import states
from benchmarks.page_cache.states import CacheStatus, PageCache, trial
from benchmarks.system import child_process, mounts, probes
from benchmarks.system.machine import Machine

SIZES = (300_000, 4096, 1, 0)  # odd ends, a page, a byte, nothing
TOTAL = sum(SIZES)


@pytest.fixture(autouse=True)
def _without_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(action, files, *, seconds):
        return action(files)

    monkeypatch.setattr(child_process, "call", call)


@pytest.fixture
def files(tmp_path: pathlib.Path) -> list[str]:
    """Files on disk, whose pages are in memory because they were just written."""
    paths = []
    for number, size in enumerate(SIZES):
        path = tmp_path / f"shard {number}"
        path.write_bytes(os.urandom(size))
        paths.append(str(path))
    if mounts.beneath(tmp_path).is_memory:
        pytest.skip("a file system in memory cannot be emptied")
    return paths


def _prepare(state, files, ranks=None, **options):
    return states.prepare(
        state, files, ranks or Ranks(), **{"drops_all": False, **options}
    )


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
    monkeypatch.setattr(states.OpenFiles, "resident_bytes", lambda *_: next(held))
    monkeypatch.setattr(states.time, "sleep", pauses.append)

    states.evict(files)

    assert pauses == [0.0, 0.01, 0.05]


def test_a_page_that_was_read_is_in_memory(files):
    states.evict(files)
    looked = states.OpenFiles(files)
    with open(files[0], "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no readahead
        os.pread(file.fileno(), 1, 5 * mmap.PAGESIZE)
        held = looked.resident_bytes()
        os.pread(file.fileno(), 1, SIZES[0] - 1)
        with_last = looked.resident_bytes()

    assert held == looked.resident_bytes(6 * mmap.PAGESIZE) == mmap.PAGESIZE
    assert looked.resident_bytes(5 * mmap.PAGESIZE) == 0
    assert with_last == mmap.PAGESIZE + SIZES[0] % mmap.PAGESIZE


def test_parts_of_a_large_file_add_up(files, monkeypatch):
    monkeypatch.setattr(states, "_PIECE_BYTES", 16 * mmap.PAGESIZE)

    assert states.measure(files)["resident_bytes"] == TOTAL


def test_the_kernel_counts_what_a_cold_file_gives_and_a_warm_one_does_not(files):
    held = {}
    for state in ("cold", "warm"):
        (status,) = _prepare(state, files)
        before = probes.own_storage_bytes()
        for path in files:
            pathlib.Path(path).read_bytes()
        held[state] = probes.own_storage_bytes() - before
        # If it did not count, the bytes from storage could prove nothing.
        assert status.counts_reads is True
        assert status.keeps_pages is True

    assert held["cold"] >= TOTAL
    assert held["warm"] == 0


@pytest.mark.parametrize("is_in", [True, False])
def test_the_trial_of_the_kernels_counter_leaves_the_page_cache_as_it_was(files, is_in):
    if not is_in:
        states.evict(files)

    (status,) = _prepare("as_is", files)

    assert status.counts_reads is True
    assert states.measure(files)["resident_bytes"] == (TOTAL if is_in else 0)


def test_a_file_on_tmpfs_cannot_be_cold():
    shm = pathlib.Path("/dev/shm")
    if mounts.filesystem(shm) != "tmpfs":
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


class _Third(Ranks):
    """Rank 3 of 4, alone on its machine."""

    def __init__(self):
        super().__init__(rank=3, num_ranks=4)

    def gather(self, value):
        others = PageCache(Machine("other")) if isinstance(value, PageCache) else None
        return [others] * 3 + [value]


def test_a_missing_file_is_an_error_that_names_it(files):
    with pytest.raises(ValueError, match=r"--cache=cold: host .* \(rank 3\).*nothing"):
        _prepare("cold", [*files, "/nothing"], _Third())
    (status,) = _prepare("as_is", ["/nothing"])
    assert "No such file" in status.error
    with pytest.raises(ValueError, match="must be one of as_is, warm, cold, got 'hot'"):
        _prepare("hot", files)


def test_a_mapped_file_is_not_cold(files, monkeypatch):
    monkeypatch.setattr(states, "_PAUSES", (0.0,))
    with (
        open(files[0], "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
    ):
        assert sum(view[:: mmap.PAGESIZE]) > 0  # touches each page
        with pytest.raises(ValueError, match=r"% of the files are still in memory"):
            _prepare("cold", files)


def test_a_host_that_may_not_drop_its_caches_is_cold_all_the_same(files, monkeypatch):
    def call(action, files, *, seconds):
        if action is states.drop_caches:
            raise OSError("[Errno 30] Read-only file system")
        return action(files)

    monkeypatch.setattr(child_process, "call", call)
    (status,) = _prepare("cold", files, drops_all=True)

    assert status.actions["drop_caches"] == "[Errno 30] Read-only file system"
    assert (status.resident_bytes, status.error) == (0, "")


def test_residency_of_files_that_others_own_is_unknown(files, monkeypatch):
    monkeypatch.setattr(states, "may_see_residency", lambda path: False)

    found = states.measure(files)

    assert (found["num_bytes"], found["resident_bytes"]) == (TOTAL, None)
    assert "only to a process that owns it" in found["remark"]


def test_caches_are_dropped_by_the_kernels_file(tmp_path, monkeypatch):
    monkeypatch.setattr(states, "_DROP_CACHES", tmp_path / "drop_caches")

    states.drop_caches([])

    assert (tmp_path / "drop_caches").read_text() == "3"


@pytest.mark.parametrize(
    ("caches", "leaders"),
    [
        (["a1", "a1", "b1", "b1"], [0, 2]),
        (["a1", "b1", "a1", "b1"], [0, 1]),  # ranks in any order
        (["a1", "a1", "a1", "a1"], [0]),
        (["a1", "a2", "a1", "a2"], [0, 1]),  # two mounts of one machine
    ],
)
def test_one_rank_a_page_cache_does_it_and_all_ranks_know(
    caches, leaders, files, monkeypatch
):
    """Four ranks as threads that meet in gather; all hosts have one name.

    The page caches are pretended: those of two leaders here are one in truth, and the
    trial of one leader reads what the other has just evicted.
    """
    everyone, told, values, acted = threading.Barrier(4), {}, {}, {}
    number = threading.local()

    def here(_):
        machine, device = caches[number.rank]
        return PageCache(Machine(machine, "localhost"), int(device))

    def act(action, *_, **__):
        acted.setdefault(number.rank, []).append(action.__name__)
        return _figures(resident_bytes=0)() if action is states.measure else {}

    monkeypatch.setattr(PageCache, "of_files", here)
    monkeypatch.setattr(child_process, "call", act)

    class Rank(Ranks):
        def gather(self, value):
            values[self.rank] = value
            everyone.wait(60)
            gathered = [values[n] for n in range(4)]
            everyone.wait(60)
            return gathered

    def work(rank):
        number.rank = rank
        ranks = Rank(rank=rank, num_ranks=4)
        told[rank] = states.prepare("cold", files, ranks, drops_all=False)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [status.rank for status in told[0]] == leaders
    assert acted == {rank: ["evict", "measure"] for rank in leaders}
    assert told[0] == told[1] == told[2] == told[3]


def _figures(**changed):
    figures = {"num_bytes": TOTAL, "resident_bytes": TOTAL, "remark": ""}
    return lambda *_, **__: {**figures, **changed}


@pytest.mark.parametrize(
    ("resident", "refused"), [(0, True), (3000, True), (TOTAL // 2, False)]
)
def test_warm_is_refused_where_filling_leaves_nothing(
    resident, refused, files, monkeypatch
):
    """A FUSE mount that drops the pages of a file that is opened."""
    monkeypatch.setattr(child_process, "call", _figures(resident_bytes=resident))

    if refused:
        with pytest.raises(ValueError, match=r"--cache=warm: .* drops the pages of a"):
            _prepare("warm", files)
    else:
        assert _prepare("warm", files)[0].resident_bytes == resident


def test_a_status_is_for_json_and_names_no_host():
    cache = PageCache(Machine("boot5", "n7"))
    status = CacheStatus(
        rank=2, cache=cache, actions={}, num_bytes=100, resident_bytes=25
    ).as_json()

    assert json.loads(json.dumps(status)) == status
    assert (status["resident_fraction"], status["rank"]) == (0.25, 2)
    assert "n7" not in str(status)


def test_looking_opens_nothing(files, monkeypatch):
    looked = states.OpenFiles(files)
    states.evict(files)
    monkeypatch.delattr("builtins.open")

    assert looked.resident_bytes() == 0
    assert looked.num_bytes == TOTAL


def test_the_trial_tells_what_a_file_system_does(files, monkeypatch):
    assert trial(files) == {
        "counts_reads": True,
        "keeps_pages": True,
        "beneath": mounts.beneath(files[0]).text,
        "is_memory": False,
    }
    held = {"resident": iter([0, 0, 5, 0])}
    # Out, evicted, in after the read, out after the file was opened anew.
    monkeypatch.setattr(
        states.OpenFiles, "resident_bytes", lambda *_: next(held["resident"])
    )
    assert trial(files)["keeps_pages"] is False
