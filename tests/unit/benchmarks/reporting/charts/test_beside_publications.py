"""benchmarks.reporting.charts.sweeps: a sweep beside the published tests."""

from typing import Any

from benchmarks.reporting.charts import sweeps
from benchmarks.results.collection import Result
from benchmarks.results.other_results import SweepResult

_DELL = {
    "images_per_second_per_accelerator": 712.0,
    "num_accelerators": 72,
    "accelerator": "v100",
    "storage_megabytes_per_second": 5907.0,
    "source": "Dell",
}


def _sweep(document: dict[str, Any]) -> Result[SweepResult]:
    return Result("sweep", {"command": "benchmarks.sweep", **document})


def _row(ranks: int, **more: Any) -> dict[str, Any]:
    return {
        "model": "resnet50",
        "mode": "train",
        "num_ranks": ranks,
        "examples_per_second": 600.0 * ranks,
        "examples_per_second_per_rank": 600.0,
        "gates_met": False,
        "published": _DELL,
        "rate_over_published": 600 / 712,
        **more,
    }


def test_bars_of_one_rank_stand_beside_those_of_one_gpu() -> None:
    rows = [
        *(_row(1), _row(2)),
        _row(1, model="tiny", mode="infer", published=None, rate_over_published=None),
    ]

    (chart,) = sweeps.beside_publications([_sweep({"rows": rows})])

    bars = chart.plots[0].spec["data"]["values"]
    assert [(bar["name"], bar["shown"]) for bar in bars] == [
        *(("resnet50, 1 rank", "600"), ("resnet50, 1 rank", "712")),
        *(("resnet50, 2 ranks", "600"), ("resnet50, 2 ranks", "712")),
    ]
    assert chart.sentences[0] == (
        "resnet50, 1 rank: 600 images/s a rank; published 712 a GPU, on 72 v100."
    )
    assert [row[0] for row in chart.rows][2] == "tiny infer, 1 rank"
    second = dict(zip(chart.columns, chart.rows[1], strict=True))
    columns = ("Gate", "Published, a GPU", "Ours", "Published storage, MB/s")
    assert [second[name] for name in columns] == ["not met", "712", "84.3%", "5,907"]
    assert "Kind" not in chart.columns, "nobody knows it"
    assert all(len(row) == len(chart.columns) for row in chart.rows)


def test_sweeps_without_published_rows_have_no_chart() -> None:
    for rows in (None, [], ["x"], [_row(1, published=None)], [_row(1, published=3)]):
        assert sweeps.beside_publications([_sweep({"rows": rows})]) == []


def test_settings_that_differ_tell_rows_apart() -> None:
    rows = [_row(1, cache="cold"), _row(1, cache="warm", gates_met="odd")]

    (chart,) = sweeps.beside_publications([_sweep({"rows": rows})])

    names = [row[0] for row in chart.rows]
    assert names == ["resnet50, 1 rank, cold", "resnet50, 1 rank, warm"]


def test_the_tier_comes_first_and_says_the_place() -> None:
    rows = [
        _row(1, tier="remote", data_dir="s3://a", cache=None),
        _row(1, tier="local_cold", data_dir="/data", cache="cold"),
    ]

    (chart,) = sweeps.beside_publications([_sweep({"rows": rows})])

    names = [row[0] for row in chart.rows]
    assert names == ["remote, resnet50, 1 rank", "local_cold, resnet50, 1 rank"]
