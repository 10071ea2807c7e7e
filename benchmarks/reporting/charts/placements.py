"""Charts of placements: the same ranks on one host and on several, and the verdict.

In: documents of benchmarks.sweep. Out: for each sweep with such ranks a chart: the rate
of each placement beside the ideal, the critical path, and in the table what binds and
the traffic of each host.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.reporting.charts import frame
from benchmarks.reporting.charts.frame import Chart, Plot, Spec
from benchmarks.results.collection import Result, as_number

# Placements whose rates differ by less are as good as each other.
TOLERANCE = 0.03
# An accelerator decides alone only where the hosts have cores to spare.
_SPARE_CORES = 0.5

_PARTS = ("compute", "input", "communication", "late")
_COLUMNS = (
    *("Run", "Hosts x ranks", "Runs", "Images/s", "Of the first", "Of the ideal"),
    *("AU", "Binds", *(part.capitalize() for part in _PARTS), "Cores"),
    *("MB/s into each host", "Link"),
)


class _Placed(NamedTuple):
    """A placement of a series.

    Attributes:
        name: Hosts x ranks of each host.
        rate: Images/s of all ranks.
        values: The figures of the point in the document of the sweep.
    """

    name: str
    rate: float
    values: Mapping[str, Any]

    def figure(self, key: str) -> float | None:
        """Returns a figure; None if the document has no such number."""
        return as_number(self.values.get(key))

    @property
    def binding(self) -> str:
        """The resource that binds; empty if unknown."""
        return str(self.values.get("binding") or "")


def charts(sweeps: Sequence[Result]) -> list[Chart]:
    """Draws equal numbers of ranks on one host and on several."""
    return frame.of_each(sweeps, _chart)


def _chart(index: int, sweep: Result) -> Chart | None:
    series = list(_series(sweep))
    if not series:
        return None
    plots = [plot for label, placed in series for plot in _plots(label, placed)]
    return Chart(
        f"placements-{index}",
        "The same ranks on one host and on several",
        [f"{label}: {verdict(placed)}" for label, placed in series],
        frame.legend(_PARTS) if len(plots) > len(series) else [],
        plots,
        _COLUMNS,
        [_row(label, placed, each) for label, placed in series for each in placed],
    )


def verdict(placed: Sequence[_Placed]) -> str:
    """Returns whether the placement matters, and what binds, in a sentence or two."""
    first, *others = placed
    rates = [each.rate for each in placed]
    bound = {each.binding for each in placed}
    if min(rates) >= max(rates) * (1 - TOLERANCE):
        text = f"placement does not matter within {TOLERANCE:.0%}."
    else:
        shares = [f"{each.name} {each.rate / first.rate:.1%}" for each in others]
        text = f"placement matters: of the rate of {first.name}, {', '.join(shares)}."
    if bound == {""}:
        return text
    if len(bound) > 1:
        bindings = [f"{each.binding or 'nothing known'} {each.name}" for each in placed]
        return f"{text} What binds: {', '.join(bindings)}."
    (name,) = bound
    text += f" What binds everywhere: {name}."
    cores = [each.figure("host_cpu_fraction") or 0.0 for each in placed]
    if name == "accelerator" and max(cores) > _SPARE_CORES:
        text += (
            f" The cores were {max(cores):.0%} busy: with faster accelerators they "
            "may bind."
        )
    return text


def _series(sweep: Result) -> Iterator[tuple[str, list[_Placed]]]:
    """Yields a label, and the placements of equal ranks."""
    for series in sweep.items("series"):
        by_ranks: dict[float, list[_Placed]] = {}
        points = series.get("points", ()) if isinstance(series, Mapping) else ()
        for values in (point for point in points if isinstance(point, Mapping)):
            ranks, hosts, rate = (
                as_number(values.get(key))
                for key in ("num_ranks", "num_hosts", "examples_per_second")
            )
            if ranks and hosts and rate:
                name = f"{hosts:g} x {ranks / hosts:g}"
                by_ranks.setdefault(ranks, []).append(_Placed(name, rate, values))
        for ranks, several in by_ranks.items():
            if len(several) > 1:
                words = [series.get("model"), series.get("accelerator")]
                named = " on ".join(str(word) for word in words if word)
                yield f"{named}, {ranks:g} ranks", several


def _plots(label: str, placed: Sequence[_Placed]) -> Iterator[Plot]:
    yield Plot(label, _rates(placed))
    bars = [
        {"placement": each.name, "part": part, "share": share, "order": order}
        for each in placed
        for order, part in enumerate(_PARTS)
        if (share := as_number((each.values.get("critical_path") or {}).get(part)))
    ]
    if bars:
        encoding = {
            "x": frame.bar_length("share", "share of the time", 1.0),
            "y": frame.bar_names("placement"),
            "color": frame.category("part", **frame.colors(_PARTS)),
            "order": frame.quantity("order"),
        }
        height = frame.bar_height(len(placed))
        drawing = frame.spec(
            bars, height=height, mark={"type": "bar"}, encoding=encoding
        )
        yield Plot(f"{label}: critical path", drawing)


def _rates(placed: Sequence[_Placed]) -> Spec:
    """Draws the rates as bars, and the ideal as a tick on each."""
    bars: list[Spec] = [
        {
            "placement": each.name,
            "rate": each.rate,
            "ideal": each.figure("ideal_examples_per_second"),
            "shown": frame.amount(each.rate),
        }
        for each in placed
    ]
    most = max(max(bar["rate"], bar["ideal"] or 0) for bar in bars)
    x = frame.bar_length("rate", "images/s", most * 1.25)  # room for the number
    y = frame.bar_names("placement")
    layer = frame.labelled_bars(
        {"x": x, "y": y}, {"value": frame.color(0)}, label="shown"
    )
    tick = {"type": "tick", "thickness": 2, "color": "var(--text)"}
    layer.append({"mark": tick, "encoding": {"x": {**x, "field": "ideal"}, "y": y}})
    return frame.spec(bars, height=frame.bar_height(len(bars)), layer=layer)


def _row(label: str, placed: Sequence[_Placed], each: _Placed) -> list[str]:
    ideal = each.figure("ideal_examples_per_second")
    shares = each.values.get("critical_path") or {}
    received = each.values.get("received_mb_per_second_per_host") or ()
    numbers = [frame.amount(as_number(rate)) for rate in received]
    return [
        *(label, each.name, f"{each.figure('num_repeats') or 1:g}"),
        frame.amount(each.rate),
        frame.percent(each.rate / placed[0].rate),
        frame.percent(ideal and each.rate / ideal),
        frame.percent(each.figure("accelerator_utilization")),
        each.binding or "—",
        *(frame.percent(as_number(shares.get(part))) for part in _PARTS),
        frame.percent(each.figure("host_cpu_fraction")),
        ", ".join(numbers) or "—",
        frame.percent(each.figure("network_utilization")),
    ]
