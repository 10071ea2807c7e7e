"""Processes that fill one cache, at the same time or one after the other."""

import json
import pathlib
import signal
import subprocess
import time

import pytest

import tfpipe
from tests.support.data.cached import DECODE, Note, as_list, make, noted
from tests.support.processes.warm_python import kill


def fill(data_dir, directory, calls, rank, num_ranks, delay):
    """A process that fills a cache for one epoch and leaves what it got."""
    note = Note(calls, delay)
    cache = tfpipe.Cache("disk", directory)
    pipeline = make(
        data_dir, tfpipe.Map(*DECODE, note), cache, rank=rank, num_ranks=num_ranks
    )
    pathlib.Path(f"{calls}.{rank}").write_text(repr(as_list(pipeline.build())))


_FILL = f"import json, sys; from {__name__} import fill; fill(*json.loads(sys.argv[1]))"


@pytest.fixture
def start(warm_python):
    """Starts `fill` in a process."""

    def start(data_dir, directory, *arguments):
        values = json.dumps([str(data_dir), str(directory), *arguments])
        return subprocess.Popen([*warm_python.command, "-c", _FILL, values])

    return start


@pytest.mark.parametrize("num_ranks", [2, 1])
def test_processes_fill_one_cache_at_the_same_time(
    start, data_dir, tmp_path, num_ranks
):
    """As two ranks, or as two runs that make the same records."""
    calls, directory = str(tmp_path / "calls"), tmp_path / "caches"
    processes = [
        start(data_dir, directory, calls, number % num_ranks, num_ranks, 0.01)
        for number in range(2)
    ]

    assert [process.wait() for process in processes] == [0, 0]
    for rank in range(num_ranks):
        plain = make(data_dir, tfpipe.Map(*DECODE), rank=rank, num_ranks=num_ranks)
        got = pathlib.Path(f"{calls}.{rank}").read_text()
        assert got == repr(as_list(plain.build()))
    assert set(noted(calls)) == set(range(24))
    count = len(noted(calls))
    plain = make(data_dir, tfpipe.Map(*DECODE))
    cache = tfpipe.Cache("disk", directory)
    again = make(data_dir, tfpipe.Map(*DECODE, Note(calls, 0.01)), cache)
    assert as_list(again.build()) == as_list(plain.build())
    assert len(noted(calls)) == count


def test_killed_process_leaves_what_it_kept(start, data_dir, tmp_path):
    calls, directory = str(tmp_path / "calls"), tmp_path / "caches"
    process = start(data_dir, directory, calls, 0, 1, 0.2)
    while len(noted(calls)) < 17:
        assert process.poll() is None
        time.sleep(0.05)
    kill(process)
    before = noted(calls)
    assert process.returncode == -signal.SIGKILL

    cache = tfpipe.Cache("disk", directory)
    pipeline = make(data_dir, tfpipe.Map(*DECODE, Note(calls, 0.2)), cache)
    result = as_list(pipeline.build())

    assert result == as_list(make(data_dir, tfpipe.Map(*DECODE)).build())
    # Only windows that were not kept whole are made again: at most two of them.
    assert 0 < 24 - (len(noted(calls)) - len(before)) <= 17
    assert len(noted(calls)) - len(before) < 24
