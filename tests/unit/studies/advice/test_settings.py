"""studies.advice.settings: drawn settings, and what is asked about them."""

import math

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from benchmarks.advisor import ceilings
from studies.advice import settings
from studies.advice.settings import WINDOW, Calibration, Setting, draw

CALIBRATION = Calibration(
    num_cores=4,
    core_seconds=0.002,
    step_overhead_seconds=1e-4,
    storage_share=0.95,
    record_bytes=100e3,
)


@hypothesis_settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), number=st.integers(1, 12))
def test_settings_are_balanced_and_in_range(seed: int, number: int) -> None:
    drawn = draw(seed, number, CALIBRATION, can_limit=True)

    limited = [one for one in drawn if one.storage_bytes_per_second]
    cached = [one for one in limited if one.cache_share]
    fewer = [one for one in drawn if one.num_cores < 4]
    assert len(drawn) == number
    assert len(limited) == (number + 1) // 2
    assert len(cached) == (len(limited) + 1) // 2
    assert len(fewer) == (number + 1) // 2
    assert all(1 <= one.num_cores <= 4 for one in drawn)
    assert all(WINDOW % one.batch_size == 0 for one in drawn)
    assert all(0.4 <= one.cache_share <= 0.8 for one in cached if one.cache_share)
    for one in drawn:
        asked = settings.scenario(one, CALIBRATION, num_images=10_000)
        said = ceilings.predict(asked).ceilings
        alone = 1 / (1 / said["accelerator"] - CALIBRATION.step_overhead_seconds)
        assert 0.49 <= alone / said["cpu"] <= 1.61
        assert said["storage"] / said["cpu"] >= 0.6 * 0.95 * 0.99


def test_a_seed_gives_the_same_settings() -> None:
    first, again, other = (
        draw(seed, 8, CALIBRATION, can_limit=True) for seed in (20, 20, 21)
    )

    assert first == again
    assert first != other


def test_without_limits_no_setting_has_a_slow_storage_or_a_cache() -> None:
    drawn = draw(20, 8, CALIBRATION, can_limit=False)

    assert {one.storage_bytes_per_second for one in drawn} == {None}
    assert {one.cache_share for one in drawn} == {None}


def test_the_scenario_has_the_ceilings_of_the_setting() -> None:
    setting = Setting(
        num_cores=2,
        batch_size=100,
        step_time_ms=190.0,
        storage_bytes_per_second=20_000_000,
        cache_share=0.5,
    )

    asked = settings.scenario(setting, CALIBRATION, num_images=8192)
    said = ceilings.predict(asked).ceilings

    assert asked.cached_fraction == 0.5
    assert said["accelerator"] == pytest.approx(100 / 0.2)
    assert said["cpu"] == pytest.approx(1000)
    assert said["storage"] == pytest.approx(20e6 * 0.95 / 0.5 / 100e3)


def test_a_run_in_memory_has_no_limit_of_the_storage() -> None:
    setting = Setting(num_cores=1, batch_size=32, step_time_ms=10.0)

    asked = settings.scenario(setting, CALIBRATION, num_images=8192)

    assert asked.storage.bytes_per_second == math.inf
    assert asked.cached_fraction == 0


def test_wrong_figures_are_refused() -> None:
    fields = {
        "num_cores": 1,
        "core_seconds": 1.0,
        "step_overhead_seconds": 0.0,
        "storage_share": 1.0,
        "record_bytes": 1.0,
    }
    for name in ("core_seconds", "storage_share", "record_bytes"):
        with pytest.raises(ValueError, match=f"{name} must be above 0"):
            Calibration(**fields | {name: 0})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="step_overhead_seconds must be >= 0"):
        Calibration(**fields | {"step_overhead_seconds": -1})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must have a limited storage"):
        Setting(num_cores=1, batch_size=32, step_time_ms=1.0, cache_share=0.5)
