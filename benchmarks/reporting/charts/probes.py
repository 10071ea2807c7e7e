"""Charts of benchmarks.storage: rates and latencies of the ways to read.

In: results of benchmarks.storage. Out: charts of two drawings. The color is the state
of the page cache.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.reporting.charts import frame
from benchmarks.reporting.charts.frame import Chart, Plot, Spec
from benchmarks.results import collection as results
from benchmarks.results.collection import Result, as_number

_STATES = {
    "direct": "around the page cache",
    "cold": "cold page cache",
    "warm": "warm page cache",
    "remote": "by URL",
    "durable": "on the disk",
}
_NAMES = {
    "sequential": "1 MB in order",
    "random": "4 kB random",
    "shards": "shards",
    "open": "open a file",
    "stat": "size of a file",
    "write": "write a file",
}
_PERCENTILES = ("p50", "p90", "p99", "p99_9")
_LABEL_PIXELS = 150  # the longest name is whole, also on a small screen
_AGREES = {True: "yes", False: "no", None: "unknown"}


def storage_rates(probes: Sequence[Result]) -> list[Chart]:
    """Draws MB/s and latencies of results of benchmarks.storage."""
    return frame.of_each(probes, _chart)


def _chart(index: int, result: Result) -> Chart | None:
    measured = [
        m
        for m in result.items("measurements")
        if isinstance(m, Mapping) and as_number(m.get("reads_per_second")) is not None
    ]
    if not measured:
        return None
    plots = [Plot(title, drawing) for title, drawing in _drawings(measured) if drawing]
    states = [s for key, s in _STATES.items() if any(_state(m) == s for m in measured)]
    where = results.short_name(result.text("config.place")) or result.name
    sentences = [str(text) for text in result.items("sentences")]
    sentences += _doubts(result.items("measurements"))
    return Chart(
        f"storage-{index}-rates",
        f"How fast {where} is",
        sentences,
        frame.legend(states),
        plots,
        [
            "Reading",
            "This page cache",
            "By the kernel",
            "In it before",
            "MB/s",
            "Reads/s",
        ]
        + [f"{name.replace('_', '.')}, ms" for name in _PERCENTILES],
        [_row(m) for m in measured],
    )


def _drawings(measured: Sequence[Mapping[str, Any]]) -> list[tuple[str, Spec | None]]:
    return [
        ("Rate", _rates(measured)),
        ("Latency of a read: median to 99th percentile", _latencies(measured)),
    ]


def _state(row: Mapping[str, Any]) -> str:
    return _STATES.get(str(row.get("state")), str(row.get("state")))


def _name(row: Mapping[str, Any]) -> str:
    """Returns the reading with its parallelism, such as "shards, 4 threads"."""
    text = _NAMES.get(str(row.get("what")), str(row.get("what")))
    for unit in ("processes", "threads"):
        count = as_number(row.get(f"num_{unit}")) or 1
        if count > 1:
            text += f", {count:g} {unit}"
    return f"{text}, again" if row.get("is_again") else text


def _doubts(measured: Sequence[Any]) -> list[str]:
    """Returns a sentence for each reading without figures or in another state."""
    sentences = []
    for row in measured:
        if isinstance(row, Mapping) and row.get("skipped"):
            sentences.append(
                f"{_name(row)}, {_state(row)}, is left out. {row['skipped']}"
            )
        elif isinstance(row, Mapping) and row.get("is_proven") is False:
            sentences.append(
                f"{_name(row)}: the kernel's figures do not fit “{_state(row)}”."
            )
    return sentences


def _row(row: Mapping[str, Any]) -> list[str]:
    proof = row.get("is_proven")
    return [
        _name(row),
        _state(row),
        _AGREES[proof if isinstance(proof, bool) else None],
        frame.percent(as_number(row.get("resident_fraction"))),
        frame.amount(as_number(row.get("megabytes_per_second"))),
        frame.amount(as_number(row.get("reads_per_second"))),
        *(frame.milliseconds(_latency(row, name)) for name in _PERCENTILES),
    ]


def _latency(row: Mapping[str, Any], name: str) -> float | None:
    seconds = row.get("latency_seconds")
    return as_number(seconds.get(name)) if isinstance(seconds, Mapping) else None


def _rates(measured: Sequence[Mapping[str, Any]]) -> Spec | None:
    """Returns bars of MB/s with a number at the end."""
    rows = [
        {
            "reading": _name(m),
            "state": _state(m),
            "rate": rate,
            "shown": frame.amount(rate),
        }
        for m in measured
        if (rate := as_number(m.get("megabytes_per_second"))) is not None
    ]
    if not rows:
        return None
    most = max(row["rate"] for row in rows)
    length = frame.bar_length("rate", "MB/s", most * 1.45)  # room for the number
    bars = frame.labelled_bars({"x": length}, _color(rows), label="shown")
    return _by_reading(rows, bars, frame.quantity("rate", title="MB/s", format=",.1f"))


def _latencies(measured: Sequence[Mapping[str, Any]]) -> Spec | None:
    """Returns a line from the median to the 99th percentile, in milliseconds."""
    rows = [
        {
            "reading": _name(m),
            "state": _state(m),
            "low": low * 1e3,
            "high": (_latency(m, "p99") or low) * 1e3,
        }
        for m in measured
        if (low := _latency(m, "p50"))
    ]
    if not rows:
        return None
    title, axis = "ms, logarithmic", {"tickCount": 4}
    both = {
        "x": frame.quantity("low", title=title, scale={"type": "log"}, axis=axis),
        "color": _color(rows),
    }
    line = {"type": "bar", "height": 4}
    point = {"type": "point", "filled": True, "size": 60, "opacity": 1}
    return _by_reading(
        rows,
        [
            {"mark": line, "encoding": {**both, "x2": {"field": "high"}}},
            {"mark": point, "encoding": both},
        ],
        frame.quantity("low", title="median, ms", format=",.3f"),
        frame.quantity("high", title="99th percentile, ms", format=",.3f"),
    )


def _color(rows: Sequence[Spec]) -> Spec:
    states = [s for s in _STATES.values() if any(row["state"] == s for row in rows)]
    return frame.category("state", **frame.colors(states))


def _by_reading(rows: Sequence[Spec], layers: Sequence[Spec], *numbers: Spec) -> Spec:
    """Returns layers over rows below each other, a row for each reading and state.

    Args:
        rows: The data, with readings and states.
        layers: Marks and encodings, without the channel of the readings.
        numbers: Channels of the numbers in the tooltip.
    """
    # The names must differ. The color says the state, so the axis leaves it out.
    named = [{**row, "name": f"{row['reading']}\n{row['state']}"} for row in rows]
    y = frame.bar_names(
        "name", labelExpr="split(datum.label, '\\n')[0]", labelLimit=_LABEL_PIXELS
    )
    tooltip = [
        frame.category("reading", title="reading"),
        frame.category("state", title="page cache"),
        *numbers,
    ]
    for layer in layers:
        layer["encoding"] |= {"y": y, "tooltip": tooltip}
    return frame.spec(named, height=frame.bar_height(len(rows)), layer=list(layers))
