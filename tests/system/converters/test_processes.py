"""converters.engines.processes with real workers: order, failures, and no orphans."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from converters.engines import processes


def _square(number: int) -> int:
    time.sleep(0.02 * (number % 2))  # tasks end in another order than they start
    processes.image_done()
    return number * number


def _fail_or_go_on(path: str) -> None:
    if path == "fail":
        raise ValueError("number 3 is bad")
    for _ in range(600):
        time.sleep(0.1)
        processes.image_done()


def _die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("num_workers", "num_tasks"), [(2, 9), (20, 3)])
def test_results_are_in_the_order_of_the_tasks(
    num_workers: int, num_tasks: int
) -> None:
    tasks = range(num_tasks)

    result = processes.run(_square, tasks, num_workers=num_workers, num_images=9)

    assert result == [number * number for number in tasks]


def test_spans_say_when_each_task_ran() -> None:
    spans: list[processes.Span] = []
    before = time.monotonic()

    processes.run(_square, range(5), num_workers=2, num_images=5, on_span=spans.append)

    assert len(spans) == 5
    for span in spans:
        assert before <= span.start < span.end <= time.monotonic()
        assert span.cpu_seconds >= 0


_THREADED_SCRIPT = """
import sys, threading
from converters.engines import processes

forked = False

def is_forked(task):
    return forked  # a new interpreter imports this module, and does not set it

if __name__ == "__main__":
    forked, done = True, threading.Event()
    if sys.argv[1] == "thread":
        threading.Thread(target=done.wait).start()
    print(processes.run(is_forked, [0, 1], num_workers=2, num_images=2))
    done.set()
"""


@pytest.mark.parametrize(("other", "forked"), [("none", True), ("thread", False)])
def test_only_a_process_with_one_thread_forks(
    other: str, forked: bool, tmp_path: pathlib.Path
) -> None:
    """A forked child would wait forever for a lock that another thread had."""
    script = tmp_path / "script.py"
    script.write_text(_THREADED_SCRIPT)

    done = subprocess.run(
        [sys.executable, script, other], capture_output=True, text=True, check=True
    )

    assert done.stdout == f"{[forked, forked]}\n"


def test_failure_of_one_task_stops_the_others_soon() -> None:
    start = time.monotonic()

    with pytest.raises(ValueError, match="number 3 is bad"):
        processes.run(_fail_or_go_on, ["go on", "fail"], num_workers=2, num_images=2)

    assert time.monotonic() - start < 30  # the other task takes a minute


def test_death_of_a_worker_is_an_error() -> None:
    with pytest.raises(OSError, match=r"A worker process died.*fewer --num_workers"):
        processes.run(_die, [0, 1], num_workers=2, num_images=2)


_SCRIPT = """
import os, pathlib, sys, time
from converters.engines import processes

def write_on(folder):
    for number in range(600):
        (pathlib.Path(folder) / str(os.getpid())).write_text(str(number))
        time.sleep(0.1)

if __name__ == "__main__":
    processes.run(write_on, [sys.argv[1]] * 2, num_workers=2, num_images=2)
"""


def test_workers_end_when_their_parent_is_killed(tmp_path: pathlib.Path) -> None:
    script, folder = tmp_path / "script.py", tmp_path / "pids"
    script.write_text(_SCRIPT)
    folder.mkdir()
    parent = subprocess.Popen([sys.executable, script, folder])
    _wait_until(lambda: len(os.listdir(folder)) == 2)

    parent.kill()
    parent.wait()

    pids = os.listdir(folder)
    _wait_until(lambda: not any(_is_running(pid) for pid in pids))


def _wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(300):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail("did not happen within 30 s")


def _is_running(pid: str) -> bool:
    try:
        state = (
            pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        )
    except FileNotFoundError:
        return False
    return state != "Z"


_STOPPED_SCRIPT = """
import os, pathlib, sys, time
from converters.engines import processes
from tfpipe.cli.signals import terminated_as_interrupted

def wait(folder):
    (pathlib.Path(folder) / str(os.getpid())).touch()
    for _ in range(6000):
        time.sleep(0.01)
        processes.image_done()

if __name__ == "__main__":
    with terminated_as_interrupted():
        if sys.argv[2] == "run":
            processes.run(wait, [sys.argv[1]] * 4, num_workers=2, num_images=4)
        else:
            list(processes.stream(wait, [sys.argv[1]] * 4, num_workers=2))
"""


@pytest.mark.parametrize(("how", "num_stopped"), [("run", 1), ("stream", 2)])
def test_sigterm_ends_a_run_whose_workers_are_stopped(
    tmp_path: pathlib.Path, how: str, num_stopped: int
) -> None:
    script, folder = tmp_path / "script.py", tmp_path / "pids"
    script.write_text(_STOPPED_SCRIPT)
    folder.mkdir()
    parent = subprocess.Popen(
        [sys.executable, script, folder, how], stderr=subprocess.PIPE
    )
    _wait_until(lambda: len(os.listdir(folder)) == 2)
    pids = os.listdir(folder)
    for pid in pids[:num_stopped]:
        os.kill(int(pid), signal.SIGSTOP)

    try:
        parent.terminate()
        _, errors = parent.communicate(timeout=30)
    finally:
        parent.kill()
        for pid in filter(_is_running, pids):
            os.kill(int(pid), signal.SIGKILL)

    assert b"KeyboardInterrupt" in errors
    assert not any(_is_running(pid) for pid in pids)
