"""benchmarks.reporting.charts.sweeps: ranks against the ideal line."""

import math
from typing import Any

import pytest

from benchmarks.reporting.charts import sweeps
from benchmarks.results import collection as results
from benchmarks.results.collection import Group, Result
from benchmarks.results.other_results import SweepResult
from tests.support.data import sample_results


def _sweep(document: dict[str, Any]) -> Result[SweepResult]:
    return Result("sweep", {"command": "benchmarks.sweep", **document})


def _groups(*documents: dict[str, Any]) -> list[Group]:
    found = [Result(str(place), document) for place, document in enumerate(documents)]
    return list(results.collect(found).groups)


def _run(num_ranks: int, rate: float, passed: bool | None = True, **more: Any) -> Any:
    document = sample_results.train(num_ranks=num_ranks, **more)
    document["accelerator_utilization"] = 0.5 if passed is False else 0.95
    gates = [] if passed is None else [{"gate": "au>=0.9", "passed": passed}]
    return document | {"examples_per_second": rate, "gates": gates}


def test_rates_stand_beside_the_ideal_and_the_largest_passing_is_named() -> None:
    chart = sweeps.scaling_chart(
        _groups(_run(1, 100.0), _run(1, 104.0), _run(2, 190.0), _run(4, 300.0, False)),
        [],
    )

    rows = chart.plots[0].spec["data"]["values"][1:]
    assert [(row["ranks"], row["rate"], row["ideal"]) for row in rows] == [
        *((1, 102.0, 102.0), (2, 190.0, 204.0), (4, 300.0, 408.0))
    ]
    assert rows[0]["low"] < 102.0 < rows[0]["high"]
    assert [row["state"] for row in rows] == ["gates are met"] * 2 + ["measured"]
    (sentence,) = chart.sentences
    assert "4 ranks reach 300 images/s, 73.5% of 4 times one rank." in sentence
    assert sentence.endswith("The largest number of ranks that passes is 2.")


def test_a_repeat_that_misses_its_gate_counts() -> None:
    chart = sweeps.scaling_chart(
        _groups(_run(1, 100.0, False), _run(2, 190.0), _run(2, 191.0, False)), []
    )

    assert chart.sentences[0].endswith("No number of ranks passes its gates.")


def test_strong_scaling_keeps_the_global_batch() -> None:
    documents = [
        _run(num_ranks, 100.0, None, config={"batch_size": 64 // num_ranks})
        for num_ranks in (1, 2)
    ]

    chart = sweeps.scaling_chart(_groups(*documents), [])

    assert [plot.title for plot in chart.plots] == [
        "resnet50, batch 64 in all, imagenet-1k, warm"
    ]
    assert "passes" not in chart.sentences[0]


def test_one_number_of_ranks_has_no_line() -> None:
    assert not sweeps.scaling_chart(_groups(_run(2, 100.0)), []).rows


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan])
def test_a_rate_that_cannot_be_has_no_point(rate: float) -> None:
    groups = _groups(_run(1, 100.0), _run(2, rate))

    assert not sweeps.scaling_chart(groups, []).rows


def test_document_of_a_sweep_is_drawn_unless_its_runs_are_there() -> None:
    sweep = Result("sweep", sample_results.sweep())

    alone = sweeps.scaling_chart([], [sweep])
    beside = sweeps.scaling_chart(_groups(_run(1, 100.0), _run(2, 190.0)), [sweep])

    assert [row[1] for row in alone.rows] == ["1", "2", "4"]
    last = dict(zip(alone.columns, alone.rows[2], strict=True))
    assert [last[name] for name in ("Images/s", "Speed-up", "Efficiency")] == [
        *("2,900 ± 58", "3.87", "96.7% (94.7% to 98.7%)")
    ]
    assert [row[1] for row in beside.rows] == ["1", "2"]
    odd = Result(
        "odd",
        {
            "command": "benchmarks.sweep",
            "series": [{"points": [{"num_ranks": 1}, 3]}, None],
        },
    )
    assert not sweeps.scaling_chart([], [odd]).rows


def test_equal_ranks_on_other_machines_are_on_a_line_of_their_own() -> None:
    hosts = [{"name": "a", "boot_id": "1"}], [{"name": "b", "boot_id": "2"}]
    environments = [
        {"environment": sample_results.ENVIRONMENT | {"hosts": host}} for host in hosts
    ]

    chart = sweeps.scaling_chart(
        _groups(
            *(_run(n, 100.0 * n) | environments[0] for n in (1, 2)),
            *(_run(n, 50.0 * n) | environments[1] for n in (1, 2)),
        ),
        [],
    )

    assert [plot.title.rpartition(", ")[2] for plot in chart.plots] == ["warm", "on b"]
    column = chart.columns.index("Efficiency")
    assert [row[column] for row in chart.rows if row[1] == "2"] == ["100.0%"] * 2


def test_runs_of_other_versions_are_on_no_line_together() -> None:
    old = {"environment": sample_results.ENVIRONMENT | {"tensorflow": "2.16.2"}}

    groups = _groups(_run(1, 50.0) | old, _run(2, 150.0))

    assert not sweeps.scaling_chart(groups, []).rows
