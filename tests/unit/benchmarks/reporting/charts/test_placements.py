"""Charts of placements: the verdict, the ideal, and what binds."""

from typing import Any

import pytest

from benchmarks.reporting.charts import sweeps
from benchmarks.results.collection import Result
from benchmarks.results.other_results import SweepResult

SHARES = {"input": 0.3, "compute": 0.6, "communication": 0.1, "late": 0.0}


def _sweep(document: dict[str, Any]) -> Result[SweepResult]:
    return Result("sweep", {"command": "benchmarks.sweep", **document})


def _point(hosts: int, rate: float, **values: Any) -> dict[str, Any]:
    return {"num_ranks": 8, "num_hosts": hosts, "examples_per_second": rate, **values}


def _sentence(*points: dict[str, Any]) -> str:
    document = {"series": [{"model": "resnet50", "points": list(points)}]}
    (chart,) = sweeps.placements([_sweep(document)])
    (sentence,) = chart.sentences
    return sentence.removeprefix("resnet50, 8 ranks: ")


def test_equal_ranks_are_one_chart_with_what_each_host_received() -> None:
    values = {
        "ideal_examples_per_second": 1250.0,
        "critical_path": SHARES,
        "received_mb_per_second_per_host": [50.0, 51.0],
        "network_utilization": 0.9,
        "binding": "network",
    }
    points = [_point(1, 1000.0), _point(2, 970.0, **values), _point(4, 950.0)]
    points.append({"num_ranks": 1, "num_hosts": 1, "examples_per_second": 130.0})
    series = {"model": "resnet50", "accelerator": "h100", "points": points}

    (chart,) = sweeps.placements([_sweep({"series": [series]})])

    assert [row[:2] for row in chart.rows] == [
        ["resnet50 on h100, 8 ranks", name] for name in ("1 x 8", "2 x 4", "4 x 2")
    ]
    row = dict(zip(chart.columns, chart.rows[1], strict=True))
    assert (row["Of the first"], row["Of the ideal"]) == ("97.0%", "77.6%")
    assert (row["Binds"], row["Input"], row["Link"]) == ("network", "30.0%", "90.0%")
    assert row["MB/s into each host"] == "50.0, 51.0"
    assert [plot.title for plot in chart.plots] == [
        "resnet50 on h100, 8 ranks",
        "resnet50 on h100, 8 ranks: critical path",
    ]


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([(1, 100.0, ""), (2, 97.1, "")], "placement does not matter within 3%."),
        (
            [(1, 100.0, ""), (2, 96.9, "")],
            "placement matters: of the rate of 1 x 8, 2 x 4 96.9%.",
        ),
        (
            [(1, 97.5, "accelerator"), (4, 100.0, "accelerator")],
            "placement does not matter within 3%. What binds everywhere: accelerator.",
        ),
        (
            [(1, 50.0, "network"), (2, 100.0, "accelerator"), (4, 99.0, "")],
            "placement matters: of the rate of 1 x 8, 2 x 4 200.0%, 4 x 2 198.0%. What "
            "binds: network 1 x 8, accelerator 2 x 4, nothing known 4 x 2.",
        ),
    ],
)
def test_the_verdict(points: list[tuple[int, float, str]], words: str) -> None:
    rows = [_point(hosts, rate, binding=bound) for hosts, rate, bound in points]

    assert _sentence(*rows) == words


def test_busy_cores_are_a_doubt_about_the_verdict() -> None:
    busy = {"binding": "accelerator", "host_cpu_fraction": 0.6}

    text = _sentence(_point(1, 100.0, **busy), _point(2, 100.0, **busy))

    assert text.endswith(
        "The cores were 60% busy: with faster accelerators they may bind."
    )


def test_equal_ranks_alone_are_no_line_of_scaling() -> None:
    series = {"model": "resnet50", "points": [_point(1, 100.0), _point(2, 99.0)]}

    assert not sweeps.scaling_chart([], [_sweep({"series": [series]})]).rows


def test_a_sweep_without_placements_has_no_chart() -> None:
    documents = [{"series": [{"points": [3]}]}, {"series": [{"points": []}]}]

    assert sweeps.placements([_sweep(document) for document in documents]) == []
