"""benchmarks.reporting.charts.runs: time, steps, learning."""

import itertools
import json
from typing import Any

import pytest

from benchmarks.reporting.charts import runs
from benchmarks.results import collection as results
from benchmarks.results.collection import Group, Result
from tests.support.data import sample_results


def _groups(*documents: dict[str, Any]) -> list[Group]:
    found = [Result(str(place), document) for place, document in enumerate(documents)]
    return list(results.collect(found).groups)


@pytest.mark.parametrize(
    ("shares", "second"),
    [
        ([0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0], 4),
        ([0.2, 0.4, 0.6, 0.6, 0.6, 0.6], 2),  # memory holds no more than this
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], None),  # it still fills
        ([1.0, 1.0, 1.0], None),  # it was full before
        ([0.0, 0.3, 0.6, 0.6, 0.0, 0.2, 0.4], None),  # a cold run empties the cache
        ([0.50, 0.52, 0.53, 0.53], None),
        ([], None),
    ],
)
def test_knee_is_where_the_cache_stops_filling(
    shares: list[float], second: int | None
) -> None:
    points = [(float(place), share) for place, share in enumerate(shares)]

    assert runs.knee(points) == second


def test_knee_is_drawn_and_said() -> None:
    document = sample_results.train(cache="mixed", rate=1000.0)

    (chart,) = runs.over_time(_groups(document, sample_results.train(num_ranks=2)))

    assert "the cache is full after 42.0 s." in chart.sentences[0]
    first = chart.plots[0].spec
    assert [row["x"] for row in first["layer"][-1]["data"]["values"]] == [42.0]
    assert [plot.title for plot in chart.plots] == [
        *("Images/s", "Waiting for input", "Asked of storage, MB/s", "Data in memory"),
        *("Processors of the hosts", "GPUs"),
    ]


def test_long_series_are_thinned_to_their_means() -> None:
    series = {
        "seconds": list(range(1, 601)),
        "examples_per_second": [10.0, 20.0, 30.0] * 200,
        "wait_fraction": [None] * 600,
    }

    (chart,) = runs.over_time(_groups(sample_results.train() | {"time_series": series}))

    assert [plot.title for plot in chart.plots] == ["Images/s"]
    values = [row["y"] for row in chart.plots[0].spec["data"]["values"]]
    assert values == [20.0] * 200
    seconds = [float(row[1]) for row in chart.rows]
    assert {b - a for a, b in itertools.pairwise(seconds)} == {50.0}
    assert [row[2] for row in chart.rows] == ["20.0", "10.0", "30.0"] * 4


def test_at_most_six_runs_share_a_chart() -> None:
    documents = [sample_results.train(num_ranks=count) for count in range(1, 9)]

    over_time, step_times = (
        runs.over_time(_groups(*documents)),
        runs.step_times(_groups(*documents)),
    )

    assert [len(chart.legend) for chart in over_time] == [6, 2]
    assert [len(chart.legend) for chart in step_times] == [6, 2]


def test_histogram_shows_shares_of_the_steps() -> None:
    histogram = {"edges_seconds": [0.01, 0.02, 0.04], "counts": [3, 1]}

    (chart,) = runs.step_times(
        _groups(sample_results.train() | {"step_histogram": histogram})
    )

    rows = chart.plots[0].spec["data"]["values"]
    assert [(row["x"], row["y"]) for row in rows] == [
        *((10.0, 0.75), (20.0, 0.25), (40.0, 0.0))
    ]


@pytest.mark.parametrize(
    "histogram",
    [
        None,
        {"edges_seconds": [0.01, 0.02], "counts": [1, 2]},
        {"edges_seconds": [0.0, 0.02], "counts": [1]},
        {"edges_seconds": [0.01, 0.02], "counts": [0]},
    ],
)
def test_a_histogram_that_cannot_be_drawn_is_left_out(histogram: Any) -> None:
    document = sample_results.train() | {"step_histogram": histogram}

    assert runs.step_times(_groups(document)) == []


def test_learning_has_loss_and_accuracy() -> None:
    epochs = [{"epoch": 0, "loss": 1.5, "accuracy": 0.25}, {"epoch": 1, "loss": 0.5}]

    (chart,) = runs.learning(_groups(sample_results.train() | {"epochs": epochs}))

    assert [row[1:] for row in chart.rows] == [
        ["1", "1.50", "25.0%"],
        ["2", "0.50", "—"],
    ]
    assert [len(plot.spec["data"]["values"]) for plot in chart.plots] == [2, 1]


def test_a_page_of_many_runs_stays_small() -> None:
    documents = [sample_results.train(num_ranks=count) for count in range(1, 41)]

    charts = runs.over_time(_groups(*documents))

    drawn = [plot.spec for chart in charts for plot in chart.plots]
    labels = [label for chart in charts for label, _ in chart.legend]
    assert labels == [group.label for group in _groups(*documents)], (
        "each run is drawn once"
    )
    assert len(json.dumps(drawn)) < 1_200_000
