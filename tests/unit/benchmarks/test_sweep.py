"""python -m benchmarks.sweep: what it plans, keeps, resumes and computes."""

import json
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any

import pytest
from absl import flags
from absl.testing import flagsaver

from benchmarks import sweep
from benchmarks.options import sweep_flags
from benchmarks.sweeps import run as sweep_run
from benchmarks.sweeps.plan import Run, Sweep, estimate_seconds
from tests.support import stand_in_train

SYNTHETIC = ("--synthetic",)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Runs no process: a stand-in writes what benchmarks.train would print.

    The fixture returns the runs that were started since it was called last.
    """
    started: list[str] = []

    def run(
        command: Sequence[str], stdout: IO[bytes], stderr: IO[bytes], timeout: float
    ) -> int | None:
        given = dict(text.lstrip("-").split("=") for text in command if "=" in text)
        num_ranks = int(command[2]) if command[1] == "-np" else 1
        model = given["model"]
        started.append(f"{model} {num_ranks} {given.get('batch_size')}")
        if model == "slow":
            return None
        if model == "bad":
            stderr.write(f"{stand_in_train.ERROR}\n".encode())
            return 1
        if model != "mute":
            stdout.write(stand_in_train.printed(num_ranks).encode())
        return 0

    monkeypatch.setattr(sweep_run, "_run", run)
    monkeypatch.setattr(sweep_run, "horovodrun", lambda: "horovodrun")

    def read() -> list[str]:
        since = list(started)
        started.clear()
        return since

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
        ("slow", "It did not end within 60 s (--run_timeout).", None),
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
    values["run_timeout"] = 60.0

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

    result, error = sweep_run.keep_result(tmp_path, run, 60)

    assert error == ""
    assert json.loads(json.dumps(result)) == sweep_run.read_result(tmp_path, run)
    assert not failed.exists()


def test_file_that_is_no_result_of_its_run_is_an_error(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = Sweep(models=("tiny",), arguments=SYNTHETIC).runs()
    (tmp_path / f"{run.name}.json").write_text('{"command": "something"}')

    code, _, errors = _main(capsys, "--synthetic", **_sweep_values(tmp_path))

    assert code == 1
    assert f"{run.name}.json must be the result of {run.name}, and is not" in errors


def test_dry_run_lists_the_runs_and_starts_none(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    starts: Callable[[], list[str]],
) -> None:
    values = _sweep_values(tmp_path / "out", dry_run=True)

    code, lines, _ = _main(capsys, "--synthetic", **values)

    assert (code, starts()) == (0, [])
    assert not (tmp_path / "out").exists()
    names = [line.split()[-1] for line in lines[:2]]
    assert [name[:8] for name in names] == ["tiny-x1-", "tiny-x2-"]
    assert [line.split()[:-1] for line in lines[:2]] == [["to", "run"]] * 2
    assert lines[2] == "2 of 2 runs are left."
    assert json.loads(lines[-1])["estimated_seconds_left"] is None


def test_dry_run_tells_a_duration_where_repeats_have_finished(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Sweep(models=("tiny",), ranks=(1, 2), repeats=2, arguments=SYNTHETIC)
    for run, seconds in zip(plan.runs()[:2], (200.0, 50.0), strict=True):
        kept = {"run": run.as_json(), "seconds": seconds}
        text = json.dumps(stand_in_train.result(run.num_ranks) | {"sweep": kept})
        (tmp_path / f"{run.name}.json").write_text(text)
    values = _sweep_values(tmp_path, dry_run=True, repeats=2)

    _, lines, _ = _main(capsys, "--synthetic", **values)

    states = [" ".join(line.split()[:-1]) for line in lines[:4]]
    assert states == ["done", "done", "3 min", "50 s"]
    assert lines[4] == (
        "2 of 4 runs are left. They take about 4 min, as their finished repeats did."
    )
    assert json.loads(lines[-1])["estimated_seconds_left"] == 250.0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"repeat": 3}, 35.0),  # the mean of both repeats
        # Runs with other settings tell nothing.
        ({"batch_size": 16}, None),
        ({"num_ranks": 2}, None),
        ({"model": "b"}, None),
        ({"arguments": ("--num_steps=9",)}, None),
    ],
)
def test_a_duration_is_that_of_finished_repeats(
    changes: dict[str, Any], expected: float | None
) -> None:
    base = {"model": "a", "num_ranks": 1, "batch_size": 8, "data_dir": "d"}
    finished = {
        Run(**base, repeat=repeat): {"sweep": {"seconds": seconds}}
        for repeat, seconds in ((1, 40.0), (2, 30.0))
    }

    run = Run(**{**base, "repeat": 1, **changes})

    assert estimate_seconds(run, finished) == expected


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
    found = sweep_run.find_result(text)

    assert (found and found["a"]) == expected
