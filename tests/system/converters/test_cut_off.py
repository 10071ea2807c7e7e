"""Conversions in processes of their own that are cut off, or meet each other."""

import io
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import PIL.Image
import pytest

from converters import verify
from tests.support.data.trees import (
    JOB_X,
    JOB_Y,
    JobDigests,
    convert,
    digests,
    make_tree,
)

SHARDS = 7

# Converts, and ends or stops itself at one of its renames.
_SCRIPT = """
import fcntl, json, os, pathlib, sys
from tests.support.data.trees import convert
from tfpipe import cli

raw_dir, folder, options, number, signal, lock = json.loads(sys.argv[1])
replace, left = os.replace, iter(range(number))

def end_itself(*arguments):
    if next(left, None) is None:
        if not os.path.exists(f"{folder}-{number}"):
            open(f"{folder}-{number}", "w").close()
            os.kill(os.getpid(), signal)
    replace(*arguments)

os.replace = end_itself
if not lock:
    fcntl.flock = lambda *arguments: None
convert(pathlib.Path(raw_dir), pathlib.Path(folder), **options)
"""
_NEVER = 10_000


def _start(
    raw_dir: pathlib.Path,
    folder: pathlib.Path,
    options: dict[str, Any],
    *,
    at: int = _NEVER,
    number: int = signal.SIGKILL,
    lock: bool = True,
) -> "subprocess.Popen[str]":
    """Starts a conversion in a process that gets a signal before one of its renames."""
    values = json.dumps([str(raw_dir), str(folder), options, at, number, lock])
    command = [sys.executable, "-c", _SCRIPT, values]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def _kill(
    raw_dir: pathlib.Path, folder: pathlib.Path, at: int, **options: object
) -> None:
    process = _start(raw_dir, folder, options, at=at)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors


@pytest.fixture
def stopped(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> Iterator["subprocess.Popen[str]"]:
    """The second task of job X, stopped after its first shard."""
    options = JOB_X | {"task_index": 1, "num_tasks": 2}
    process = _start(raw_dir, tmp_path / "out", options, at=5, number=signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    yield process
    process.kill()
    process.wait()
    process.stderr.close()


def test_another_job_leaves_a_stopped_task_alone(
    raw_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    stopped: "subprocess.Popen[str]",
    job_digests: JobDigests,
) -> None:
    out = tmp_path / "out"

    with pytest.raises(ValueError, match="Another conversion is writing to"):
        convert(raw_dir, out, overwrite=True, task_index=0, num_tasks=2, **JOB_Y)
    stopped.send_signal(signal.SIGCONT)
    assert stopped.wait() == 0
    convert(raw_dir, out, task_index=0, num_tasks=2, **JOB_X)

    assert digests(out) == job_digests["X"]


def test_jobs_are_not_mixed_even_where_locks_do_not_work(
    raw_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    stopped: "subprocess.Popen[str]",
    job_digests: JobDigests,
) -> None:
    """Some network file systems are mounted without locks."""
    out, options = tmp_path / "out", JOB_Y | {"overwrite": True, "num_tasks": 2}
    first = _start(raw_dir, out, options | {"task_index": 0}, lock=False)
    assert first.wait() == 0

    stopped.send_signal(signal.SIGCONT)
    told = stopped.stderr.read()
    stopped.wait()
    second = _start(raw_dir, out, options | {"task_index": 1}, lock=False)
    second.wait()

    assert stopped.returncode == 1
    assert "was removed by another process" in told
    assert digests(out) == job_digests["Y"]


def test_unfinished_files_of_killed_tasks_are_removed_and_of_running_ones_not(
    raw_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    stopped: "subprocess.Popen[str]",
    job_digests: JobDigests,
) -> None:
    out, options = tmp_path / "out", JOB_X | {"num_tasks": 2}
    _kill(raw_dir, out, 0, **options, task_index=0)
    assert len(list(out.glob(".converting/**/*.part"))) == 3

    convert(raw_dir, out, task_index=0, **options)

    assert len(list(out.glob(".converting/**/*.part"))) == 1
    stopped.send_signal(signal.SIGCONT)
    assert stopped.wait() == 0
    assert digests(out) == job_digests["X"]


def test_interrupted_overwrite_is_no_success_of_a_run_without_it(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path, job_digests: JobDigests
) -> None:
    out = tmp_path / "out"
    convert(raw_dir, out, **JOB_X)
    _kill(raw_dir, out, 5, overwrite=True, **JOB_X)

    with pytest.raises(ValueError, match=r"already holds a data set.*an unfinished"):
        convert(raw_dir, out, **JOB_X)

    assert convert(raw_dir, out, overwrite=True, **JOB_X)["write_seconds"] > 0
    assert digests(out) == job_digests["X"]


def test_image_edited_after_a_kill_while_publishing_is_noticed(
    tmp_path: pathlib.Path,
) -> None:
    raw_dir, out = make_tree(tmp_path / "raw", num_images=8), tmp_path / "out"
    options = {"num_train_shards": 2}
    _kill(raw_dir, out, 12, **options)
    assert list(out.glob("labels.txt"))  # publishing was about to begin
    path = raw_dir / "train" / "n01443537" / "n01443537_5.JPEG"
    path.write_bytes(path.read_bytes()[:-3] + b"\x01\xff\xd9")
    os.utime(path, ns=(1 << 62, 1 << 62))

    with pytest.raises(ValueError, match="already holds a data set"):
        convert(raw_dir, out, **options)

    convert(raw_dir, out, overwrite=True, **options)
    config = verify.VerifyOptions(
        data_dir=str(out), level="source", input_dir=str(raw_dir), num_workers=1
    )
    assert not verify.verify(config).num_faults


def _catalog_size(raw_dir: pathlib.Path, folder: pathlib.Path) -> int:
    convert(raw_dir, folder, num_train_shards=12)
    return (folder / "catalog.parquet").stat().st_size


_TIGHT_SCRIPT = """
import pathlib, resource, signal, sys
from tests.support.data.trees import convert

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    convert(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), num_train_shards=12)
except OSError as error:
    sys.exit(str(error))
"""


def test_full_disk_while_the_catalog_is_made_is_one_line_and_can_be_gone_on_from(
    tmp_path: pathlib.Path,
) -> None:
    """A limit on the size of a file stands for a full disk."""
    raw_dir = make_tree(tmp_path / "raw", num_images=12)
    for number, path in enumerate(sorted(raw_dir.glob("train/*/*"))):
        path.write_bytes(_tiny_jpeg(number))
    size = _catalog_size(raw_dir, tmp_path / "expected")
    largest = max(p.stat().st_size for p in (tmp_path / "expected").glob("*-of-*"))
    assert largest + 300 < size
    arguments = [raw_dir, tmp_path / "out", str(size - 100)]

    done = subprocess.run(
        [sys.executable, "-c", _TIGHT_SCRIPT, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )

    assert "catalog.parquet cannot be made" in done.stderr
    assert done.stderr.count("\n") == 1
    convert(raw_dir, tmp_path / "out", num_train_shards=12)
    assert digests(tmp_path / "out") == digests(tmp_path / "expected")


def _tiny_jpeg(number: int) -> bytes:
    out = io.BytesIO()
    PIL.Image.new("L", (8, 8), number).save(out, "JPEG")
    return out.getvalue()


# The query for duplicates takes hours; SIGTERM comes while it runs.
_TERMINATED_SCRIPT = """
import os, pathlib, signal, sys, time
from converters.jobs import duplicates
from converters.options import shared
from tests.support.data.trees import convert
from tfpipe import cli

raw_dir, folder = map(pathlib.Path, sys.argv[1:])
many = "range(1000000000)"
duplicates._GROUPS = f"SELECT $catalog, sum(i * j) FROM {many} a(i), {many} b(j)"
if not os.fork():
    while not list(folder.glob(".converting/**/catalog.parquet")):
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(os.getppid(), signal.SIGTERM)
    os._exit(0)
work = lambda options: int(not convert(raw_dir, folder))
command = shared.command(shared.WritingOptions, work)
sys.exit(cli.call((command,), [f"--output_dir={folder}"]))
"""


def test_sigterm_while_the_catalog_is_made_is_one_line(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TERMINATED_SCRIPT, raw_dir, tmp_path / "out"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Error: interrupted. Complete shards are kept. Run the same command again to "
        "go on.\n"
    )
    assert convert(raw_dir, tmp_path / "out")["write_seconds"] == 0


# The second task ends its shards while the first one, which has found that they are
# missing, is still about to return.
_TOGETHER_SCRIPT = """
import os, pathlib, select, sys
from converters.engines import processes
from converters.jobs import work_dir
from tests.support.data.trees import convert
from tfpipe import cli

raw_dir, folder = map(pathlib.Path, sys.argv[1:])
(look, looked), (end, ended) = os.pipe(), os.pipe()
completed, run = work_dir.completed, processes.run

def look_slowly(plans, folder, **options):
    found = completed(plans, folder, **options)
    if len(plans) == 2:
        os.write(looked, b"x")
        select.select([end], [], [], 0.5)  # until the other has ended, if it does
    return found

def run_late(*arguments, **options):
    os.read(look, 1)
    return run(*arguments, **options)

children = []
for task in range(2):
    if not (child := os.fork()):
        if task == 0:
            os.close(ended)
            work_dir.completed = look_slowly
        else:
            processes.run = run_late
        convert(raw_dir, folder, num_train_shards=2, task_index=task, num_tasks=2)
        os._exit(0)
    children.append(child)
os.close(ended)
print([os.waitpid(child, 0)[1] for child in children])
"""


def test_last_of_two_tasks_that_end_together_finishes(tmp_path: pathlib.Path) -> None:
    raw_dir, out = make_tree(tmp_path / "raw", num_images=4), tmp_path / "out"

    done = subprocess.run(
        [sys.executable, "-c", _TOGETHER_SCRIPT, raw_dir, out],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    assert done.stdout == "[0, 0]\n"
    assert (out / "index.json").exists()
    assert not (out / ".converting").exists()


@pytest.fixture
def half_published(raw_dir: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """Y, which X was to replace; the kill came after some shards were moved."""
    out = tmp_path / "out"
    convert(raw_dir, out, **JOB_Y)
    before = SHARDS * 3 + 3  # the shards, their fragments and markers; three documents
    _kill(raw_dir, out, before + SHARDS + 9, overwrite=True, **JOB_X)
    assert not (out / "index.json").exists()
    assert 0 < len(list(out.glob(".converting/*/*-of-0000?"))) < SHARDS
    return out


def test_verify_takes_no_half_published_folder_for_shards_of_another_tool(
    half_published: pathlib.Path,
) -> None:
    with pytest.raises(ValueError, match="was cut off while its files were published"):
        verify.verify(
            verify.VerifyOptions(data_dir=str(half_published), write_index=True)
        )


def _lose_shard(out: pathlib.Path) -> None:
    next(out.glob(".converting/*/*-of-0000?")).unlink()


def _empty_journal(out: pathlib.Path) -> None:
    next(out.glob(".converting/*/publish.json")).write_text("")


@pytest.mark.parametrize(
    ("damage", "lost"), [(_lose_shard, "train-0000"), (_empty_journal, "publish.json")]
)
def test_publishing_that_cannot_be_ended_is_refused_and_can_be_given_up(
    raw_dir: pathlib.Path,
    half_published: pathlib.Path,
    job_digests: JobDigests,
    damage: Callable[[pathlib.Path], None],
    lost: str,
) -> None:
    damage(half_published)
    before = digests(half_published)

    with pytest.raises(OSError, match=f"{lost}.* is missing"):
        convert(raw_dir, half_published, **JOB_X)

    assert digests(half_published) == before
    if damage is _lose_shard:
        convert(raw_dir, half_published, overwrite=True, **JOB_X)
        assert digests(half_published) == job_digests["X"]
    else:  # no file says which data set each file belongs to
        with pytest.raises(ValueError, match="got other files"):
            convert(raw_dir, half_published, overwrite=True, **JOB_X)


def test_new_index_that_was_lost_costs_no_old_data_set(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path, job_digests: JobDigests
) -> None:
    """With --nofsync, a power loss left the journal but not the new index."""
    out = tmp_path / "out"
    convert(raw_dir, out, **JOB_X)
    _kill(raw_dir, out, SHARDS * 3 + 2, overwrite=True, **JOB_X)
    (job_dir,) = out.glob(".converting/job-*")
    (job_dir / "index.json").unlink()
    old = ["index.json", *sorted(path.name for path in out.glob("*-of-*"))]
    new = [path.name for path in job_dir.glob("*-of-0000?")]
    (job_dir / "publish.json").write_text(json.dumps({"remove": old, "move": new}))

    with pytest.raises(OSError, match=r"index\.json is missing"):
        convert(raw_dir, out, **JOB_X)
    # After it removed the lost data set.
    _kill(raw_dir, out, 1, overwrite=True, **JOB_X)
    assert _digests_of_data(out) == job_digests["X"]

    assert convert(raw_dir, out, overwrite=True, **JOB_X)["write_seconds"] > 0
    assert digests(out) == job_digests["X"]


def _digests_of_data(out: pathlib.Path) -> dict[str, str]:
    found = digests(out)
    return {name: found[name] for name in found if not name.startswith(".")}


def test_another_job_ends_what_was_half_published_before_anything_else(
    raw_dir: pathlib.Path,
    half_published: pathlib.Path,
    job_digests: JobDigests,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ValueError, match="already holds a data set"):
        convert(raw_dir, half_published, seed=3)

    assert "Ending a conversion to" in capsys.readouterr().err
    assert digests(half_published) == job_digests["X"]
