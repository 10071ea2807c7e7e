"""studies.cores: what several ranks share, and ratios of rates."""

import pathlib

from studies import cores


def _job(data_dir: pathlib.Path) -> cores.Job:
    return cores.Job(
        data_dir=str(data_dir),
        image_size=8,
        batch_size=2,
        num_warmup_images=4,
        num_timed_images=16,
    )


def test_ranks_share_the_images_and_the_records(data_dir: pathlib.Path) -> None:
    ranks = [cores.of_rank(_job(data_dir), rank, 4) for rank in range(4)]

    assert [rank.num_timed_images for rank in ranks] == [4] * 4
    assert [rank.num_warmup_images for rank in ranks] == [2] * 4
    pipelines = [cores.pipeline_of(rank) for rank in ranks]
    assert [each.steps_per_epoch for each in pipelines] == [3] * 4  # of 24 records
    assert [each.source.rank for each in pipelines] == [0, 1, 2, 3]
    assert {each.tuning.private_threadpool_size for each in pipelines} == {1}


def test_ranks_are_as_slow_as_the_slowest_and_cost_what_all_cost() -> None:
    ranks = [
        {"num_images": 10.0, "seconds": seconds, "cpu_seconds": 1.5}
        for seconds in (1.0, 4.0)
    ]

    found = cores.together(ranks)

    assert found == {"num_images": 20.0, "seconds": 4.0, "cpu_seconds": 3.0}


def test_ratio_is_that_of_rates_in_a_round_and_the_median_of_the_rounds() -> None:
    def runs(*rates: float) -> list[dict[str, float]]:
        return [{"num_images": rate, "seconds": 1.0} for rate in rates]

    ratio = cores.rate_ratio({"one core": runs(5, 9, 1), "all cores": runs(9, 9, 2)})

    assert ratio == 1.8
