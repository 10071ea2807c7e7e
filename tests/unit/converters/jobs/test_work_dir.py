"""converters.jobs.work_dir: whose working folder it is, and what of it is complete."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from converters.engines import locks
from converters.inputs.ilsvrc import Image
from converters.jobs import output, plan, replace, work_dir, write_shard
from tfpipe.shards import index

DESCRIPTION = {"command": "c", "options": {"seed": 0, "num_shards": {"train": 2}}}


def _open(output_dir: pathlib.Path, **changes: object) -> object:
    options = {"task": 0, "restart": False, **changes}
    description = options.pop("description", DESCRIPTION)
    return work_dir.open_work_dir(output_dir, description, **options)


def test_same_job_finds_what_it_left(tmp_path: pathlib.Path) -> None:
    with _open(tmp_path) as folder:
        (folder / "train-00000-of-00002").write_bytes(b"x")

    with _open(tmp_path) as folder:
        assert (folder / "train-00000-of-00002").exists()


def test_other_job_is_explained_and_never_mixed(tmp_path: pathlib.Path) -> None:
    with _open(tmp_path) as folder:
        (folder / "train-00000-of-00002").write_bytes(b"x")
    other = {"command": "c", "options": {"seed": 1, "num_shards": {"train": 3}}}

    with (
        pytest.raises(
            ValueError,
            match=r"options\.num_shards\.train was 2, is 3; options\.seed was 0, is 1",
        ),
        _open(tmp_path, description=other),
    ):
        pass

    with _open(tmp_path, description=other, restart=True) as folder:
        assert not (folder / "train-00000-of-00002").exists()


def test_task_that_runs_is_not_run_twice(tmp_path: pathlib.Path) -> None:
    with (
        _open(tmp_path),
        _open(tmp_path, task=1),
        pytest.raises(ValueError, match="Another conversion is writing to"),
        _open(tmp_path),
    ):
        pass


def test_lock_of_a_killed_process_is_free(tmp_path: pathlib.Path) -> None:
    code = (
        "import os, pathlib, sys; from converters import work\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "with work.open_work_dir(folder, {}, task=0, restart=False):\n"
        "    os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=False)

    with _open(tmp_path, description={}) as folder:
        assert folder == work_dir.job_dir(tmp_path, work_dir.identity({}))


def _finish_shard(folder: pathlib.Path, name: str, content: bytes) -> None:
    path = folder / name
    path.write_bytes(content)
    written = write_shard.Written(
        split="train",
        shard=index.Shard(name=name, num_records=1, num_bytes=3, digest="d"),
        decisions={"kept": 1},
        changes=[],
        rejects=[],
        num_source_bytes=2,
        psnr=[],
        num_rewritten=0,
        num_bytes_saved=0,
        job=work_dir.identity(DESCRIPTION),
    )
    write_shard.marker_path(path).write_text(written.to_json())


def test_only_shards_with_marker_and_size_are_complete(tmp_path: pathlib.Path) -> None:
    plans = [
        plan.ShardPlan("train", number, f"train-{number}", []) for number in range(6)
    ]
    names = [item.name for item in plans]
    with _open(tmp_path) as folder:
        _finish_shard(folder, names[0], b"abc")
        (folder / names[1]).write_bytes(b"abc")  # no marker yet
        _finish_shard(folder, names[2], b"ab")  # cut short
        _finish_shard(folder, names[3], b"abc")
        (folder / names[3]).rename(tmp_path / names[3])  # of a data set
        for name, text in ((names[4], ""), (names[5], '{"shard": {"name": 3}}')):
            _finish_shard(folder, name, b"abc")
            write_shard.marker_path(folder / name).write_text(
                text
            )  # after a power loss

        assert list(work_dir.completed(plans, folder)) == [names[0]]
        write_shard.marker_path(folder / names[0]).rename(folder / f"{names[1]}.done")
        assert not work_dir.completed(plans, folder)  # of another shard


_FORKING_SCRIPT = """
import os, pathlib, sys, time
from converters import work

with work.open_work_dir(pathlib.Path(sys.argv[1]), {}, task=0, restart=False):
    child = os.fork()
    if child == 0:
        print(os.getpid(), flush=True)
        time.sleep(60)
    os._exit(0)
"""


def test_forked_worker_does_not_keep_the_lock_of_its_parent(
    tmp_path: pathlib.Path,
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _FORKING_SCRIPT, tmp_path], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.stdout.close()
    process.wait()

    try:
        with _open(tmp_path, description={}):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_disk_that_is_too_small_is_an_error_before_the_start(
    tmp_path: pathlib.Path,
) -> None:
    image = Image("x", 0, "x", 0, 10**18)
    plans = [plan.ShardPlan("train", 0, "train-00000-of-00001", [image])]

    with pytest.raises(
        OSError, match=r"needs 1000000000\.00 GB .* GB free\. Make room"
    ):
        output.require_space(tmp_path, plans, 0)
    output.require_space(tmp_path, plans, 10**18)
    output.require_space(tmp_path, plans, 0, shrinks=True)
    bitmap = plan.ShardPlan("train", 0, "a", [image._replace(name="train/x.BMP")])
    output.require_space(tmp_path, [bitmap], 0)  # a JPEG of it is small


_WAITING_SCRIPT = """
import os, pathlib, sys
from converters import locks

descriptor = locks.acquire(pathlib.Path(sys.argv[1]), wait=True)
print(os.path.samestat(os.fstat(descriptor), os.stat(sys.argv[1])))
"""


def test_lock_whose_file_was_removed_meanwhile_is_taken_anew(
    tmp_path: pathlib.Path,
) -> None:
    """Else two processes would each hold the lock on a file of their own."""
    path = tmp_path / "claim.lock"
    descriptor = locks.acquire(path)
    assert descriptor is not None
    waiting = subprocess.Popen(
        [sys.executable, "-c", _WAITING_SCRIPT, path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    assert waiting.stderr.readline().startswith("Waiting for the process")
    path.unlink()
    locks.release(descriptor)

    assert waiting.communicate() == ("True\n", "")


_CLAIMING_SCRIPT = """
import pathlib, sys
from converters import work

folder, task = pathlib.Path(sys.argv[1]), int(sys.argv[2])
sys.stdin.readline()
with work.open_work_dir(folder, {}, task=task, restart=False) as work_dir:
    (work_dir / f"shard-{task}").touch()
    print("open", flush=True)
    sys.stdin.readline()
    assert (work_dir / f"shard-{task}").exists()
"""


def test_tasks_that_start_together_share_the_folder(tmp_path: pathlib.Path) -> None:
    tasks = [
        subprocess.Popen(
            [sys.executable, "-c", _CLAIMING_SCRIPT, tmp_path, str(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for task in range(4)
    ]
    for task in tasks:
        task.stdin.write("go\n")
        task.stdin.flush()
    assert [task.stdout.readline() for task in tasks] == ["open\n"] * 4
    for task in tasks:
        task.communicate("end\n")

    assert [task.returncode for task in tasks] == [0] * 4


def test_locks_of_tasks_that_end_together_are_removed(tmp_path: pathlib.Path) -> None:
    """The last task to publish saw the other one's lock, which was still held."""
    out = tmp_path / "out"
    with work_dir.open_work_dir(out, {}, task=0, restart=False) as folder:
        replace.remove_job(folder)
        assert (folder.parent / "task-00000.lock").exists()

    assert not (out / work_dir.WORK_DIR_NAME).exists()
