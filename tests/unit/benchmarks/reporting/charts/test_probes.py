"""Charts of benchmarks.storage: rates, latencies, and the states by colour."""

from typing import Any

from benchmarks.reporting.charts import probes
from benchmarks.results.collection import Result
from tests.support.data import sample_results
from tfpipe.pages.frame import Chart


def _chart(**changes: Any) -> Chart:
    document = {**sample_results.storage(), **changes}
    (chart,) = probes.storage_rates([Result("a", document)])
    return chart


def test_rates_and_latencies_are_those_of_the_result() -> None:
    chart = _chart()

    rates, latencies = (plot.spec["data"]["values"] for plot in chart.plots)
    assert [row["value"] for row in rates][:4] == [2150.0, 11800.0, 48.0, 610.0]
    assert (latencies[0]["low"], latencies[0]["high"]) == (0.44, 1.76)
    rows = sample_results.storage()["measurements"]
    measured = [row for row in rows if "skipped" not in row]
    with_rates = [row for row in measured if row["megabytes_per_second"] is not None]
    assert len(rates) == len(with_rates) < len(measured), "a size has no MB/s"
    assert len(latencies) == len(chart.rows) == len(measured)
    # Equal readings in two states have a line each.
    assert len({row["name"] for row in rates}) == len(rates)
    assert [row["name"].partition("\n")[0] for row in rates][4:6] == [
        "shards",
        "shards, 16 threads",
    ]


def test_table_has_every_figure_and_what_the_kernel_saw() -> None:
    chart = _chart()

    assert all(len(row) == len(chart.columns) for row in chart.rows)
    assert chart.rows[4][:6] == [
        *("shards", "cold page cache", "yes", "0.0%", "1,900", "1,812")
    ]
    assert chart.rows[4][6:] == ["0.07", "0.11", "0.28", "—"]
    assert chart.rows[8][2:5] == ["unknown", "100.0%", "—"]


def test_legend_has_the_states_that_are_there() -> None:
    assert [text for text, _ in _chart().legend] == [
        *("around the page cache", "cold page cache", "warm page cache")
    ]
    remote = [{**sample_results.storage()["measurements"][4], "state": "remote"}]
    assert [text for text, _ in _chart(measurements=remote).legend] == ["by URL"]


def test_colours_are_the_same_in_both_drawings() -> None:
    chart = _chart()
    legend = dict(chart.legend)

    for plot in chart.plots:
        colours = [layer["encoding"].get("color") for layer in plot.spec["layer"]]
        scales = [colour["scale"] for colour in colours if colour]
        assert scales, plot.title
        for scale in scales:
            assert dict(zip(scale["domain"], scale["range"], strict=True)) == legend


def test_doubts_are_said() -> None:
    rows = sample_results.storage()["measurements"]
    rows[4]["is_proven"] = False

    sentences = _chart(measurements=rows).sentences

    assert sentences[2] == "shards: the kernel's figures do not fit “cold page cache”."
    assert sentences[3] == (
        "size of a file, cold page cache, is left out. Only root can make names cold."
    )


def test_no_chart_without_figures() -> None:
    skipped = sample_results.storage()["measurements"][-1:]

    assert not probes.storage_rates(
        [Result("a", {**sample_results.storage(), "measurements": skipped})]
    )
    assert not probes.storage_rates([Result("a", {"command": "benchmarks.storage"})])
