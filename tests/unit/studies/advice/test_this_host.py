"""studies.advice.this_host: rows and tables, with runs that are made up."""

import pathlib
from typing import Any

import pytest

from studies.advice import this_host
from studies.advice.runs import Place
from studies.advice.settings import Calibration, Setting

CALIBRATION = Calibration(
    num_cores=2,
    core_seconds=0.002,
    step_overhead_seconds=0.0,
    storage_share=1.0,
    record_bytes=100e3,
)
PLACE = Place(
    large=pathlib.Path("large"),
    small=pathlib.Path("small"),
    cache_dir=pathlib.Path("cache"),
    num_timed_windows=10,
)
# 400 images/s of the accelerator, 1000 of two cores.
SETTING = Setting(num_cores=2, batch_size=64, step_time_ms=160.0)


def result(rate: float, others: float | None) -> dict[str, Any]:
    """Returns what a run prints of a rate and the CPU share of other processes."""
    return {
        "examples_per_second": rate,
        "stall_fraction": 0.1,
        "cpu_seconds_per_example": 0.002,
        "host_load": {"others_cpu_fraction": others},
        "storage": {},
    }


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Results or errors of the runs to come, the first one first."""
    coming: list[Any] = []

    def train(*_: Any) -> Any:
        one = coming.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    monkeypatch.setattr(this_host.runs, "train", train)
    return coming


def test_a_setting_is_predicted_by_both_forms() -> None:
    said = this_host.predict(PLACE, SETTING, CALIBRATION)

    assert said["binding"] == "accelerator"
    assert said["predicted_images_per_second"] == pytest.approx(400)
    assert said["simulated_images_per_second"] == pytest.approx(400, rel=0.02)


@pytest.mark.parametrize(
    ("results", "rate", "num_tries"),
    [
        ([result(400, 0.01)], 400, 1),
        ([result(400, None)], 400, 1),
        ([result(300, 0.4), result(390, 0.02)], 390, 2),
        ([result(300, 0.4), result(200, 0.6)], 300, 2),
    ],
)
def test_a_disturbed_run_is_repeated_once(
    runs: list[Any], results: list[Any], rate: float, num_tries: int
) -> None:
    runs += results

    found = this_host.measure(PLACE, SETTING)

    assert (found["measured_images_per_second"], found["num_tries"]) == (
        rate,
        num_tries,
    )
    assert not runs


def test_rows_say_which_predictions_are_off_and_which_runs_failed(
    runs: list[Any],
) -> None:
    runs += [result(390, 0.0), result(300, 0.0), OSError("it broke")]

    rows = this_host.compare(PLACE, [SETTING] * 3, CALIBRATION)
    lines = this_host.table(rows).splitlines()

    assert [row["is_within"] for row in rows] == [True, False, False]
    assert [row["ratio"] and round(row["ratio"], 3) for row in rows] == [
        1.026,
        1.333,
        None,
    ]
    assert len(lines) == 5
    assert not lines[1].endswith("off")
    assert lines[2].endswith("off")
    assert lines[3].endswith("failed: it broke")
    assert lines[4].startswith("1 of 3 within 10%; median error 17.9%, largest 33.3%")


def test_a_run_in_memory_and_a_cached_run_read_their_own_data() -> None:
    cached = Setting(
        num_cores=1,
        batch_size=32,
        step_time_ms=1.0,
        storage_bytes_per_second=1,
        cache_share=0.5,
    )

    assert (PLACE.of(SETTING), PLACE.num_images(SETTING)) == (
        PLACE.large,
        16 * 1024,
    )
    assert (PLACE.of(cached), PLACE.num_images(cached)) == (PLACE.small, 8 * 1024)
    assert (SETTING.num_windows, cached.num_windows) == (2, 8)
