"""Charts of benchmarks.storage: rates and latencies of the ways to read.

In: results of benchmarks.storage. Out: charts of two drawings. The color is the state
of the page cache.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks.reporting.charts import frame
from benchmarks.reporting.charts.frame import Chart, Plot, Spec
from benchmarks.results import collection as results
from benchmarks.results.collection import Result
from benchmarks.results.other_results import StorageReading, StorageResult

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
_COLUMNS = (
    *("Reading", "This page cache", "By the kernel", "In it before", "MB/s", "Reads/s"),
    *("p50, ms", "p90, ms", "p99, ms", "p99.9, ms"),
)
_LABEL_PIXELS = 150  # the longest name is whole, also on a small screen
_AGREES = {True: "yes", False: "no", None: "unknown"}


def storage_rates(probes: Sequence[Result[StorageResult]]) -> list[Chart]:
    """Draws MB/s and latencies of results of benchmarks.storage."""
    return frame.of_each(probes, _chart)


def _chart(index: int, result: Result[StorageResult]) -> Chart | None:
    every = result.values.measurements
    measured = [m for m in every if m.reads_per_second is not None]
    if not measured:
        return None
    drawn = {
        "Rate": _rates(measured),
        "Latency of a read: median to 99th percentile": _latencies(measured),
    }
    states = [s for s in _STATES.values() if any(_state(m) == s for m in measured)]
    where = results.short_name(str(result.options.get("place") or "")) or result.name
    return Chart(
        f"storage-{index}-rates",
        f"How fast {where} is",
        [*result.values.sentences, *_doubts(every)],
        frame.legend(states),
        [Plot(title, drawing) for title, drawing in drawn.items() if drawing],
        _COLUMNS,
        [_row(m) for m in measured],
    )


def _state(row: StorageReading) -> str:
    return _STATES.get(row.state, row.state)


def _name(row: StorageReading) -> str:
    """Returns the reading with its parallelism, such as "shards, 4 threads"."""
    text = _NAMES.get(row.what, row.what)
    counts = {"processes": row.num_processes, "threads": row.num_threads}
    text += "".join(f", {n} {unit}" for unit, n in counts.items() if n > 1)
    return f"{text}, again" if row.is_again else text


def _doubts(measured: Sequence[StorageReading]) -> list[str]:
    """Returns a sentence for each reading without figures or in another state."""
    sentences = []
    for row in measured:
        if row.skipped:
            text = f"{_name(row)}, {_state(row)}, is left out. {row.skipped}"
            sentences.append(text)
        elif row.is_proven is False:
            sentences.append(
                f"{_name(row)}: the kernel's figures do not fit “{_state(row)}”."
            )
    return sentences


def _row(row: StorageReading) -> list[str]:
    latency = row.latency_seconds
    return [
        _name(row),
        _state(row),
        _AGREES[row.is_proven],
        frame.percent(row.resident_fraction),
        frame.amount(row.megabytes_per_second),
        frame.amount(row.reads_per_second),
        *map(
            frame.milliseconds, (latency.p50, latency.p90, latency.p99, latency.p99_9)
        ),
    ]


def _rates(measured: Sequence[StorageReading]) -> Spec | None:
    """Returns bars of MB/s with a number at the end."""
    rows = [
        {**_named(m), "rate": m.megabytes_per_second}
        for m in measured
        if m.megabytes_per_second is not None
    ]
    if not rows:
        return None
    tooltip: Any = [*_TOOLTIP, frame.quantity("rate", title="MB/s", format=",.1f")]
    return frame.number_bars(
        rows, _reading(), "rate", "MB/s", color=_color(rows), tooltip=tooltip
    )


def _latencies(measured: Sequence[StorageReading]) -> Spec | None:
    """Returns a line from the median to the 99th percentile, in milliseconds."""
    rows = [
        {
            **_named(m),
            "low": m.latency_seconds.p50 * 1e3,
            "high": (m.latency_seconds.p99 or m.latency_seconds.p50) * 1e3,
        }
        for m in measured
        if m.latency_seconds.p50
    ]
    if not rows:
        return None
    title, axis = "ms, logarithmic", {"tickCount": 4}
    both = {
        "x": frame.quantity("low", title=title, scale={"type": "log"}, axis=axis),
        "y": _reading(),
        "color": _color(rows),
        "tooltip": [
            *_TOOLTIP,
            frame.quantity("low", title="median, ms", format=",.3f"),
            frame.quantity("high", title="99th percentile, ms", format=",.3f"),
        ],
    }
    line = {"type": "bar", "height": 4}
    point = {"type": "point", "filled": True, "size": 60, "opacity": 1}
    layer = [
        {"mark": line, "encoding": {**both, "x2": {"field": "high"}}},
        {"mark": point, "encoding": both},
    ]
    return frame.spec(rows, height=frame.bar_height(len(rows)), layer=layer)


def _named(row: StorageReading) -> Spec:
    # The names must differ. The color says the state, so the axis leaves it out.
    name, state = _name(row), _state(row)
    return {"reading": name, "state": state, "name": f"{name}\n{state}"}


def _reading() -> Spec:
    return frame.bar_names(
        "name", labelExpr="split(datum.label, '\\n')[0]", labelLimit=_LABEL_PIXELS
    )


_TOOLTIP = (
    frame.category("reading", title="reading"),
    frame.category("state", title="page cache"),
)


def _color(rows: Sequence[Spec]) -> Spec:
    states = [s for s in _STATES.values() if any(row["state"] == s for row in rows)]
    return frame.category("state", **frame.colors(states))
