"""Locks and working folders between real processes."""

import os
import pathlib
import signal
import subprocess
import sys

from converters.engines import locks
from converters.jobs import work_dir
from converters.jobs.job import identity_of


def test_lock_of_a_killed_process_is_free(tmp_path: pathlib.Path) -> None:
    code = (
        "import os, pathlib, sys; from converters.jobs import work_dir\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "with work_dir.open_work_dir(folder, {}, task=0, restart=False):\n"
        "    os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=False)

    with work_dir.open_work_dir(tmp_path, {}, task=0, restart=False) as folder:
        assert folder == work_dir.job_dir(tmp_path, identity_of({}))


_FORKING_SCRIPT = """
import os, pathlib, sys, time
from converters.jobs import work_dir

with work_dir.open_work_dir(pathlib.Path(sys.argv[1]), {}, task=0, restart=False):
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
        with work_dir.open_work_dir(tmp_path, {}, task=0, restart=False):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


_WAITING_SCRIPT = """
import os, pathlib, sys
from converters.engines import locks

descriptor = locks.acquire(pathlib.Path(sys.argv[1]), wait=True)
print(os.path.samestat(os.fstat(descriptor), os.stat(sys.argv[1])))
"""


def test_lock_whose_file_was_removed_meanwhile_is_taken_anew(
    tmp_path: pathlib.Path,
) -> None:
    """Otherwise two processes would hold locks on two files of the same name."""
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
from converters.jobs import work_dir

output_dir, task = pathlib.Path(sys.argv[1]), int(sys.argv[2])
sys.stdin.readline()
with work_dir.open_work_dir(output_dir, {}, task=task, restart=False) as folder:
    (folder / f"shard-{task}").touch()
    print("open", flush=True)
    sys.stdin.readline()
    assert (folder / f"shard-{task}").exists()
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
