"""Charts of benchmarks.storage: the rate and the latency of each way to read.

In: results of benchmarks.storage. Out: for each a chart of two drawings. The color is
the state of the page cache, the same in both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.reporting import results
from benchmarks.reporting.charts.frame import (
    Chart,
    Plot,
    Spec,
    amount,
    bar_height,
    colors,
    labels_axis,
    legend,
    milliseconds,
    of_each,
    percent,
    spec,
)
from benchmarks.reporting.results import Result, as_number

_STATES = {
    "direct": "around the page cache",
    "cold": "cold page cache",
    "warm": "warm page cache",
    "remote": "by URL",
}
_NAMES = {
    "sequential": "1 MB in order",
    "random": "4 kB random",
    "shards": "shards",
    "open": "open a file",
    "stat": "size of a file",
}
_PERCENTILES = ("p50", "p90", "p99", "p99_9")
_LABEL_PIXELS = 150  # the longest name is whole, also on a small screen
_PROOF = {True: "proven", False: "not so", None: "unknown"}


def storage_rates(probes: Sequence[Result]) -> list[Chart]:
    """Draws MB/s and latencies of each result of benchmarks.storage."""
    return of_each(probes, _chart)


def _chart(place: int, result: Result) -> Chart | None:
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
        f"storage-{place}-rates",
        f"How fast {where} is",
        sentences,
        legend(states),
        plots,
        ["Reading", "Page cache", "Proof", "In memory before", "MB/s", "Reads/s"]
        + [f"{name.replace('_', '.')}, ms" for name in _PERCENTILES],
        [_row(m) for m in measured],
    )


def _drawings(measured: Sequence[Mapping[str, Any]]) -> list[tuple[str, Spec | None]]:
    return [
        ("Rate", _rates(measured)),
        ("Latency of a read: median to 99th percentile", _latencies(measured)),
    ]


def _state(one: Mapping[str, Any]) -> str:
    return _STATES.get(str(one.get("state")), str(one.get("state")))


def _name(one: Mapping[str, Any]) -> str:
    """Returns what was read by how many, such as "shards, 4 threads"."""
    text = _NAMES.get(str(one.get("what")), str(one.get("what")))
    for unit in ("processes", "threads"):
        number = as_number(one.get(f"num_{unit}")) or 1
        if number > 1:
            text += f", {number:g} {unit}"
    return text


def _doubts(measured: Sequence[Any]) -> list[str]:
    """Returns a sentence for each reading that was left out or has another state."""
    found = []
    for one in measured:
        if isinstance(one, Mapping) and one.get("skipped"):
            found.append(f"{_name(one)}, {_state(one)}, is left out. {one['skipped']}")
        elif isinstance(one, Mapping) and one.get("is_proven") is False:
            found.append(
                f"{_name(one)}: the kernel's figures do not fit “{_state(one)}”."
            )
    return found


def _row(one: Mapping[str, Any]) -> list[str]:
    proof = one.get("is_proven")
    return [
        _name(one),
        _state(one),
        _PROOF[proof if isinstance(proof, bool) else None],
        percent(as_number(one.get("resident_fraction"))),
        amount(as_number(one.get("megabytes_per_second"))),
        amount(as_number(one.get("reads_per_second"))),
        *(milliseconds(_latency(one, name)) for name in _PERCENTILES),
    ]


def _latency(one: Mapping[str, Any], name: str) -> float | None:
    found = one.get("latency_seconds")
    return as_number(found.get(name)) if isinstance(found, Mapping) else None


def _rates(measured: Sequence[Mapping[str, Any]]) -> Spec | None:
    """Returns bars of MB/s, each with its number at the end."""
    rows = [
        {"reading": _name(m), "state": _state(m), "rate": rate, "shown": amount(rate)}
        for m in measured
        if (rate := as_number(m.get("megabytes_per_second"))) is not None
    ]
    if not rows:
        return None
    most = max(row["rate"] for row in rows)
    x = {
        "field": "rate",
        "type": "quantitative",
        "title": "MB/s",
        "scale": {"domain": [0, most * 1.45 or 1]},  # room for the number
        "axis": {"tickCount": 4},
    }
    text = {"type": "text", "align": "left", "dx": 5}
    number = {"text": {"field": "shown", "type": "nominal"}}
    return _of_states(
        rows,
        [
            {"mark": {"type": "bar"}, "encoding": {"x": x, **_color(rows)}},
            {"mark": text, "encoding": {"x": {**x, "title": "MB/s"}, **number}},
        ],
        {"field": "rate", "title": "MB/s", "format": ",.1f"},
    )


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
    x = {
        "field": "low",
        "type": "quantitative",
        "title": "ms, logarithmic",
        "scale": {"type": "log"},
        "axis": {"tickCount": 4},
    }
    ends = {"x": x, "x2": {"field": "high"}}
    line = {"type": "bar", "height": 4}
    point = {"type": "point", "filled": True, "size": 60, "opacity": 1}
    return _of_states(
        rows,
        [
            {"mark": line, "encoding": {**ends, **_color(rows)}},
            {"mark": point, "encoding": {"x": x, **_color(rows)}},
        ],
        {"field": "low", "title": "median, ms", "format": ",.3f"},
        {"field": "high", "title": "99th percentile, ms", "format": ",.3f"},
    )


def _color(rows: Sequence[Spec]) -> Spec:
    there = [s for s in _STATES.values() if any(row["state"] == s for row in rows)]
    return {"color": {"field": "state", "type": "nominal", **colors(there)}}


def _of_states(
    rows: Sequence[Spec], layers: Sequence[Spec], *numbers: Mapping[str, str]
) -> Spec:
    """Returns layers over rows that lie below each other, one for each name and state.

    Args:
        rows: The data, with the reading and the state of each.
        layers: Mark and encoding of each layer, without the place of a row.
        numbers: Field, title and format of each number that a pointer shows.
    """
    placed = [
        {**row, "name": f"{row['reading']}\n{row['state']}"} for row in rows
    ]  # unique; the color says the state, so the axis does not
    axis = {
        **labels_axis(),
        "labelExpr": "split(datum.label, '\\n')[0]",
        "labelLimit": _LABEL_PIXELS,
    }
    y = {"field": "name", "type": "nominal", "sort": None, "axis": axis}
    tooltip = [
        {"field": "reading", "type": "nominal", "title": "reading"},
        {"field": "state", "type": "nominal", "title": "page cache"},
        *({**number, "type": "quantitative"} for number in numbers),
    ]
    for layer in layers:
        layer["encoding"] |= {"y": y, "tooltip": tooltip}
    return spec(placed, height=bar_height(len(rows)), layer=list(layers))
