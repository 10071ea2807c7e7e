"""Accelerators that a rate feeds."""

import pytest

from benchmarks.models.accelerators import Figure
from benchmarks.results.other_results import StorageReading
from benchmarks.storage_probe import probe

_RATES = {
    "v100": {"resnet50": 1000.0, "inception_v4": 250.0},
    "h100": {"resnet50": 5000.0},
}
_KNOWN = {
    name: {
        "train": {
            model: Figure(
                accelerator=name, model=model, images_per_second=rate, source="made up"
            )
            for model, rate in rates.items()
        }
    }
    for name, rates in _RATES.items()
}


def test_number_is_the_rate_over_what_one_reads() -> None:
    rows, _ = probe.fed(1.5e9, [100_000.0], ["resnet50", "inception_v4"], _KNOWN)

    found = {(r["model"], r["accelerator"]): r["num_accelerators"] for r in rows}
    assert found == {
        ("resnet50", "v100"): pytest.approx(15.0),
        ("resnet50", "h100"): pytest.approx(3.0),
        ("inception_v4", "v100"): pytest.approx(60.0),
    }
    assert rows[0]["source"] == "made up"


def test_sentences_name_models_and_sizes() -> None:
    _, sentences = probe.fed(1.5e9, [100_000, 1_351_000], ["resnet50"], _KNOWN)

    assert sentences == [
        "It feeds 3.0 H100 or 15 V100 that train resnet50 with records of 100 kB.",
        "It feeds 0.22 H100 or 1.1 V100 that train resnet50 with records of 1.35 MB.",
    ]


def _measured(what: str, state: str, rate: float) -> StorageReading:
    return StorageReading(what=what, state=state, megabytes_per_second=rate)


def test_best_is_the_fastest_row_outside_of_the_page_cache() -> None:
    cold = [_measured("shards", "cold", rate) for rate in (100.0, 300.0, 200.0)]
    others = [
        _measured("shards", "warm", 9000.0),
        _measured("random", "direct", 900.0),
        _measured("write", "durable", 700.0),
        StorageReading(what="shards", state="cold", skipped="the kernel refuses it"),
    ]
    direct = _measured("sequential", "direct", 800.0)

    assert probe.best([*others, *cold]) == cold[1]
    assert probe.best([*others, direct, *cold]) == direct
    assert probe.best(others) == others[0], "memory is the storage"
    assert probe.best(others[1:]) is None
    assert probe.fastest_write(others) == others[2]
    assert probe.fastest_write(cold) is None
