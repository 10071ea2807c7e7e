"""studies.advice.limits: cores and reads of real processes."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

from benchmarks.system import page_cache
from studies.advice import limits

_READ = """
import os, sys
print(sorted(os.sched_getaffinity(0)), len(open(sys.argv[1], "rb").read()))
"""
_BYTES = 2_000_000


def _groups() -> set[str]:
    return {path.name for path in limits._BLKIO.glob("tfpipe-study-*")}


def test_a_process_has_the_cores_and_the_rate_that_it_is_given(
    tmp_path: pathlib.Path,
) -> None:
    core = min(os.sched_getaffinity(0))
    file = tmp_path / "file"
    file.write_bytes(os.urandom(_BYTES))
    os.sync()  # pages that are not on disk yet cannot be evicted
    command = [sys.executable, "-c", _READ, str(file)]
    limit = None if limits.why_not(tmp_path) else _BYTES // 2

    page_cache.evict([str(file)])
    start = time.monotonic()
    with limits.limited(tmp_path, limit) as group:
        printed = limits.run(command, cores=[core], group=group, time_limit=60)
        seconds = time.monotonic() - start
        assert (group is None) == (limit is None)

    assert printed.split("]")[0] == f"[{core}"
    assert printed.split()[-1] == str(_BYTES)
    assert not {name for name in _groups() if name.endswith(f"-{os.getpid()}")}
    if limit is None:
        pytest.skip(f"The rate is not limited: {limits.why_not(tmp_path)}")
    assert seconds >= 1.5  # 2 s at the limit; nothing but the limit makes it so slow


def test_a_process_that_fails_or_hangs_is_an_error_and_leaves_nothing() -> None:
    with pytest.raises(OSError, match=r"ended with 3: .*broken"):
        limits.run(
            [
                sys.executable,
                "-c",
                "import sys; print('broken', file=sys.stderr); sys.exit(3)",
            ],
            cores=[min(os.sched_getaffinity(0))],
            group=None,
            time_limit=60,
        )
    mark = f"hang-{os.getpid()}"
    with pytest.raises(OSError, match="took longer than 1 s"):
        limits.run(
            ["sh", "-c", f"sleep 1234 & echo {mark}; wait"],
            cores=[min(os.sched_getaffinity(0))],
            group=None,
            time_limit=1,
        )
    there = subprocess.run(["ps", "ax"], capture_output=True, text=True, check=True)
    assert mark not in there.stdout


def test_files_that_are_kept_cold_leave_the_page_cache(tmp_path: pathlib.Path) -> None:
    if why := limits.why_not(tmp_path):
        pytest.skip(f"The folder is not on a disk that can be limited: {why}")
    file = tmp_path / "file"
    file.write_bytes(bytes(_BYTES))
    os.sync()
    deadline = time.monotonic() + 30

    with limits.kept_cold([str(file)]):
        while page_cache.measure([str(file)])["resident_bytes"]:
            assert time.monotonic() < deadline, "The file stays in memory."
            time.sleep(0.05)


def test_a_folder_that_is_on_no_disk_cannot_be_limited() -> None:
    proc = pathlib.Path("/proc")
    with (
        pytest.raises(OSError, match="/proc must be on a disk"),
        limits.limited(proc, 1000),
    ):
        pass

    assert not {name for name in _groups() if name.endswith(f"-{os.getpid()}")}
