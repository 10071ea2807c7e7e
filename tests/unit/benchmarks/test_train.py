"""python -m benchmarks.train without a model: its errors, lines and exit codes."""

import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import train
from benchmarks.distributed import ranks
from benchmarks.distributed.ranks import Ranks
from benchmarks.page_cache import states
from benchmarks.page_cache.states import CacheStatus, PageCache
from benchmarks.system.machine import Machine
from benchmarks.training import run
from benchmarks.training.setting import Setting
from tests.support.faults.damage import flip
from tests.support.processes import commands

# Steps within the limits of a unit test; no model is built.
EMULATED = {"image_size": 32, "batch_size": 4, "num_steps": 10, "num_warmup_steps": 1}
EMULATED |= {"step_time_ms": 5.0}
# Enough steps for 2 windows of 24 records that are read ahead, and for 10 more.
STEADY = {"num_steps": 60, "num_warmup_steps": None}

HOST = CacheStatus(
    rank=0,
    cache=PageCache(Machine("boot")),
    actions={},
    num_bytes=1000,
    resident_bytes=1000,
)


@pytest.fixture(autouse=True, scope="module")
def _page_cache() -> Iterator[None]:
    """One host with all files in memory, in place of a process that looks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "prepare", lambda *_, **__: (HOST,))
        yield


@pytest.fixture(autouse=True, scope="module")
def _horovod() -> Iterator[None]:
    """Ends Horovod: its thread would wake each millisecond during all later tests."""
    yield
    if ranks.hvd is not None:
        ranks.hvd.shutdown()


Result = tuple[int, dict[str, Any], str]


def _result(data_dir: pathlib.Path, **values: object) -> Result:
    """Returns exit code, JSON line and output of a run with an emulated accelerator."""
    values = {"model": "tiny", "data_dir": str(data_dir)} | EMULATED | values
    done = commands.answer(train.COMMANDS, **values)
    return done.returncode, done.result, done.stdout


@pytest.fixture(scope="module")
def short(data_dir: pathlib.Path) -> Result:
    """A run of 10 steps."""
    return _result(data_dir, require=["au>=0%"])


@pytest.fixture(scope="module")
def steady(data_dir: pathlib.Path) -> Result:
    """A run that is long enough for its gates."""
    return _result(data_dir, require=["p50_step_ms>=5", "au>=0%"], **STEADY)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "Error: One of --data_dir and --synthetic must be given"),
        (
            {"data_dir": "{tmp}"},
            "index.json is missing. The folder is empty. Create one",
        ),
        ({"data_dir": "{data}", "batch_size": 999}, "24 records cannot give 1 rank"),
        ({"data_dir": "{data}", "mode": "eval"}, "--mode=eval must have"),
        ({"data_dir": "{data}", "report_dir": "{data}/index.json"}, "File exists"),
        (
            {"data_dir": "{data}", "batch_size": 4, "num_classes": 9},
            "--num_classes must be >= 1000",
        ),
        (
            {"data_dir": "{data}", "batch_size": 4, "emulate": "h100"},
            "--model=tiny, for which no figure was found",
        ),
        (
            {"data_dir": "{data}", "batch_size": 4, "emulate": "h1000"},
            "--emulate must be one of a100, ",
        ),
        (
            {"data_dir": "{data}", "emulate": "own", "accelerators_file": "/absent"},
            "--accelerators_file=/absent cannot be read: No such",
        ),
        (
            {
                "data_dir": "{data}",
                "emulate": "own",
                "accelerators_file": "{data}/index.json",
            },
            "must be a table of source, train, infer, got",
        ),
        (
            {"data_dir": "{data}", "model": "inception_v4", "image_size": 32},
            "image",
        ),
    ],
)
def test_expected_failures_are_one_line_and_exit_code_1(
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    values: dict[str, object],
    message: str,
) -> None:
    filled = {
        name: value.format(data=data_dir, tmp=tmp_path)
        if isinstance(value, str)
        else value
        for name, value in values.items()
    }

    done = commands.answer(train.COMMANDS, **{"model": "tiny"} | filled)

    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_shard_cut_short_is_named(
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    shutil.copytree(data_dir, tmp_path, dirs_exist_ok=True)
    shard = tmp_path / "train-00001-of-00003"
    shard.write_bytes(shard.read_bytes()[:-1])

    done = commands.answer(train.COMMANDS, model="tiny", data_dir=str(tmp_path))

    assert done.returncode == 1
    assert f"Shard {shard} must have" in done.stderr


def test_damaged_record_is_one_line_that_names_it(
    copy_dir: pathlib.Path,
) -> None:
    shard = copy_dir / "train-00000-of-00003"
    flip(shard, 500, mask=1)  # in the first record's data

    done = commands.answer(
        train.COMMANDS, model="tiny", data_dir=str(copy_dir), **EMULATED
    )

    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert f"{shard}: record 0 of the split at byte 0 (image train/" in line
    assert "Traceback" not in done.stderr


def test_gates_make_the_exit_code(
    data_dir: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    steady: Result,
) -> None:
    code, figures, _ = steady
    met = [gate["passed"] for gate in figures["gates"]]
    monkeypatch.setattr(run, "_measure", lambda *_: figures)
    gates = ["examples_per_second>1", "p50_step_ms>=5", "au<=1%"]
    other_code, result, printed = _result(data_dir, require=gates, **STEADY)
    done = commands.answer(
        train.COMMANDS, model="tiny", data_dir=str(data_dir), require=["speed>9"]
    )

    assert (code, met) == (0, [True, True])
    assert other_code == 2
    assert [gate["passed"] for gate in result["gates"]] == [True, True, False]
    assert "Gate au<=1% is not met" in printed
    assert "speed" in done.stderr


def test_gates_are_not_met_by_a_run_that_is_too_short(short: Result) -> None:
    code, result, printed = short

    steady = result["steady_state"]
    assert code == 2
    assert not steady["reached"]
    assert steady["read_ahead_examples_per_rank"] == [48]
    assert steady["num_examples_before_timing_per_rank"] == [4]
    assert "Timing began after step 1, but a rank" in printed
    assert "Gate au>=0% is not met: got " in printed


def test_emulated_accelerator_takes_its_time_and_is_reported(steady: Result) -> None:
    _, result, printed = steady

    # A busy host makes a step longer; the accelerator in its place computes no longer.
    assert result["emulated_seconds_per_step"] == 0.005
    assert result["compute_seconds_per_step"] == pytest.approx(0.005)
    assert result["accelerator_utilization"] == pytest.approx(
        0.005 * result["num_timed_steps"] / result["timed_seconds"]
    )
    assert sum(result["critical_path"]["shares"].values()) == pytest.approx(1)
    assert result["steady_state"]["reached"]
    assert result["num_warmup_steps"] == 12
    assert result["window_steps"]["num_steps"] == 10  # a window is 24 records, 6 steps
    assert result["other_steps"]["num_steps"] == 50
    assert "accuracy" not in result
    assert printed.startswith("Ranks: 1, of which 1 on this host; threads for each: ")
    assert result["telemetry"]["host_cpu_fraction"] >= 0
    assert result["cache"]["before"] == [HOST.as_json()]
    assert f"Page cache {result['cache']['text']}" in printed
    assert result["cache"]["size_rule"]["text"] in printed


def test_run_in_another_state_of_the_page_cache_than_claimed_is_an_error(
    data_dir: pathlib.Path,
) -> None:
    """The made-up files are in memory, so the run is not cold."""
    done = commands.answer(
        train.COMMANDS, model="tiny", data_dir=str(data_dir), cache="cold", **EMULATED
    )

    assert done.returncode == 1
    assert (
        "--cache=cold must hold in every timed epoch, but epoch 0 was warm"
        in done.stderr
    )
    assert "--cache=as_is measures in any state." in done.stderr


def test_three_bars_of_repeated_runs(
    monkeypatch: pytest.MonkeyPatch, data_dir: pathlib.Path, short: Result
) -> None:
    """Two repeats of three runs whose rates are made up."""
    rates = iter([500.0, 100.0, 98.0, 500.0, 100.0, 99.0])

    def measure(setting: Setting, ranks: Ranks) -> dict[str, Any]:
        return short[1] | {"examples_per_second": next(rates)}

    monkeypatch.setattr(run, "_measure", measure)

    code, result, printed = _result(data_dir, bars=True, repeat=2)

    assert code == 0
    # The result is the slower one of two.
    assert result["examples_per_second"] == 98.0
    assert result["bars"]["real_over_synthetic"] == 0.98
    assert result["bars"]["sentence"] in printed
    assert result["reproducibility"]["examples_per_second_per_run"] == [98.0, 99.0]
    assert "2 runs differ by 1.0%, " in printed


def test_accelerator_of_a_file_is_named_in_the_result(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "own.toml"
    path.write_text('[own]\nsource = "measured here"\n[own.train]\ntiny = 2000\n')

    _, result, printed = _result(
        data_dir,
        emulate="own",
        accelerators_file=str(path),
        step_time_ms=None,
    )

    assert result["emulated_seconds_per_step"] == 4 / 2000
    assert result["emulation"] == {
        "accelerator": "own",
        "model": "tiny",
        "examples_per_second": 2000.0,
        "basis": "published",
        "ratio": None,
        "base": None,
        "source": "measured here",
        **dict.fromkeys(("date", "precision", "measurement"), "not stated"),
    }
    assert (
        "Emulated: tiny on own, 2,000 images/s, published (measured here)\n" in printed
    )


def test_run_that_only_reads_says_so(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    values = {"read_only": True, "image_size": None, "report_dir": str(tmp_path)}
    code, result, printed = _result(data_dir, **values)

    text = "Records are read and not decoded: what storage benchmarks measure\n"
    assert (code, result["emulation"]) == (0, None)
    assert result["config"]["read_only"]
    assert text in printed
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_runs_that_disagree_are_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, data_dir: pathlib.Path, short: Result
) -> None:
    rates = iter([100.0, 110.0])
    monkeypatch.setattr(
        run, "_measure", lambda *_: short[1] | {"examples_per_second": next(rates)}
    )

    code, result, printed = _result(data_dir, repeat=2)

    assert code == 2
    assert not result["reproducibility"]["reproducible"]
    assert "NOT within the 5%" in printed


def test_padding_of_batches_is_told(data_dir: pathlib.Path) -> None:
    """7 records fill 2 batches of 4: 10 steps after the first one pad 5 of 40."""
    _, result, printed = _result(data_dir, mode="infer")

    assert result["padding_fraction"] == pytest.approx(1 / 8)
    assert "Padding: 12.5% of the batches were no records" in printed


def test_report_folder_that_vanishes_costs_no_figure(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    folder = tmp_path / "report"

    def sheet(*_: object, **__: object) -> None:
        assert folder.exists()
        shutil.rmtree(folder)
        raise RuntimeError("no picture")

    monkeypatch.setattr(run.tfpipe.view, "contact_sheet", sheet)
    values = {"data_dir": str(data_dir), "report_dir": str(folder), **EMULATED}
    done = commands.answer(train.COMMANDS, model="tiny", **values)

    assert done.returncode == 1
    assert done.result["examples_per_second"] > 0
    (line,) = done.stderr.splitlines()
    assert "-train-tiny-x1.png could not be written: no picture." in line
    assert "-train-tiny-x1.json could not be written: [Errno 2]" in line
