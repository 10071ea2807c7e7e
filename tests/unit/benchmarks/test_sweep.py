"""python -m benchmarks.sweep: what it plans, runs, keeps, resumes and computes.

The runs are of a stand-in for benchmarks.train that prints what it would, but in the
slow test.
"""

import json
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from absl import flags
from absl.testing import flagsaver

from benchmarks import sweep
from benchmarks.options import sweep_flags
from benchmarks.sweeps import plan as plan_sweeps, run as run_sweeps
from benchmarks.sweeps.plan import Run, Sweep

ROOT = pathlib.Path(__file__).parents[3]
SYNTHETIC = ("--synthetic",)

# Prints the result of a run whose speed follows from its settings; counts its starts.
STAND_IN = """
import json, os, pathlib, sys, time
settings = dict(text.lstrip("-").split("=") for text in sys.argv[3:] if "=" in text)
num_ranks, log = int(sys.argv[1]), pathlib.Path(sys.argv[2])
with log.open("a") as file:
    file.write(f"{settings['model']} {num_ranks} {settings.get('batch_size')}\\n")
if settings["model"] == "bad":
    sys.exit("[1]<stderr>:Error: --model=bad must be good.")
if settings["model"] == "slow":
    time.sleep(1000)
if settings["model"] == "mute":
    sys.exit(0)
time.sleep(float(settings.get("pause", 0)))
print("Img/sec per rank: 1")
print(("[0]<stdout>:" if num_ranks > 1 else "") + json.dumps({
    "command": "benchmarks.train",
    "num_ranks": num_ranks,
    "examples_per_second": 100.0 * num_ranks * (0.9 if num_ranks > 1 else 1),
    "timed_seconds": 2.0,
    "stall_fraction": 0.25,
    "environment": {"cpu": "none"},
}))
"""


def stand_in(log: pathlib.Path) -> Callable[[Run, str], list[str]]:
    """Takes the place of `Run.command`."""

    def command(run: Run, horovodrun: str) -> list[str]:
        rest = [text for text in _command(run, horovodrun) if text.startswith("--")]
        return [sys.executable, "-c", STAND_IN, str(run.num_ranks), str(log), *rest]

    return command


_command = Run.command


@pytest.fixture
def starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> Callable[[], list[str]]:
    """Puts the stand-in in place; the fixture says what was started since."""
    log = tmp_path / "starts"
    monkeypatch.setattr(Run, "command", stand_in(log))
    monkeypatch.setattr(run_sweeps, "horovodrun", lambda: "horovodrun")

    def read() -> list[str]:
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    return read


def _main(
    capsys: pytest.CaptureFixture[str], *arguments: str, **values: object
) -> tuple[int, list[str], str]:
    flags.FLAGS.mark_as_parsed()  # required flags of the converters are not given
    with flagsaver.flagsaver(**values):
        code = sweep.main(["sweep", *arguments])
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err


def test_every_combination_is_run_once_and_repeats_come_last() -> None:
    found = Sweep(
        models=("a", "b"),
        ranks=(1, 2),
        batch_sizes=(8, 16),
        data_dirs=("x", "y"),
        repeats=3,
    ).runs()

    assert len(found) == len(set(found)) == 2 * 2 * 2 * 2 * 3
    assert [run.repeat for run in found] == sorted(run.repeat for run in found)
    assert len({run.name for run in found}) == len(found)


def test_weak_and_strong_scaling_share_the_runs_that_are_the_same() -> None:
    plan = Sweep(
        ranks=(1, 2, 4),
        batch_sizes=(8, 16),
        scaling=("weak", "strong"),
        arguments=SYNTHETIC,
    )

    batches = [(run.num_ranks, run.batch_size) for run in plan.runs()]

    assert sorted(batches) == [
        *((1, 8), (1, 16)),  # both
        *((2, 4), (2, 8), (2, 16)),  # strong of 8, weak of 8 and strong of 16, weak
        *((4, 2), (4, 4), (4, 8), (4, 16)),
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"data_dir": "a/x"}, {"data_dir": "b/x"}),
        ({"arguments": ("--num_steps=1",)}, {"arguments": ("--num_steps=2",)}),
        ({"arguments": ("--a", "--b")}, {"arguments": ("--a --b",)}),
        ({"horovodrun_arguments": ("-H", "a")}, {"horovodrun_arguments": ("-H", "b")}),
        ({"batch_size": None}, {"batch_size": 1}),
        ({"repeat": 1}, {"repeat": 2}),
    ],
)
def test_runs_that_differ_have_different_files(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    base = {"model": "tiny", "num_ranks": 1, "batch_size": 4}
    base |= {"data_dir": None, "repeat": 1}

    assert Run(**{**base, **first}).name != Run(**{**base, **second}).name


@pytest.mark.parametrize(
    ("num_ranks", "expected"),
    [
        (1, [sys.executable, "-m", "benchmarks.train"]),
        (4, ["HVD", "-np", "4", "-H", "a:4", sys.executable, "-m", "benchmarks.train"]),
    ],
)
def test_command(num_ranks: int, expected: list[str]) -> None:
    run = Run(
        model="tiny",
        num_ranks=num_ranks,
        batch_size=4,
        data_dir="d",
        repeat=1,
        arguments=("--num_steps=2",),
        horovodrun_arguments=("-H", "a:4"),
    )

    assert run.command("HVD") == [
        *expected,
        *("--model=tiny", "--batch_size=4", "--data_dir=d", "--num_steps=2"),
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "One of --data_dirs and, after --, --synthetic must be given"),
        ({"models": (), "arguments": SYNTHETIC}, "--models must name at least one"),
        ({"ranks": (0,), "arguments": SYNTHETIC}, "--ranks, .* must be above 0"),
        ({"repeats": 0, "arguments": SYNTHETIC}, "must be above 0"),
        ({"scaling": ("both",), "arguments": SYNTHETIC}, "must be of weak, strong"),
        ({"scaling": ("strong",), "arguments": SYNTHETIC}, "must have --batch_sizes"),
        (
            {
                "scaling": ("strong",),
                "ranks": (1, 3),
                "batch_sizes": (6, 8),
                "arguments": SYNTHETIC,
            },
            "divisible by each of --ranks; 8 is not by 3",
        ),
        (
            {"arguments": ("--synthetic", "--model=vgg16")},
            "--model cannot be given after --: it is what --models is for",
        ),
        (
            {"data_dirs": ("d",), "arguments": SYNTHETIC},
            "--synthetic cannot be given after --: it is what --data_dirs is for",
        ),
    ],
)
def test_settings_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sweep(**values)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.json", '{"rank": [1]}', "settings models, ranks, .*; got rank"),
        ("s.json", '{"ranks": 1}', "ranks must be a list, got 1"),
        ("s.json", '{"ranks": ["1"]}', "ranks must be a list of whole numbers"),
        ("s.json", '{"models": [1]}', "models must be a list of strings"),
        ("s.json", '{"repeats": "3"}', "repeats must be a number, got '3'"),
        ("s.json", "[1]", "must hold an object"),
        ("s.json", "{", "cannot be read"),
        ("s.toml", "= 1", "cannot be read"),
    ],
)
def test_file_that_cannot_be(
    tmp_path: pathlib.Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(ValueError, match=message):
        sweep_flags.make_sweep(sweep_flags.read_file(str(tmp_path / name)))


def test_file_is_read_and_flags_count_more(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "sweep.json"
    path.write_text('{"models": ["a"], "ranks": [1, 2], "arguments": ["--synthetic"]}')
    flags.FLAGS.mark_as_parsed()

    with flagsaver.flagsaver(sweep_file=str(path), ranks=["4"], repeats=2):
        found = sweep_flags.sweep_from_flags([])

    expected = Sweep(models=("a",), ranks=(4,), repeats=2, arguments=SYNTHETIC)
    assert found == expected


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 reads no TOML")
def test_file_of_toml(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text('ranks = [1, 2]\nrun_timeout = 60\narguments = ["--synthetic"]\n')

    found = sweep_flags.make_sweep(sweep_flags.read_file(str(path)))

    assert found == Sweep(ranks=(1, 2), run_timeout=60, arguments=SYNTHETIC)


def _sweep_values(folder: pathlib.Path, **values: object) -> dict[str, object]:
    return {"sweep_dir": str(folder), "models": ["tiny"], "ranks": ["1", "2"], **values}


def test_sweep_keeps_each_run_and_computes_the_scaling(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    starts: Callable[[], list[str]],
) -> None:
    values = _sweep_values(tmp_path / "out", batch_sizes=["4"], repeats=2)

    code, lines, errors = _main(capsys, "--synthetic", **values)

    assert code == 0
    assert starts() == ["tiny 1 4", "tiny 2 4"] * 2
    files = sorted((tmp_path / "out").glob("*.json"))
    kept = [json.loads(path.read_text()) for path in files]
    assert [document["num_ranks"] for document in kept] == [1, 1, 2, 2]
    assert {document["sweep"]["run"]["batch_size"] for document in kept} == {4}
    result = json.loads(lines[-1])
    (series,) = result["series"]
    assert (series["scaling"], series["model"]) == ("weak", "tiny")
    assert [point["efficiency"] for point in series["points"]] == [1.0, 0.9]
    assert [point["stall_fraction"] for point in series["points"]] == [0.25, 0.25]
    assert (result["num_runs"], result["num_done"]) == (4, 4)
    assert lines[0] == "weak scaling, tiny, batch 4 a rank"
    # ranks, runs, images/s and its interval, speed-up, efficiency and its interval
    assert lines[3].split()[:6] == ["2", "2", "180.0", "0.0", "1.80", "90.0%"]
    assert errors.count("images/s in") == 4


def test_sweep_again_runs_only_what_is_missing(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    starts: Callable[[], list[str]],
) -> None:
    values = _sweep_values(tmp_path / "out")
    first = _main(capsys, "--synthetic", **values)
    assert starts() == ["tiny 1 None", "tiny 2 None"]
    next((tmp_path / "out").glob("tiny-x2-*.json")).unlink()

    again = _main(capsys, "--synthetic", **values)

    assert starts() == ["tiny 2 None"]
    assert json.loads(again[1][-1])["series"] == json.loads(first[1][-1])["series"]
    assert _main(capsys, "--synthetic", "--num_steps=2", **values)[0] == 0
    assert starts() == ["tiny 1 None", "tiny 2 None"]  # other arguments: other runs


@pytest.mark.parametrize(
    ("model", "error", "exit_code"),
    [
        ("bad", "Error: --model=bad must be good.", 1),
        ("mute", "It printed no result of 1 ranks.", 0),
        ("slow", "It did not end within 4 s (--run_timeout).", None),
    ],
)
def test_run_that_failed_is_recorded_and_tried_again(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    starts: Callable[[], list[str]],
    model: str,
    error: str,
    exit_code: int | None,
) -> None:
    values = _sweep_values(tmp_path, ranks=["1"], models=[model, "tiny"])
    values["run_timeout"] = 4.0 if model == "slow" else 60.0

    code, lines, errors = _main(capsys, "--synthetic", **values)

    assert code == 1
    assert starts() == [f"{model} 1 None", "tiny 1 None"]
    (failed,) = (tmp_path / "failed").glob("*.json")
    document = json.loads(failed.read_text())
    assert (document["error"], document["exit_code"]) == (error, exit_code)
    assert json.loads(lines[-1])["failed"] == [{"run": failed.stem, "error": error}]
    assert f"{failed.stem}: {error}" in errors
    assert "Error: 1 of 2 runs failed; see" in errors
    _main(capsys, "--synthetic", **values)
    assert starts() == [f"{model} 1 None"]


def test_success_removes_the_record_of_the_failure(
    tmp_path: pathlib.Path, starts: Callable[[], list[str]]
) -> None:
    (run,) = Sweep(models=("tiny",), arguments=SYNTHETIC).runs()
    (tmp_path / "failed").mkdir()
    failed = tmp_path / "failed" / f"{run.name}.json"
    failed.write_text("{}")

    result, error = run_sweeps.keep_result(tmp_path, run, 60)

    assert error == ""
    assert json.loads(json.dumps(result)) == run_sweeps.read_result(tmp_path, run)
    assert not failed.exists()


def test_file_that_is_no_result_of_its_run_is_an_error(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = Sweep(models=("tiny",), arguments=SYNTHETIC).runs()
    (tmp_path / f"{run.name}.json").write_text('{"command": "something"}')

    code, _, errors = _main(capsys, "--synthetic", **_sweep_values(tmp_path))

    assert code == 1
    assert f"{run.name}.json must be the result of {run.name}, and is not" in errors


def test_dry_run_starts_nothing_and_says_how_long_it_takes(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    starts: Callable[[], list[str]],
) -> None:
    values = _sweep_values(tmp_path / "out", dry_run=True)
    arguments = ("--synthetic", "--num_steps=40", "--num_warmup_steps=0")

    code, lines, _ = _main(capsys, *arguments, **values)

    assert (code, starts()) == (0, [])
    assert not (tmp_path / "out").exists()
    assert [line.split()[0] for line in lines[:2]] == ["60", "60"]
    assert lines[2].startswith("2 of 2 runs are left, about 2 min: if a run takes 20 s")
    assert json.loads(lines[-1])["estimated_seconds_left"] == 120


def _finished(seconds: float, timed: float) -> dict[str, Any]:
    return {"sweep": {"seconds": seconds}, "timed_seconds": timed}


@pytest.mark.parametrize(
    ("arguments", "changes", "expected"),
    [
        ((), {"repeat": 3}, 35.0),  # the mean of its like
        # 30 s are those of the start and 10 s are timed, of the first that finished.
        (("--num_steps=9",), {"batch_size": 16}, 30 + 20),
        (("--num_steps=9",), {"num_ranks": 2}, 30 + 10),
        ((), {"num_ranks": 2}, 30 + 5),  # half of an epoch on each
        ((), {"model": "b"}, 30 + 10),
    ],
)
def test_estimate_from_finished_runs(
    arguments: tuple[str, ...], changes: dict[str, Any], expected: float
) -> None:
    base = {"model": "a", "num_ranks": 1, "batch_size": 8, "data_dir": "d"}
    first = Run(**base, repeat=1, arguments=arguments)
    second = Run(**base, repeat=2, arguments=arguments)
    finished = {first: _finished(40, 10), second: _finished(30, 10)}
    run = Run(**{**base, "repeat": 1, "arguments": arguments, **changes})

    assert plan_sweeps.estimate_seconds(run, finished) == expected


def test_missing_data_is_found_before_the_runs(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = _sweep_values(tmp_path / "out", data_dirs=[str(tmp_path)])

    code, _, errors = _main(capsys, **values)

    assert code == 1
    assert f"{tmp_path} has no index.json" in errors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"command": "benchmarks.train", "a": 1}', 1),
        ('[0]<stdout>:{"command": "benchmarks.train", "a": 1}\nlate words', 1),
        ('{"command": "benchmarks.train", "a": 1}\n{"command": "other"}\n{broken', 1),
        ('{"command": "other"}', None),
        ("", None),
    ],
)
def test_result_is_found_among_other_lines(text: str, expected: int | None) -> None:
    found = run_sweeps.find_result(text)

    assert (found and found["a"]) == expected


# A sweep of the stand-in in a process of its own: argv is the log, then the flags.
SWEEP = """
import pathlib, signal, sys
from absl import app
from benchmarks import sweep, sweep_run
from benchmarks.sweeps.plan import Run
from tests.unit.benchmarks.test_sweep import stand_in
Run.command = stand_in(pathlib.Path(sys.argv.pop(1)))
sweep_run.horovodrun = lambda: "horovodrun"
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
    end = time.monotonic() + 30
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
    _wait_for(lambda: (tmp_path / "log").exists())

    second = _start(tmp_path / "log2", *flags_)
    _, errors = second.communicate(timeout=60)
    first.send_signal(signal.SIGINT)
    _, interrupted = first.communicate(timeout=60)

    assert second.returncode == 1
    assert "must not be in use by another sweep, and is" in errors
    assert not (tmp_path / "log2").exists()
    assert first.returncode == 1
    assert "Error: Interrupted. Start again to run only what is missing." in interrupted


@pytest.mark.slow
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
