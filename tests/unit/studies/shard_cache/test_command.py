"""studies.shard_cache: rates and claims, from made-up figures."""

import pathlib

import pytest

from studies.shard_cache import __main__ as study, capacity


def _run(seconds: float) -> dict[str, float]:
    return {"seconds": seconds, "num_bytes": 1e9, "process_cpu_seconds": 2.0}


def test_rates_are_compared_within_a_round() -> None:
    found = study.rates(
        {
            "shard cache": [_run(2.0), _run(20.0)],
            "obstore": [_run(1.0), _run(10.0)],  # a slow spell of the machine
            "rclone": [_run(4.0), _run(40.0)],
        }
    )

    assert found["shard cache"]["ratio"] == pytest.approx(0.5)
    assert found["obstore"]["ratio"] == pytest.approx(2.0)
    assert found["obstore"]["megabytes_per_second_max"] == pytest.approx(1000.0)
    assert found["rclone"]["cpu_seconds_per_gigabyte"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("ratio", "rate", "hits", "met"),
    [
        (1.03, 0.85, 0.45, [True, True, True]),
        (1.031, 0.849, 0.449, [False, False, False]),
    ],
)
def test_claims(ratio: float, rate: float, hits: float, met: list[bool]) -> None:
    found = {
        "cost": {"local files": {"cpu_ratio": 1.0}, "warm cache": {"cpu_ratio": ratio}},
        "download": {"shard cache": {"ratio": rate}},
        "hits": [{"share": 0.5, "hit_rate": hits, "optimal_hit_rate": 0.4999999}],
    }

    checked = study.claims(found)

    assert [claim["met"] for claim in checked] == met
    assert "points below optimal hits, cache of 50% <= 5" in checked[2]["claim"]


@pytest.mark.parametrize(
    ("opened", "users", "rate", "met"),
    [
        (2.0, 100.0, 1400.0, [True, True, True]),
        (2.1, 100.1, 1399.0, [False, False, False]),
    ],
)
def test_claims_of_a_full_cache_are_about_10_terabytes(
    opened: float, users: float, rate: float, met: list[bool]
) -> None:
    row = {
        "open_seconds": opened,
        "users_megabytes": users,
        "megabytes_per_second": rate,
    }

    rows = [row | {"terabytes": size} for size in (1.0, 10.0, 100.0)]
    checked = study.claims({"capacity": rows})

    assert [claim["met"] for claim in checked] == met


def test_a_small_full_cache_is_measured_and_removed(tmp_path: pathlib.Path) -> None:
    found = capacity.row(0.01, 2, tmp_path / "cache")

    assert found["pieces"] == 9 * 256
    assert 0 < found["users_megabytes"] < 1
    worst = found["worst"]["milliseconds"]
    assert 0 < found["reserve_milliseconds"] <= found["reserve_p99_milliseconds"]
    assert found["reserve_p99_milliseconds"] <= worst
    assert 0 <= found["worst"]["request"] < 230
    assert not (tmp_path / "cache").exists()


def test_claims_of_parts_that_did_not_run_are_absent() -> None:
    assert study.claims({}) == []
