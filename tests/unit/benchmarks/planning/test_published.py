"""published: published rows, and which one fits a measured row."""

from typing import Any

import pytest

from benchmarks.models import catalog
from benchmarks.planning import published
from benchmarks.planning.published import ACCELERATORS, PUBLICATIONS
from benchmarks.results import tree
from benchmarks.results.other_results import PublishedRow
from benchmarks.results.train_result import TrainResult


def test_rows_are_of_known_models_and_modes() -> None:
    assert {row.model for row in PUBLICATIONS} <= set(catalog.MODELS)
    assert {row.mode for row in PUBLICATIONS} == {"train", "infer"}
    assert {row.accelerator for row in PUBLICATIONS} <= {*ACCELERATORS, "p100"}


def test_rates_that_are_computed_are_those_of_the_reports() -> None:
    """Arithmetic of the reports: 5,907 MB/s at 115,154 bytes, 19,895 at 1.351 MB."""
    computed = {
        row.model: round(row.images_per_second_per_accelerator)
        for row in PUBLICATIONS
        if row.is_computed
    }

    assert computed == {"resnet50": 712, "inception_v4": 205}


@pytest.mark.parametrize(
    ("model", "mode", "accelerator", "ranks", "expected"),
    [
        ("resnet50", "train", "v100", 1, (4, 2940.0)),
        ("resnet50", "train", "v100", 64, (72, 5907e6 / 115_154)),
        ("resnet50", "train", "a100_mlperf_storage", 8, (8, 14_356.0)),
        ("resnet50", "train", "h100", 8, None),  # none was published
        ("resnet50", "train", None, 8, (8, 14_356.0)),  # any accelerator
        ("googlenet", "infer", "v100", 8, (8, 42_000.0)),  # the first of two
        ("googlenet", "train", None, 8, None),
        ("tiny", "train", None, 1, None),
    ],
)
def test_the_nearest_row_of_the_same_kind_is_found(
    model: str,
    mode: str,
    accelerator: str | None,
    ranks: int,
    expected: tuple[int, float] | None,
) -> None:
    found = published.find(
        model=model, mode=mode, accelerator=accelerator, num_accelerators=ranks
    )

    got = found and (found.num_accelerators, found.images_per_second)
    assert got == expected


@pytest.mark.parametrize("row", PUBLICATIONS, ids=lambda row: row.source)
def test_the_figures_of_a_row_are_possible(row: PublishedRow) -> None:
    assert row.source
    assert row.num_accelerators >= 1
    positive = (
        *(row.images_per_second, row.batch_size, row.image_size, row.record_bytes),
        row.storage_megabytes_per_second,
    )
    assert all(0 < figure < 1e9 for figure in positive if figure is not None)
    shares = (row.host_cpu_fraction, row.accelerator_busy_fraction)
    assert all(0 <= share <= 1 for share in shares if share is not None)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ({}, ""),
        ({"image_size": 299}, "images of 224 pixels there, 299 here"),
        ({"read_only": True}, "images were decoded"),
        ({"synthetic": True}, "images were decoded"),
        ({"record_bytes": 10_000.0}, "records of 115 kB there, 10 here"),
        ({"record_bytes": None}, "the bytes of a record are not known of both"),
    ],
)
def test_a_run_is_compared_with_a_row_of_the_same_images_only(
    run: dict[str, Any], reason: str
) -> None:
    row = PUBLICATIONS[0]
    size = {"record_bytes": 110_000.0, **run}["record_bytes"]
    document = {
        "config": run,
        "examples_per_second": 100.0,
        "consumed_megabytes_per_second": size and size * 100 / 1e6,
    }

    assert published.differences(row, tree.read(TrainResult, document)) == reason
