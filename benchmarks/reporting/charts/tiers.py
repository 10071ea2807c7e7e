"""Charts of tiers: the rates on tiers of storage, and the sources of the bytes.

In: documents of benchmarks.sweep with tiers. Out: charts of two drawings, with a bar
for each tier in the order of the sweep.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.reporting.charts import frame
from benchmarks.reporting.charts.frame import Chart, Plot, Spec
from benchmarks.results.collection import Result, as_number
from tfpipe.errors import count_of

_GIVERS = {
    "bytes_from_server": "server",
    "bytes_from_disk": "local disk",
    "bytes_from_page_cache": "page cache",
    "bytes_from_ram_cache": "cache in RAM",
}
_LABEL_PIXELS = 150  # "shard_cache_warm" is whole, also on a small screen
_COLUMNS = ("Tier", "images/s", "CPU, ms an image", "Stall", "Binding", "State")


def rates_and_bytes(sweeps: Sequence[Result]) -> list[Chart]:
    """Draws images/s and bytes of the tiers, for sweeps with tiers."""
    return frame.of_each(sweeps, _chart)


def _chart(index: int, sweep: Result) -> Chart | None:
    rows = [
        row
        for row in sweep.items("tiers")
        if isinstance(row, Mapping) and as_number(row.get("examples_per_second"))
    ]
    if not rows:
        return None
    several = len({_settings(row) for row in rows}) > 1
    names = [f"{row.get('tier')}{_settings(row) if several else ''}" for row in rows]
    plots = [Plot("Rate", _rates(names, rows))]
    if bytes_plot := _bytes(names, rows):
        plots.append(
            Plot("Bytes of the timed steps, by the place they came from", bytes_plot)
        )
    return Chart(
        f"tiers-{index}",
        "Tiers: the same run on data in several places",
        [_sentence(name, row) for name, row in zip(names, rows, strict=True)],
        frame.legend(list(_GIVERS.values())),
        plots,
        [*_COLUMNS, *(f"{giver}, MB" for giver in _GIVERS.values())],
        [_texts(name, row) for name, row in zip(names, rows, strict=True)],
    )


def _settings(row: Mapping[str, Any]) -> str:
    """Returns the settings that differ between rows of a tier."""
    words = [row.get(name) for name in ("model", "mode", "batch_size", "accelerator")]
    text = ", ".join(str(word) for word in words if word)
    return f", {text}, {count_of(int(as_number(row.get('num_ranks')) or 1), 'rank')}"


def _sentence(name: str, row: Mapping[str, Any]) -> str:
    rate = frame.amount(as_number(row.get("examples_per_second")))
    return f"{name}: {rate} images/s; the run waited for: {row.get('binding', '?')}."


def _texts(name: str, row: Mapping[str, Any]) -> list[str]:
    return [
        name,
        frame.amount(as_number(row.get("examples_per_second"))),
        frame.milliseconds(as_number(row.get("cpu_seconds_per_example"))),
        frame.percent(as_number(row.get("stall_fraction"))),
        str(row.get("binding") or "—"),
        str(row.get("state") or "—"),
        *(frame.amount(_megabytes(row, key)) for key in _GIVERS),
    ]


def _megabytes(row: Mapping[str, Any], key: str) -> float | None:
    value = as_number(row.get(key))
    return None if value is None else value / 1e6


def _rates(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Spec:
    values = [as_number(row.get("examples_per_second")) or 0.0 for row in rows]
    bars = [
        {"tier": name, "rate": rate, "shown": frame.amount(rate)}
        for name, rate in zip(names, values, strict=True)
    ]
    length = frame.bar_length(
        "rate", "images/s", max(values) * 1.25
    )  # room for the number
    layer = frame.labelled_bars(
        {"x": length, "y": _tier()}, {"value": frame.color(0)}, label="shown"
    )
    return frame.spec(bars, height=frame.bar_height(len(bars)), layer=layer)


def _bytes(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Spec | None:
    parts = [
        {"tier": name, "giver": giver, "megabytes": value}
        for name, row in zip(names, rows, strict=True)
        for key, giver in _GIVERS.items()
        if (value := _megabytes(row, key))
    ]
    if not parts:
        return None
    return frame.spec(
        parts,
        height=frame.bar_height(len({part["tier"] for part in parts})),
        mark={"type": "bar"},
        encoding={
            "x": frame.quantity("megabytes", title="MB"),
            "y": _tier(),
            "color": frame.category("giver", **frame.colors(list(_GIVERS.values()))),
            "tooltip": [
                frame.category("tier"),
                frame.category("giver", title="given by"),
                frame.quantity("megabytes", format=",.1f"),
            ],
        },
    )


def _tier() -> Spec:
    return frame.bar_names("tier", labelLimit=_LABEL_PIXELS)
