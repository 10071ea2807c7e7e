"""benchmarks.reporting.charts.ceilings: demand and ceilings of a prediction."""

import pytest

from benchmarks.reporting.charts import ceilings
from benchmarks.results.collection import Result
from tests.support.data import sample_results


def test_each_resource_with_a_limit_has_a_line() -> None:
    (chart,) = ceilings.demand([Result("advice", sample_results.advice())])

    assert [label for label, _ in chart.legend] == [
        "demand of the accelerators",
        "cores of the hosts",
        "storage",
        "network of the hosts",
    ]
    warm, cold = (plot.spec["data"]["values"] for plot in chart.plots)
    # Memory holds the data: neither storage nor link has a line there.
    assert {point["line"] for point in warm} == {
        *("demand of the accelerators", "cores of the hosts")
    }
    storage = [point for point in cold if point["line"] == "storage"]
    assert [point["x"] for point in storage] == [1, 2, 4, 8, 16, 32, 64, 72]
    assert {point["y"] for point in storage} == {51_235.7}
    assert chart.plots[1].spec["layer"][-1]["data"]["values"][-1]["y"] == pytest.approx(
        51_235.7, abs=0.1
    )
    assert chart.sentences[0].startswith(
        "72 V100 on 9 hosts with 8 each, training resnet50"
    )
    assert chart.rows[-1][:4] == ["72", "9", "91,872", "demand of the accelerators"]
    assert all(len(row) == len(chart.columns) for row in chart.rows)


def test_one_drawing_where_no_cache_holds_anything() -> None:
    document = sample_results.advice()
    for row in document["rows"]:
        row["ceilings"] = row["first_epoch_ceilings"]
        row["images_per_second"] = row["first_epoch_images_per_second"]

    (chart,) = ceilings.demand([Result("advice", document)])

    assert [plot.title for plot in chart.plots] == ["In each epoch"]


def test_documents_without_figures_have_no_chart() -> None:
    row = {"num_accelerators": 1, "ceilings": 3}
    for rows in ([], ["x", 3], [{"num_accelerators": "8"}], [row, row]):
        assert (
            ceilings.demand(
                [Result("advice", {"command": "benchmarks.advise", "rows": rows})]
            )
            == []
        )
