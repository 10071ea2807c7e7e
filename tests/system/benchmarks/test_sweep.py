"""python -m benchmarks.sweep with real processes: kills, locks, timeouts, real runs.

A stand-in for benchmarks.train prints what benchmarks.train would print, except in the
last test.
"""

import json
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from benchmarks.sweeps import run as sweep_run
from benchmarks.sweeps.plan import Run, Sweep

ROOT = pathlib.Path(__file__).parents[3]

# Prints the result of a run whose speed follows from its settings; counts its starts.
STAND_IN = """
import pathlib, sys, time
from tests.support import stand_in_train
settings = dict(text.lstrip("-").split("=") for text in sys.argv[3:] if "=" in text)
num_ranks, log = int(sys.argv[1]), pathlib.Path(sys.argv[2])
with log.open("a") as file:
    file.write(f"{settings['model']} {num_ranks} {settings.get('batch_size')}\\n")
if settings["model"] == "bad":
    sys.exit(stand_in_train.ERROR)
if settings["model"] == "slow":
    time.sleep(1000)
time.sleep(float(settings.get("pause", 0)))
print(stand_in_train.printed(num_ranks), end="")
"""


def stand_in(log: pathlib.Path) -> Callable[[Run, str], list[str]]:
    """Takes the place of `Run.command`."""

    def command(run: Run, horovodrun: str) -> list[str]:
        rest = [text for text in _command(run, horovodrun) if text.startswith("--")]
        return [sys.executable, "-c", STAND_IN, str(run.num_ranks), str(log), *rest]

    return command


_command = Run.command


@pytest.mark.parametrize(
    ("model", "timeout", "error", "exit_code"),
    [
        ("bad", 60.0, "Error: --model=bad must be good.", 1),
        ("slow", 2.0, "It did not end within 2 s (--run_timeout).", None),
    ],
)
def test_failed_process_is_recorded(
    model: str,
    timeout: float,
    error: str,
    exit_code: int | None,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Run, "command", stand_in(tmp_path / "log"))
    (run,) = Sweep(models=(model,), arguments=("--synthetic",)).runs()

    result, found = sweep_run.keep_result(tmp_path, run, timeout)

    assert (result, found) == (None, error)
    document = json.loads((tmp_path / "failed" / f"{run.name}.json").read_text())
    assert (document["error"], document["exit_code"]) == (error, exit_code)


# A sweep of the stand-in in a process of its own: argv is the log, then the flags.
SWEEP = """
import pathlib, signal, sys
from absl import app
from benchmarks import sweep
from benchmarks.sweeps import run
from benchmarks.sweeps.plan import Run
from tests.system.benchmarks.test_sweep import stand_in
Run.command = stand_in(pathlib.Path(sys.argv.pop(1)))
run.horovodrun = lambda: "horovodrun"
# Ignored where a shell without job control started the tests in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
app.run(sweep.main)
"""


def _start(log: pathlib.Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SWEEP, str(log), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def _wait_for(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.02)


def _children(pid: int) -> list[int]:
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return list(map(int, text.split()))


def _is_running(pid: int) -> bool:
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] != "Z"  # ended, and nobody asked for it


def test_killed_sweep_leaves_no_run_behind_and_goes_on(tmp_path: pathlib.Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    flags_ = (f"--sweep_dir={out}", "--models=tiny", "--ranks=1,2,3")
    more = ("--", "--synthetic", "--pause=1")
    killed = _start(log, *flags_, *more)
    _wait_for(lambda: log.exists() and len(log.read_text().splitlines()) == 2)
    (child,) = _children(killed.pid)

    killed.send_signal(signal.SIGKILL)
    killed.communicate()

    _wait_for(lambda: not _is_running(child))
    assert len(list(out.glob("*.json"))) == 1
    again = _start(log, *flags_, *more)
    stdout, stderr = again.communicate(timeout=60)
    assert again.returncode == 0, stderr
    assert log.read_text().splitlines() == [
        *("tiny 1 None", "tiny 2 None"),
        *("tiny 2 None", "tiny 3 None"),
    ]
    assert json.loads(stdout.splitlines()[-1])["num_done"] == 3
    assert not list(out.glob(".*.part"))


def test_two_sweeps_in_one_folder_do_not_mix(tmp_path: pathlib.Path) -> None:
    flags_ = (f"--sweep_dir={tmp_path / 'out'}", "--models=slow", "--", "--synthetic")
    first = _start(tmp_path / "log", *flags_)
    _wait_for((tmp_path / "log").exists)

    second = _start(tmp_path / "log2", *flags_)
    _, errors = second.communicate(timeout=60)
    first.send_signal(signal.SIGINT)
    _, interrupted = first.communicate(timeout=60)

    assert second.returncode == 1
    assert "must not be in use by another sweep, and is" in errors
    assert not (tmp_path / "log2").exists()
    assert first.returncode == 1
    assert "Error: Interrupted. Start again to run only what is missing." in interrupted


def test_real_runs_on_one_and_two_ranks(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "benchmarks.sweep", f"--sweep_dir={tmp_path}"]
    command += ["--models=tiny", "--ranks=1,2", "--batch_sizes=4", "--", "--synthetic"]
    command += ["--num_steps=5", "--num_warmup_steps=1", "--image_size=32"]

    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert done.returncode == 0, done.stderr
    (series,) = json.loads(done.stdout.splitlines()[-1])["series"]
    one, two = series["points"]
    assert two["efficiency"] == pytest.approx(
        two["examples_per_second"] / one["examples_per_second"] / 2
    )
    command = [sys.executable, "-m", "benchmarks.report", f"--results={tmp_path}"]
    command.append(f"--output={tmp_path / 'page.html'}")
    report = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert report.returncode == 0, report.stderr
