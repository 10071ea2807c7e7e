"""Charts of tiers: the rates on tiers of storage, and the sources of the bytes.

In: documents of benchmarks.sweep with tiers. Out: charts of two drawings, with a bar
for each tier in the order of the sweep.
"""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.reporting.charts import frame
from benchmarks.reporting.charts.frame import Chart, Plot, Spec
from benchmarks.results.collection import Result
from benchmarks.results.other_results import SweepResult, SweptTier
from tfpipe.errors import count_of

_GIVERS: Mapping[str, Callable[[SweptTier], float | None]] = {
    "server": lambda tier: tier.bytes_from_server,
    "local disk": lambda tier: tier.bytes_from_disk,
    "page cache": lambda tier: tier.bytes_from_page_cache,
    "cache in RAM": lambda tier: tier.bytes_from_ram_cache,
}
_LABEL_PIXELS = 150  # "shard_cache_warm" is whole, also on a small screen
_COLUMNS = ("Tier", "images/s", "CPU, ms an image", "Stall", "Binding", "State")


def rates_and_bytes(sweeps: Sequence[Result[SweepResult]]) -> list[Chart]:
    """Draws images/s and bytes of the tiers, for sweeps with tiers."""
    return frame.of_each(sweeps, _chart)


def _chart(index: int, sweep: Result[SweepResult]) -> Chart | None:
    rows = [row for row in sweep.values.tiers if row.examples_per_second]
    if not rows:
        return None
    several = len({_settings(row) for row in rows}) > 1
    named = [(f"{row.tier}{_settings(row) if several else ''}", row) for row in rows]
    rates = [{"tier": name, "rate": row.examples_per_second} for name, row in named]
    names = frame.bar_names("tier", labelLimit=_LABEL_PIXELS)
    plots = [Plot("Rate", frame.number_bars(rates, names, "rate", "images/s"))]
    parts = [
        {"tier": name, "giver": giver, "megabytes": num_bytes / 1e6}
        for name, row in named
        for giver, get in _GIVERS.items()
        if (num_bytes := get(row))
    ]
    if parts:
        title = "Bytes of the timed steps, by the place they came from"
        plots.append(Plot(title, _bytes(parts, names)))
    return Chart(
        f"tiers-{index}",
        "Tiers: the same run on data in several places",
        [_sentence(name, row) for name, row in named],
        frame.legend(list(_GIVERS)),
        plots,
        [*_COLUMNS, *(f"{giver}, MB" for giver in _GIVERS)],
        [_texts(name, row) for name, row in named],
    )


def _settings(row: SweptTier) -> str:
    """Returns the settings that differ between rows of a tier."""
    words = (row.model, row.mode, row.batch_size, row.accelerator)
    text = ", ".join(str(word) for word in words if word)
    return f", {text}, {count_of(row.num_ranks, 'rank')}"


def _sentence(name: str, row: SweptTier) -> str:
    rate = frame.amount(row.examples_per_second)
    return f"{name}: {rate} images/s; the run waited for: {row.binding or '?'}."


def _texts(name: str, row: SweptTier) -> list[str]:
    amounts = [get(row) for get in _GIVERS.values()]
    return [
        name,
        frame.amount(row.examples_per_second),
        frame.milliseconds(row.cpu_seconds_per_example),
        frame.percent(row.stall_fraction),
        row.binding or "—",
        row.state or "—",
        *(frame.amount(None if bytes_ is None else bytes_ / 1e6) for bytes_ in amounts),
    ]


def _bytes(parts: Sequence[Spec], names: Spec) -> Spec:
    return frame.spec(
        parts,
        height=frame.bar_height(len({part["tier"] for part in parts})),
        mark={"type": "bar"},
        encoding={
            "x": frame.quantity("megabytes", title="MB"),
            "y": names,
            "color": frame.category("giver", **frame.colors(list(_GIVERS))),
            "tooltip": [
                frame.category("tier"),
                frame.category("giver", title="given by"),
                frame.quantity("megabytes", format=",.1f"),
            ],
        },
    )
