"""studies.harness: turns, timing, and the end of a study."""

import dataclasses
import json
import pathlib
import types
from collections.abc import Callable

import pytest

from benchmarks.results import environment
from studies import harness

OUTCOME = harness.Outcome(figures={"config": {}, "ratio": 1.5}, table="a\ntable")
RESULT = {
    "command": "studies.x",
    "schema_version": 1,
    "config": {},
    "ratio": 1.5,
    "environment": {"cpu": "x"},
}
LINE = json.dumps(RESULT, separators=(",", ":"))


@pytest.fixture
def conclude(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Concludes a study with this outcome, and a value of --save_result."""
    monkeypatch.setattr(environment, "describe", lambda: {"cpu": "x"})

    def run(outcome: harness.Outcome, path: object = None) -> int:
        options = harness.StudyOptions(save_result=path and str(path))
        return harness.conclude("studies.x", options, outcome)

    return run


def test_variants_run_in_turns_and_warm_ups_are_not_kept() -> None:
    order: list[tuple[str, int]] = []

    def measure(name: str, step: int) -> dict[str, float]:
        order.append((name, step))
        return {"step": step}

    runs = harness.turns("ab", measure, 2, num_warm_ups=1, alternating=True)

    pairs = [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    assert order == pairs
    assert runs == {name: [{"step": 1}, {"step": 2}] for name in "ab"}
    order.clear()
    harness.turns("ab", measure, 2)
    assert [name for name, _ in order] == ["a", "b", "a", "b"]


def test_each_run_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    def measure(name: str, _: int) -> dict[str, float]:
        print("before", name)
        images = {"cpu_seconds": 2.0, "seconds": 4.0, "num_images": 1000.0}
        return {"images": images, "reads": {"rate": 1.23456}, "no": {}}[name]

    harness.turns(["images", "reads", "no"], measure, 1)

    assert capsys.readouterr().err.splitlines() == [
        "images: 2.000 CPU-s / 1000 images, 250 images/s",
        "reads: rate 1.235",
        "no: skipped",
    ]


def test_measure_times_whole_batches_after_the_warm_up() -> None:
    read: list[int] = []

    def batches():
        while True:
            read.append(1)
            yield

    job = types.SimpleNamespace(batch_size=4, num_warmup_images=5, num_timed_images=9)
    # This clock counts the batches.
    run = harness.time_batches(batches(), job, lambda: float(len(read)))

    assert len(read) == 5
    assert run["cpu_seconds"] == 3
    assert run["num_images"] == 12
    assert run["seconds"] > 0


def test_a_study_prints_its_table_then_the_line_and_writes_the_file(
    conclude: Callable[..., int],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "result.json"

    assert conclude(OUTCOME, path) == 0

    assert capsys.readouterr().out == f"a\ntable\n{LINE}\n"
    assert json.loads(path.read_text()) == RESULT


@pytest.mark.parametrize("path", [None, ""])
def test_without_a_path_no_file_is_written(
    path: str | None,
    conclude: Callable[..., int],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)

    assert conclude(OUTCOME, path) == 0

    assert list(tmp_path.iterdir()) == []


def test_figures_are_printed_even_if_the_file_cannot_be_written(
    conclude: Callable[..., int],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(FileNotFoundError):
        conclude(OUTCOME, tmp_path / "missing" / "result.json")

    assert capsys.readouterr().out == f"a\ntable\n{LINE}\n"


def test_a_missed_target_is_named_and_is_exit_code_2(
    conclude: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert conclude(dataclasses.replace(OUTCOME, misses=["ratio is 1.5"])) == 2

    assert capsys.readouterr().err == "ratio is 1.5\n"


def test_config_has_folders_without_their_paths() -> None:
    job = harness.Job(data_dir="/some/where/data", batch_size=3)

    config = harness.config_of(job, num_rounds=5)

    assert (config["data_dir"], config["batch_size"]) == ("data", 3)
    assert config["num_rounds"] == 5
