"""python -m benchmarks.storage on a disk, a shared mount and an S3 server.

As root it drops the page cache of this host.
"""

import contextlib
import json
import mmap
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

import tfpipe
from benchmarks.results import tree
from benchmarks.results.other_results import StorageResult
from benchmarks.storage_probe import probe, probe_files, reads
from benchmarks.storage_probe.probe_files import ProbeFiles
from benchmarks.storage_probe.reads import Workers
from benchmarks.system import mounts
from tests.support.processes.warm_python import WarmPython

ROOT = pathlib.Path(__file__).parents[3]
QUICK = ("--seconds=0.1", "--max_parallel=2")


def _run(
    warm_python: WarmPython, *arguments: object
) -> "subprocess.CompletedProcess[str]":
    return warm_python.run("-m", "benchmarks.storage", *arguments)


def _contents(folder: pathlib.Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
    }


def test_shards_of_a_data_set_are_measured_and_stay_as_they_are(
    warm_python: WarmPython, data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    before = _contents(data_dir)

    done = _run(
        *(warm_python, data_dir, *QUICK, f"--report_dir={tmp_path}"),
        "--for_model=resnet50,vgg16",
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert _contents(data_dir) == before
    result = json.loads(done.stdout.splitlines()[-1])
    stored = json.loads(next(tmp_path.glob("*-storage.json")).read_text())
    assert result == stored
    index = tfpipe.TFRecordSource(data_dir, "train").index
    total = sum(s.num_bytes for split in index.splits.values() for s in split)
    assert result["place"]["num_bytes"] == total
    measured = {(m["what"], m["state"]): m for m in result["measurements"]}
    assert {what for what, _ in measured} == {
        *("sequential", "random", "shards", "open", "stat")
    }
    cold, warm = measured["shards", "cold"], measured["shards", "warm"]
    assert (cold["num_bytes"], cold["is_proven"]) == (total, True), "each byte once"
    assert (warm["is_proven"], warm["storage_bytes"]) == (True, 0)
    assert {row["model"] for row in result["feeds"]} == {"resnet50", "vgg16"}
    assert result["sentences"][-1] in done.stdout.splitlines()
    best = probe.best(tree.read(StorageResult, result).measurements)
    assert best is not None
    assert result["megabytes_per_second"] == best.megabytes_per_second
    is_short = any("too short to trust" in text for text in result["sentences"])
    assert is_short == (best.seconds < 0.1)
    assert result["environment"]["hosts"][0]["num_cpus"] == os.cpu_count()


def test_shared_mount_tells_cold_from_warm(
    warm_python: WarmPython, shared_mount_dir: pathlib.Path, data_dir: pathlib.Path
) -> None:
    folder = shutil.copytree(data_dir, shared_mount_dir / "storage-probe")

    done = _run(warm_python, folder, *QUICK)

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["place"]["file_system"].startswith("fuse")
    found = {m["state"]: m for m in result["measurements"] if m["what"] == "shards"}
    assert found["cold"]["resident_fraction"] == 0.0
    assert found["warm"]["resident_fraction"] == 1.0
    assert found["cold"]["is_proven"] is found["warm"]["is_proven"] is True


def test_store_is_read_by_ranges_and_fills_a_cache(
    warm_python: WarmPython,
    s3_folder: str,
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    files = tfpipe.Files(s3_folder)
    for path in filter(pathlib.Path.is_file, data_dir.iterdir()):
        files.upload(path.name, path)

    done = _run(warm_python, s3_folder, *QUICK)
    fill = ("warm", s3_folder, f"--cache_dir={tmp_path}", "--cache_max_gb=0.1")
    filled = [_run(warm_python, *fill) for _ in range(2)]

    for command in (done, *filled):
        assert command.returncode == 0, command.stderr
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(command)
    result = json.loads(done.stdout.splitlines()[-1])
    assert {m["state"] for m in result["measurements"]} == {"remote"}
    assert result["config"]["place"] == s3_folder
    assert result["megabytes_per_second"] > 0
    total = result["place"]["num_bytes"]
    found = [json.loads(command.stdout.splitlines()[-1]) for command in filled]
    assert [one["num_bytes_fetched"] for one in found] == [total, 0]
    assert [one["num_bytes_present"] for one in found] == [total, total]
    source = tfpipe.TFRecordSource(s3_folder, "train")
    for one in found:
        assert one["index_digest"] == source.index_digest != ""
        assert one["tags"]["train"] == source.tags != ""


def test_store_without_a_data_set_is_one_line(
    warm_python: WarmPython, s3_folder: str
) -> None:
    done = _run(warm_python, s3_folder, *QUICK)

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "index.json" in done.stderr


@contextlib.contextmanager
def _started(place: pathlib.Path) -> "Iterator[subprocess.Popen[str]]":
    """A probe with a session of its own, as a terminal's Ctrl-C goes to all of it."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.storage", place, "--seconds=30"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


_BUSY_SECONDS = 0.5
STOPPED = "Error: interrupted. Own files are removed.\n"


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGTERM, (1, STOPPED)),
        (signal.SIGINT, (1, STOPPED)),
        (signal.SIGKILL, (-signal.SIGKILL, "")),
    ],
)
def test_own_files_are_removed_when_stopped(
    tmp_path: pathlib.Path, number: signal.Signals, told: tuple[int, str]
) -> None:
    (tmp_path / "others").write_text("stays")
    with _started(tmp_path) as child:
        while not list(tmp_path.glob("storage-probe-*/large-01")):
            assert child.poll() is None
            time.sleep(0.01)
        os.killpg(child.pid, number)
        _, errors = child.communicate(timeout=60)

    assert (child.returncode, errors) == told
    # After SIGKILL another process removes the files.
    end = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) > 1 and time.monotonic() < end:
        time.sleep(0.01)
    assert [path.name for path in tmp_path.iterdir()] == ["others"]


def test_writing_in_a_data_set_leaves_the_data_set_as_it_is(
    warm_python: WarmPython, data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = shutil.copytree(data_dir, tmp_path / "records")
    before = _contents(folder)

    done = _run(warm_python, folder, *QUICK, "--write", "--json")

    assert done.returncode == 0, done.stderr
    assert _contents(folder) == before
    result = json.loads(done.stdout.splitlines()[-1])
    written = [m for m in result["measurements"] if m["what"] == "write"]
    assert [(m["state"], m["num_threads"]) for m in written] == [
        ("durable", 1),
        ("durable", 2),
    ]
    assert all(m["num_bytes"] % (1 << 20) == 0 for m in written), "whole files"
    rates = [m["megabytes_per_second"] for m in written]
    assert result["write_megabytes_per_second"] == max(rates) > 0
    assert result["config"]["write"] is True


def test_place_that_is_not_writable_is_refused_before_any_work(
    warm_python: WarmPython, data_dir: pathlib.Path
) -> None:
    """Nobody makes a folder in /proc, root neither."""
    done = _run(warm_python, "/proc/self", *QUICK, "--write")

    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert "/proc/" in done.stderr


def test_killed_writer_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    """A worker that still writes may not bring the folder back."""
    with probe_files.own_folder(tmp_path) as folder, Workers() as workers:
        job = reads.Job(
            kind="write",
            pieces=[(str(folder), 0, 3 << 20)],
            seconds=0.2,
            block_bytes=1 << 20,
            num_threads=2,
        )
        (outcome,) = workers.run([job])
        left = sorted(path.name for path in folder.iterdir())
        sizes = {path.stat().st_size for path in folder.iterdir()}

    assert outcome["num_bytes"] == len(outcome["nanoseconds"]) * (3 << 20) > 0
    assert len(left) == 2, "a file a thread, and none half-written"
    assert not [name for name in left if name.endswith(".part")]
    assert sizes == {3 << 20}
    assert not list(tmp_path.iterdir())


def test_folder_that_cannot_be_made_is_an_error_with_its_name(
    tmp_path: pathlib.Path,
) -> None:
    gone = tmp_path / "gone"

    with pytest.raises(FileNotFoundError, match="gone"), probe_files.own_folder(gone):
        pass


def _is_busy(process: psutil.Process) -> bool:
    try:
        return process.cpu_times().user >= _BUSY_SECONDS
    except psutil.NoSuchProcess:  # a child that only looks at the host, and ends
        return False


def test_workers_end_when_stopped(data_dir: pathlib.Path) -> None:
    with _started(data_dir) as child:
        workers: list[psutil.Process] = []
        # So that the worker is within a reading, which takes 30 s.
        while not workers:
            assert child.poll() is None
            workers = [*filter(_is_busy, psutil.Process(child.pid).children())]
            time.sleep(0.01)
        os.killpg(child.pid, signal.SIGINT)
        _, errors = child.communicate(timeout=15)

    assert (child.returncode, errors) == (1, STOPPED)
    assert not psutil.wait_procs(workers, timeout=3)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "DIR_OR_URL must be given: Folder, or URL"),
        (("a", "b"), "Unexpected argument: b."),
        (("warm",), "DIR_OR_URL and --cache_dir must be given."),
        (("warm", "a"), "--cache_dir must be given: Folder of the shard cache"),
        (
            ("warm", "a", "--seconds=1"),
            "--seconds. It is a flag of benchmarks.input and benchmarks.storage.",
        ),
        (
            ("a", "--cache_max_gb=1"),
            "It is a flag of benchmarks.storage warm.",
        ),
        (
            ("warm", "a", "--cache_dir=c", "--num_tasks=2", "--task_index=2"),
            "--task_index must be from 0 to --num_tasks - 1 = 1, got 2.",
        ),
        (("a", "--model=vgg16"), "no flag --model. Did you mean --for_model?"),
        (("a", "--for_model=nonsense"), "--for_model must be one of"),
        (
            ("/no/such/folder",),
            "DIR_OR_URL must be a folder or a URL, got /no/such/folder",
        ),
        (("ftp://host/a",), "ftp"),
        (("s3://bucket/a", "--write"), "--write must have a folder, got s3://bucket/a"),
    ],
)
def test_wrong_arguments_are_one_line(
    warm_python: WarmPython, arguments: tuple[str, ...], message: str
) -> None:
    done = _run(warm_python, *arguments)

    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_read_that_never_comes_back_ends_the_probe(tmp_path: pathlib.Path) -> None:
    """A pipe that nobody writes stands for a file on a dead server."""
    os.mkfifo(tmp_path / "dead")
    job = reads.Job(kind="open", pieces=[(str(tmp_path / "dead"), 0, 0)], seconds=0.1)
    begin = time.monotonic()

    with (
        pytest.raises(TimeoutError, match="did not come back"),
        Workers(patience=1.0) as workers,
    ):
        workers.run([job])

    assert time.monotonic() - begin < 20


def test_two_processes_read_each_their_share(tmp_path: pathlib.Path) -> None:
    pieces = []
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(os.urandom(300_000))
        pieces.append((str(tmp_path / name), 0, 300_000))
    one = probe.way("shards", "cold", num_processes=2)
    jobs = probe.jobs(one, pieces, None, 60.0, seed=0)

    with Workers() as workers:
        found = workers.run(jobs)
        again = workers.run(jobs[:1])

    assert [outcome["num_bytes"] for outcome in found] == [600_000, 300_000]
    assert again[0]["num_bytes"] == 600_000
    with pytest.raises(OSError, match="gone"), Workers() as workers:
        workers.run([reads.Job(kind="random", pieces=[("gone", 0, 9)], seconds=1)])


def test_state_that_the_kernel_denies_is_not_proven(tmp_path: pathlib.Path) -> None:
    """A file that another process keeps mapped cannot be evicted."""
    path = tmp_path / "mapped"
    path.write_bytes(os.urandom(1 << 20))
    place = ProbeFiles(
        url=None,
        pieces=[(str(path), 0, 1 << 20)],
        names=[str(path)],
        is_own=False,
        file_system=mounts.filesystem(path),
    )
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
        Workers() as workers,
    ):
        assert sum(view[::4096]) >= 0  # every page is in use
        found = list(
            probe.StorageProbe(
                files=place, workers=workers, seconds=0.1, max_parallel=1, begin=str
            ).run()
        )

    cold = [m for m in found if (m.what, m.state) == ("shards", "cold")]
    assert {m.is_proven for m in cold} == {False}
