"""python -m benchmarks.sweep with real processes: kills, locks, timeouts, real runs.

A stand-in for benchmarks.train prints what benchmarks.train would print, except in the
last test.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.planning import sweep_run
from benchmarks.planning.plan import Run, Sweep
from benchmarks.reporting import page
from benchmarks.results.collection import read
from tests.support.processes.warm_python import WarmPython

ROOT = pathlib.Path(__file__).parents[3]

# Prints the result of a run whose speed follows from its settings; counts its starts.
STAND_IN = """
import os, pathlib, sys, time
from tests.support.processes import stand_in_train
settings = dict(text.lstrip("-").split("=") for text in sys.argv[3:] if "=" in text)
num_ranks, log = int(sys.argv[1]), pathlib.Path(sys.argv[2])
with log.open("a") as file:
    file.write(f"{settings['model']} {num_ranks} {settings.get('batch_size')}\\n")
if settings["model"] == "bad":
    sys.exit(stand_in_train.ERROR)
if settings["model"] == "killed":
    os.kill(os.getpid(), 9)
time.sleep(float(os.environ.get("PAUSE", 0)))
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
        ("tiny", 0.5, "It did not end within 0.5 s (--run_timeout).", None),
        ("killed", 60.0, "It was ended by signal 9 (Killed).", -9),
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
    monkeypatch.setenv("PAUSE", "0" if timeout > 1 else "1000")
    (run,) = Sweep(arguments=("--synthetic",)).runs()
    run = dataclasses.replace(run, model=model)

    result, found = sweep_run.keep_result(tmp_path, run, timeout=timeout, digest=None)

    assert (result, found) == (None, error)
    document = json.loads((tmp_path / "failed" / f"{run.name}.json").read_text())
    assert (document["error"], document["exit_code"]) == (error, exit_code)


# A sweep of the stand-in in a process of its own: argv is the log, then the flags.
SWEEP = """
import pathlib, sys
from benchmarks import sweep
from benchmarks.planning import sweep_run as run
from benchmarks.planning.plan import Run
from tests.system.benchmarks.test_sweep import stand_in
Run.command = stand_in(pathlib.Path(sys.argv.pop(1)))
run.horovodrun = lambda: "horovodrun"
from tfpipe import cli
cli.run(*sweep.COMMANDS)
"""


def _start(log: pathlib.Path, *arguments: str, pause: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SWEEP, str(log), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PAUSE": str(pause)},
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
    more = ("--", "--synthetic")
    killed = _start(log, *flags_, *more, pause=1)
    _wait_for(lambda: log.exists() and len(log.read_text().splitlines()) == 2)
    (child,) = _children(killed.pid)

    killed.send_signal(signal.SIGKILL)
    killed.communicate()

    _wait_for(lambda: not _is_running(child))
    assert len(list(out.glob("tiny-*.json"))) == 1
    again = _start(log, *flags_, *more, pause=0)
    stdout, stderr = again.communicate(timeout=60)
    assert again.returncode == 0, stderr
    assert log.read_text().splitlines() == [
        *("tiny 1 None", "tiny 2 None"),
        *("tiny 2 None", "tiny 3 None"),
    ]
    assert json.loads(stdout.splitlines()[-1])["num_done"] == 3
    assert not list(out.glob(".*.part"))


def test_two_sweeps_in_one_folder_do_not_mix(tmp_path: pathlib.Path) -> None:
    flags_ = (f"--sweep_dir={tmp_path / 'out'}", "--models=tiny", "--", "--synthetic")
    first = _start(tmp_path / "log", *flags_, pause=1000)
    _wait_for((tmp_path / "log").exists)

    second = _start(tmp_path / "log2", *flags_, pause=0)
    _, errors = second.communicate(timeout=60)
    first.send_signal(signal.SIGTERM)
    stdout, interrupted = first.communicate(timeout=60)

    assert second.returncode == 1
    assert "must not be in use by another sweep, and is" in errors
    assert not (tmp_path / "log2").exists()
    assert first.returncode == 1
    assert "Error: interrupted. Start again to run only what is missing." in interrupted
    assert json.loads(stdout.splitlines()[-1])["interrupted"]


# A sweep whose ranks have imported TensorFlow already: argv[1] is what starts Python.
# horovodrun itself imports it twice before it starts a rank.
WARM_SWEEP = """
import json, sys
from benchmarks import sweep
from benchmarks.planning.plan import Run
python, of_run = json.loads(sys.argv.pop(1)), Run.command
def command(run, horovodrun):
    words = of_run(run, horovodrun)
    place = words.index(sys.executable)
    module = "tests.support.processes.horovodrun"
    launcher = [sys.executable, "-m", module] if place else []
    return [*launcher, *words[1:place], *python, *words[place + 1:]]
Run.command = command
from tfpipe import cli
cli.run(*sweep.COMMANDS)
"""


def test_real_search_keeps_its_runs_until_the_data_change(
    tmp_path: pathlib.Path, data_dir: pathlib.Path, warm_python: WarmPython
) -> None:
    """Horovod averages ten times a second here, so two ranks wait for each other."""
    data, out = tmp_path / "records", tmp_path / "out"
    shutil.copytree(data_dir, data)
    flags_ = [f"--data_dirs={data}", "--models=tiny", "--batch_sizes=4"]
    flags_ += ["--horovodrun_arguments=--cycle-time-ms 100"]
    train = ["--step_time_ms=25", "--num_steps=60", "--image_size=32"]
    gate = "au>=0.7"

    def sweep(*more: str) -> tuple[int, dict[str, Any]]:
        command = ("-c", WARM_SWEEP, json.dumps(warm_python.command))
        done = warm_python.run(*command, f"--sweep_dir={out}", *flags_, *more)
        assert done.returncode in (0, 2), done.stderr
        return done.returncode, dict(json.loads(done.stdout.splitlines()[-1]))

    search = sweep(f"--find_ranks={gate}", "--max_ranks=2", "--", *train)
    files = {path: path.read_bytes() for path in out.glob("tiny-*.json")}
    require = ("--", *train, f"--require={gate}")
    both = sweep("--ranks=1,2", *require)
    # Another text of the same index: nothing but its digest changes.
    index = json.loads((data / "index.json").read_text())
    (data / "index.json").write_text(json.dumps(index))
    changed = sweep("--ranks=1,2", *require)

    assert search[0] == 0
    (answer,) = search[1]["find_ranks"]["answers"]
    assert (answer["num_ranks"], answer["num_ranks_not_met"]) == (1, 2)
    assert len(files) == 4  # both numbers of ranks, twice
    # The same runs again, as a plain sweep: nothing is started, the gate counts.
    assert both[0] == 2
    assert [run["run"][:8] for run in both[1]["gates_not_met"]] == ["tiny-x2-"]
    one, two = both[1]["series"][0]["points"]
    assert two["efficiency"] == pytest.approx(
        two["examples_per_second"] / one["examples_per_second"] / 2
    )
    assert changed[0] == 2
    stale = {out / f"{each['run']}.json": each for each in changed[1]["stale"]}
    again = {path for path, content in files.items() if path.read_bytes() != content}
    assert len(stale) == 2
    assert again == set(stale)
    for path, each in stale.items():
        assert pathlib.Path(each["moved_to"]).read_bytes() == files[path]
        assert each["run"] in page.make_page(read([out]), library="")
