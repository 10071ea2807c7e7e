"""tests.support.processes.warm_python: its programs are as those of a new Python."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.support.processes import warm_client, warm_python as module
from tests.support.processes.warm_python import WarmPython

SEEN = """
import json, os, signal, sys
links = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd") if int(n) > 2]
files = {os.readlink(link) for link in links if os.path.exists(link)}
files = sorted(files - {"/dev/urandom"})  # the random numbers of a library
json.dump({
    "argv": sys.argv,
    "path": sys.path[:2],
    "name": __name__,
    "folder": os.getcwd(),
    "variables": {k: v for k, v in os.environ.items() if k.startswith("SEEN_")},
    "stdin": sys.stdin.read(),
    "cores": sorted(os.sched_getaffinity(0)),
    "umask": os.umask(0),
    "sigint": str(signal.getsignal(signal.SIGINT)),
    "num_threads": len(os.listdir("/proc/self/task")),
    "files": files,
}, sys.stdout)
print("told", file=sys.stderr)
"""

WAIT = """
import os, signal, sys, time
def end(*_):
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["-c", "-m", "file"])
def test_a_program_sees_what_it_sees_in_a_new_python(
    warm_python: WarmPython, tmp_path: pathlib.Path, kind: str
) -> None:
    (tmp_path / "program.py").write_text(SEEN)
    words = {"-c": ("-c", SEEN), "-m": ("-m", "program"), "file": ("program.py",)}

    def run(python: tuple[str, ...]) -> tuple[dict[str, object], str, int]:
        done = subprocess.run(
            [*python, *words[kind], "--one", "two words"],
            input="typed",
            cwd=tmp_path,
            env={**os.environ, "SEEN_A": "ä b", "PYTHONPATH": "/first:/second"},
            capture_output=True,
            text=True,
            check=False,
        )
        return json.loads(done.stdout), done.stderr, done.returncode

    seen, told, code = run(warm_python.command)
    expected = run((sys.executable,))

    assert seen["num_threads"] == 1
    assert (seen, told, code) == expected


@pytest.mark.parametrize(
    ("code", "returncode"),
    [
        ("", 0),
        ("import sys; sys.exit(7)", 7),
        ("1 / 0", 1),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM),
    ],
)
def test_a_process_ends_as_its_program(
    warm_python: WarmPython, code: str, returncode: int
) -> None:
    assert warm_python.run("-c", code).returncode == returncode


def _is_running(pid: int) -> bool:
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def test_signals_reach_the_program_and_none_outlives_its_process(
    warm_python: WarmPython,
) -> None:
    def start() -> tuple["subprocess.Popen[str]", int]:
        process = subprocess.Popen(
            [*warm_python.command, "-c", WAIT], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        with process.stdout:
            return process, int(process.stdout.readline())

    asked, pid = start()
    asked.terminate()
    assert asked.wait(30) == 3
    assert not _is_running(pid)

    killed, pid = start()
    module.kill(killed)
    assert killed.returncode == -signal.SIGKILL
    assert not _is_running(pid)

    left, pid = start()
    left.kill()
    left.wait()
    end = time.monotonic() + 30
    while _is_running(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _is_running(pid)


def test_a_process_that_is_killed_early_harms_no_other(warm_python: WarmPython) -> None:
    """It has asked for its program, and is gone before the answer comes."""
    *_, address = warm_python.command
    for _ in range(20):
        warm_client.ask(address, ["-c", "import time; time.sleep(60)"], []).close()

    assert warm_python.run("-c", "print(7)").stdout == "7\n"
