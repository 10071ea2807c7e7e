"""python -m benchmarks.input: pipelines of the user's own, and errors."""

import json
import pathlib
import shutil
import sys

import pytest

from benchmarks import input as benchmark
from benchmarks.distributed.ranks import Ranks
from benchmarks.input import TimeLimit
from tests.support.faults.clock import Clock
from tests.support.processes import commands

MODULE = """
import tfpipe

def make(rank):
    source = tfpipe.SyntheticSource(batch_size=4, image_size=32 + rank)
    return tfpipe.Pipeline(source, [tfpipe.Prefetch()])

def wrong():
    return [1, 2]

def broken():
    return {}["key"]

def needy(data_dir):
    return make(0)

value = 1
"""


@pytest.fixture
def own_module(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module own_pipeline in the current folder, and two without an import."""
    for name, text in (
        ("own_pipeline", MODULE),
        ("broken_module", "\n1 / 0\n"),
        ("ending_module", "raise SystemExit(3)\n"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.usefixtures("own_module")
def test_a_pipeline_of_the_user_is_measured() -> None:
    config = benchmark.InputConfig(
        pipeline="own_pipeline:make", do=("throughput",), seconds=0.02
    )

    result = benchmark.run(config, Ranks())

    assert result["throughput"]["examples_per_element"] == 4
    assert "image_size=32" in result["pipeline"][0]


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("pipeline", "got"),
    [
        (
            "no_such_module:make",
            "ModuleNotFoundError: No module named 'no_such_module'.",
        ),
        (".own_pipeline:make", "TypeError: the 'package' argument is required"),
        ("own_pipeline", "AttributeError: module 'own_pipeline' has no attribute ''."),
        (":make", "ValueError: Empty module name"),
        ("broken_module:make", "/broken_module.py:2."),
        ("ending_module:make", "SystemExit: 3, raised in "),
        ("own_pipeline:", "AttributeError: module 'own_pipeline' has no attribute ''."),
        ("own_pipeline:none", "AttributeError: module 'own_pipeline' has no attribute"),
        ("own_pipeline:value", "TypeError: 1 is not a callable object"),
        ("own_pipeline:wrong", "[1, 2]."),
        ("own_pipeline:broken", "KeyError: 'key', raised in "),
        ("own_pipeline:needy", "missing 1 required positional argument: 'data_dir'."),
        (
            "json:loads",
            "TypeError: loads() missing 1 required positional argument: 's'.",
        ),
        ("builtins:dict", "ValueError: no signature found for builtin type"),
    ],
)
def test_a_function_that_makes_no_pipeline_is_one_line(pipeline: str, got: str) -> None:
    done = commands.answer(benchmark.COMMANDS, model="tiny", pipeline=pipeline)

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: --pipeline={pipeline} must be module:function, ")
    assert got in line.partition("; got ")[2]


@pytest.mark.usefixtures("own_module")
def test_parts_that_are_done_in_time_keep_their_results(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()

    def slow(_: object, __: object, measured: benchmark.Measured) -> str:
        measured.results["profile"] = {"found": True}
        clock.move(60.0)
        return "text"

    never = {"tune": pytest.fail, "headspace": pytest.fail}
    monkeypatch.setattr(benchmark, "_PARTS", {"profile": slow, **never})
    config = benchmark.InputConfig(
        pipeline="own_pipeline:make",
        do=("profile", "tune", "headspace"),
        time_limit=60.0,
    )

    limit = TimeLimit(60.0, clock=clock)
    result = benchmark.run(config, Ranks(), limit=limit)

    assert result["cut_off"] == ["tune", "headspace"]
    assert result["profile"] == {"found": True}
    printed = capsys.readouterr()
    assert json.loads(printed.out.splitlines()[-1])["cut_off"] == result["cut_off"]
    assert "leaves no result of tune, headspace. Give more time" in printed.err


@pytest.mark.usefixtures("own_module")
def test_a_search_without_the_time_to_try_a_setting_leaves_it_to_the_next_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []

    def headspace(_: object, __: object, measured: benchmark.Measured) -> str:
        given.append(measured.seconds)
        return "text"

    parts = {"tune": pytest.fail, "headspace": headspace}
    monkeypatch.setattr(benchmark, "_PARTS", parts)
    config = benchmark.InputConfig(
        pipeline="own_pipeline:make", do=("tune", "headspace"), time_limit=30.0
    )

    result = benchmark.run(config, Ranks(), limit=TimeLimit(30.0, clock=Clock()))

    assert result["cut_off"] == ["tune"]
    assert given == [30.0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "One of --data_dir and --pipeline must be given"),
        ({"data_dir": "x", "pipeline": "a:b"}, "One of --data_dir and --pipeline"),
        ({"data_dir": "x", "do": ["tune", "cook"]}, "--do must be one of throughput"),
        ({"data_dir": "x", "disk_budget_gb": 1.0}, "must be given together"),
        ({"data_dir": "/nonexistent"}, "index.json is missing"),
        ({"data_dir": "x", "demand": "0"}, "--demand must be images/s, a number above"),
        ({"pipeline": "a:b", "batch_size": 3}, "--pipeline does not use --batch_size"),
        ({"data_dir": "x", "do": "profile", "cpu_budget": 9}, "use --cpu_budget"),
        ({"data_dir": "x", "do": "profile", "tuning": "y"}, "not use --tuning"),
        (
            {"data_dir": "x", "demand": "h100"},
            "--demand=h100 has figures of googlenet, inception_v3, inception_v4, "
            "resnet101, resnet152, resnet50, resnet50_v1.5, vgg16 to train, got "
            "--model=tiny, for which no figure was found. Give the images/s instead.",
        ),
    ],
)
def test_wrong_flags_are_one_line(values: dict[str, object], message: str) -> None:
    done = commands.answer(benchmark.COMMANDS, model="tiny", **values)

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert message in line


@pytest.mark.usefixtures("own_module")
def test_report_folder_that_vanishes_costs_no_figure(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        benchmark, "_PARTS", {"throughput": lambda *_: shutil.rmtree("out") or "text"}
    )
    config = benchmark.InputConfig(
        pipeline="own_pipeline:make", do=("throughput",), report_dir="out"
    )

    with pytest.raises(OSError, match=r"-input\.json could not be written"):
        benchmark.run(config, Ranks())

    printed = capsys.readouterr().out.splitlines()
    assert json.loads(printed[-1])["command"] == "benchmarks.input"
