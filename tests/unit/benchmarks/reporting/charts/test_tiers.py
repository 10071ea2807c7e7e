"""benchmarks.reporting.charts.sweeps: rates and bytes of the tiers of a sweep."""

from typing import Any

from benchmarks.reporting.charts import sweeps
from benchmarks.results.collection import Result
from benchmarks.results.other_results import SweepResult


def _sweep(document: dict[str, Any]) -> Result[SweepResult]:
    return Result("sweep", {"command": "benchmarks.sweep", **document})


def _row(tier: str, rate: float, **more: Any) -> dict[str, Any]:
    return {"tier": tier, "model": "tiny", "examples_per_second": rate, **more}


def test_each_tier_has_a_bar_and_its_bytes() -> None:
    rows = [
        _row("remote", 50.0, bytes_from_server=2e6, binding="server", state="cold"),
        _row("ram", 100.0, bytes_from_ram_cache=1e6, bytes_from_disk=None),
    ]

    (chart,) = sweeps.tiers([_sweep({"tiers": rows})])

    rates, given = (plot.spec["data"]["values"] for plot in chart.plots)
    assert [(bar["name"], bar["value"]) for bar in rates] == [
        *(("remote", 50.0), ("ram", 100.0))
    ]
    assert [(bar["name"], bar["part"], bar["value"]) for bar in given] == [
        *(("remote", "server", 2.0), ("ram", "cache in RAM", 1.0))
    ]
    assert chart.sentences[0] == "remote: 50.0 images/s; the run waited for: server."
    assert chart.rows[0][:4] == ["remote", "50.0", "server", "cold"]
    assert all(len(row) == len(chart.columns) for row in chart.rows)


def test_settings_tell_rows_of_one_tier_apart() -> None:
    rows = [_row("ram", 1.0), _row("ram", 2.0, model="vgg16", num_ranks=2)]

    (chart,) = sweeps.tiers([_sweep({"tiers": rows})])

    assert [plot.title for plot in chart.plots] == ["Rate"]  # nobody knows a byte
    assert [row[0] for row in chart.rows] == [
        *("ram, tiny, 1 rank", "ram, vgg16, 2 ranks")
    ]


def test_other_sweeps_have_no_chart() -> None:
    for document in ({}, {"tiers": []}, {"tiers": ["x", {"tier": "ram"}]}):
        assert sweeps.tiers([_sweep(document)]) == []
