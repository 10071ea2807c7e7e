"""benchmarks.reporting.charts.runs: what is drawn, and from what."""

from typing import Any

import pytest

from benchmarks.reporting.charts import runs
from benchmarks.results import collection as results
from benchmarks.results.collection import Group, Result
from tests.support.data import sample_results


def _groups(*documents: dict[str, Any]) -> list[Group]:
    found = [Result(str(place), document) for place, document in enumerate(documents)]
    return list(results.collect(found).groups)


def test_three_bars_are_those_of_the_result() -> None:
    measured = {"input": 300.0, "synthetic": 200.0, "real": 150.0}
    document = sample_results.train()
    document["bars"] = {f"{k}_examples_per_second": v for k, v in measured.items()}
    document["bars"] |= {"real_over_synthetic": 0.75, "sentence": "They compete."}

    chart = runs.three_bars(_groups(document, sample_results.train(num_ranks=2)))

    assert [plot.title for plot in chart.plots] == ["1. resnet50, 1 rank"]
    assert [row["value"] for row in chart.plots[0].spec["data"]["values"]] == [
        *(300.0, 200.0, 150.0)
    ]
    assert chart.rows[0][1:] == ["300", "200", "150", "75.0%"]
    assert chart.sentences[0].endswith("They compete.")
    assert not runs.three_bars(_groups(sample_results.train())).rows


def test_storages_are_compared_where_all_else_is_equal() -> None:
    chart = runs.storages(
        _groups(
            sample_results.train(cache="cold"),
            sample_results.train(cache="warm"),
            sample_results.train(cache="warm", num_ranks=2),
        )
    )

    assert [row[2] for row in chart.rows] == ["cold", "warm"]
    assert not runs.storages(_groups(sample_results.train())).rows


def test_each_rank_shows_its_own_waiting() -> None:
    document = sample_results.train(num_ranks=2, rate=100.0, stall=0.5)
    document["wait_seconds_per_step_per_rank"] = [0.010, 0.250]
    slowest = {"cause": "input", "text": "Rank 1 is slow."}
    document["critical_path"] = {"slowest": slowest}

    chart = runs.per_rank(_groups(document, sample_results.train()))

    assert [row[1:3] for row in chart.rows] == [["0", "10.0"], ["1", "250"]]
    assert chart.sentences[0].endswith("Rank 1 is slow.")
    waits = [
        row["value"]
        for row in chart.plots[0].spec["data"]["values"]
        if row["part"] == "waiting for input"
    ]
    assert waits == pytest.approx([10.0, 250.0])


def test_costs_of_stages_are_for_an_image() -> None:
    stage = {"name": "Map", "cpu_seconds_per_output": 0.032, "max_rate": 50.0}
    profile = {"stages": [stage], "examples_per_output": 32}
    document = {"command": "benchmarks.input", "profile": profile}

    chart = runs.pipeline_costs([Result("input", document)])

    assert chart.rows == [["0 Map", "1.00", "—", "1,600"]]
    empty = Result("input", {"command": "benchmarks.input"})
    assert not runs.pipeline_costs([empty]).rows
