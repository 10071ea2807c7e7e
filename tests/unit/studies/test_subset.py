"""studies.subset: ratios of rates, and which records a view has."""

import pathlib

import pytest

from studies.subset import __main__ as study, variants


def _run(seconds: float) -> dict[str, float]:
    return {"num_images": 100, "seconds": seconds, "cpu_seconds": 1.0}


def test_ratio_is_that_of_rates_in_a_round_and_the_median_of_the_rounds() -> None:
    whole, view = [_run(1), _run(2), _run(1)], [_run(2), _run(2), _run(10)]

    ratios = study.rate_ratios({"read 100%": whole, "read 1%": view})

    assert ratios == {"read 100%": 1.0, "read 1%": 0.5}


@pytest.mark.parametrize(("name", "count"), [("read 100%", 24), ("read 10%", 2)])
def test_view_has_its_share_of_the_records(
    data_dir: pathlib.Path, name: str, count: int
) -> None:
    job = variants.Job(
        data_dir=str(data_dir),
        **{"image_size": 8, "batch_size": 2},
        **{"num_warmup_images": 0, "num_timed_images": 2},
    )

    pipeline = variants.pipeline_of(name, job)

    assert pipeline.steps_per_epoch * 2 == count
