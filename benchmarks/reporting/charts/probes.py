"""Charts of benchmarks.storage: rates and latencies of the ways to read.

In: results of benchmarks.storage. Out: charts of two drawings. The color is the state
of the page cache.
"""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.results import collection as results
from benchmarks.results.collection import Result
from benchmarks.results.other_results import StorageReading, StorageResult
from tfpipe.pages import frame
from tfpipe.pages.frame import Bar, Chart, Plot, Spec

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
_AGREES = {True: "yes", False: "no", None: "unknown"}
_COLUMNS: Mapping[str, Callable[[StorageReading], str]] = {
    "Reading": lambda row: _name(row),
    "This page cache": lambda row: _state(row),
    "By the kernel": lambda row: _AGREES[row.is_proven],
    "In it before": lambda row: frame.percent(row.resident_fraction),
    "MB/s": lambda row: frame.amount(row.megabytes_per_second),
    "Reads/s": lambda row: frame.amount(row.reads_per_second),
    "p50, ms": lambda row: frame.milliseconds(row.latency_seconds.p50),
    "p90, ms": lambda row: frame.milliseconds(row.latency_seconds.p90),
    "p99, ms": lambda row: frame.milliseconds(row.latency_seconds.p99),
    "p99.9, ms": lambda row: frame.milliseconds(row.latency_seconds.p99_9),
}


def storage_rates(probes: Sequence[Result[StorageResult]]) -> list[Chart]:
    """Draws MB/s and latencies of results of benchmarks.storage."""
    return frame.of_each(probes, _chart)


def _chart(index: int, result: Result[StorageResult]) -> Chart | None:
    every = result.values.measurements
    measured = [m for m in every if m.reads_per_second is not None]
    if not measured:
        return None
    states = [s for s in _STATES.values() if any(_state(m) == s for m in measured)]
    rates = [
        Bar(f"{_name(m)}\n{_state(m)}", m.megabytes_per_second, _state(m))
        for m in measured
        if m.megabytes_per_second is not None
    ]
    plots = [Plot("Rate", frame.bars(rates, "MB/s", parts=states))] if rates else []
    if latencies := _latencies(measured, states):
        title = "Latency of a read: median to 99th percentile"
        plots.append(Plot(title, latencies))
    where = results.short_name(str(result.options.get("place") or "")) or result.name
    return Chart(
        f"storage-{index}-rates",
        f"How fast {where} is",
        [*result.values.sentences, *_doubts(every)],
        frame.legend(states),
        plots,
        *frame.table(_COLUMNS, measured),
    )


def _state(row: StorageReading) -> str:
    return _STATES.get(row.state, row.state)


def _name(row: StorageReading) -> str:
    text = _NAMES.get(row.what, row.what)
    counts = {"processes": row.num_processes, "threads": row.num_threads}
    text += "".join(f", {n} {unit}" for unit, n in counts.items() if n > 1)
    return f"{text}, again" if row.is_again else text


def _doubts(measured: Sequence[StorageReading]) -> list[str]:
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


def _latencies(
    measured: Sequence[StorageReading], states: Sequence[str]
) -> Spec | None:
    rows = [
        {
            "name": f"{_name(m)}\n{_state(m)}",
            "state": _state(m),
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
        "y": frame.names(),
        "color": frame.category("state", **frame.colors(states)),
        "tooltip": [
            frame.category("name", title="reading"),
            frame.quantity("low", title="median, ms", format=",.3f"),
            frame.quantity("high", title="99th percentile, ms", format=",.3f"),
        ],
    }
    line = {"type": "bar", "height": 4}
    dot = {"type": "point", "filled": True, "size": 60, "opacity": 1}
    layer = [
        {"mark": line, "encoding": {**both, "x2": {"field": "high"}}},
        {"mark": dot, "encoding": both},
    ]
    return frame.spec(rows, height=frame.bar_height(len(rows)), layer=layer)
