"""Charts of benchmarks.storage: rates by state, and the table of a terminal."""

from typing import Any

from benchmarks.reporting.charts import runs
from benchmarks.results.collection import Result
from tests.support.data import sample_results
from tfpipe.pages.frame import Chart


def _chart(**changes: Any) -> Chart:
    document = {**sample_results.storage(), **changes}
    (chart,) = runs.storage_rates([Result("a", document)])
    return chart


def test_rates_are_those_of_the_result() -> None:
    chart = _chart()

    (plot,) = chart.plots
    rates = plot.spec["data"]["values"]
    assert [row["value"] for row in rates][:4] == [2150.0, 11800.0, 48.0, 610.0]
    rows = sample_results.storage()["measurements"]
    measured = [row for row in rows if "skipped" not in row]
    with_rates = [row for row in measured if row["megabytes_per_second"] is not None]
    assert len(rates) == len(with_rates) < len(measured), "a size has no MB/s"
    assert len(chart.rows) == len(rows)
    # Equal readings in two states have a bar each.
    assert len({row["name"] for row in rates}) == len(rates)
    assert [row["name"].partition("\n")[0] for row in rates][4:6] == [
        "whole shards, 1 thread",
        "whole shards, 16 threads",
    ]


def test_table_has_every_figure_and_what_the_kernel_saw() -> None:
    chart = _chart()

    assert all(len(row) == len(chart.columns) for row in chart.rows)
    row = dict(zip(chart.columns, chart.rows[4], strict=True))
    columns = ("MB/s", "reads/s", "p50 ms", "p90 ms", "p99 ms")
    assert [row[name] for name in columns] == ["1,900", "1,812", "0.07", "0.11", "0.28"]
    assert row["state"] == "cold: not in this page cache, 0.0% there before"


def test_legend_has_the_states_that_are_there() -> None:
    assert [text for text, _ in _chart().legend] == ["direct", "cold", "warm"]
    remote = [{**sample_results.storage()["measurements"][4], "state": "remote"}]
    assert [text for text, _ in _chart(measurements=remote).legend] == ["remote"]


def test_doubts_are_said() -> None:
    rows = sample_results.storage()["measurements"]
    rows[4]["is_proven"] = False

    states = [row[-1] for row in _chart(measurements=rows).rows]

    assert states[4].startswith("cold: NOT ")
    assert any("left out. Only root can make names cold." in text for text in states)


def test_no_chart_without_figures() -> None:
    skipped = sample_results.storage()["measurements"][-1:]

    assert not runs.storage_rates(
        [Result("a", {**sample_results.storage(), "measurements": skipped})]
    )
    assert not runs.storage_rates([Result("a", {"command": "benchmarks.storage"})])
