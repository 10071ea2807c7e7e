"""Charts of placements: the same ranks on one host and on several, and the verdict.

In: documents of benchmarks.sweep. Out: for each sweep with such ranks a chart: the rate
of each placement beside the ideal, the critical path, and in the table what binds and
the traffic of each host.
"""

from collections.abc import Iterator, Sequence

from benchmarks.reporting.charts import frame
from benchmarks.reporting.charts.frame import Chart, Plot, Spec
from benchmarks.results.collection import Result
from benchmarks.results.other_results import SweepResult, SweptPoint

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


def charts(sweeps: Sequence[Result[SweepResult]]) -> list[Chart]:
    """Draws equal numbers of ranks on one host and on several."""
    return frame.of_each(sweeps, _chart)


def _chart(index: int, sweep: Result[SweepResult]) -> Chart | None:
    series = list(_series(sweep.values))
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


def verdict(placed: Sequence[SweptPoint]) -> str:
    """Returns whether the placement matters, and what binds, in a sentence or two."""
    first, *others = placed
    rates = [each.examples_per_second for each in placed]
    bound = {each.binding for each in placed}
    if min(rates) >= max(rates) * (1 - TOLERANCE):
        text = f"placement does not matter within {TOLERANCE:.0%}."
    else:
        base = first.examples_per_second
        shares = [f"{p.name} {p.examples_per_second / base:.1%}" for p in others]
        text = f"placement matters: of the rate of {first.name}, {', '.join(shares)}."
    if bound == {""}:
        return text
    if len(bound) > 1:
        bindings = [f"{each.binding or 'nothing known'} {each.name}" for each in placed]
        return f"{text} What binds: {', '.join(bindings)}."
    (name,) = bound
    text += f" What binds everywhere: {name}."
    cores = [each.host_cpu_fraction or 0.0 for each in placed]
    if name == "accelerator" and max(cores) > _SPARE_CORES:
        text += (
            f" The cores were {max(cores):.0%} busy: with faster accelerators they "
            "may bind."
        )
    return text


def _series(sweep: SweepResult) -> Iterator[tuple[str, list[SweptPoint]]]:
    """Yields a label, and the placements of equal ranks."""
    for series in sweep.series:
        by_ranks: dict[int, list[SweptPoint]] = {}
        for point in series.points:
            if point.num_ranks and point.num_hosts and point.examples_per_second:
                by_ranks.setdefault(point.num_ranks, []).append(point)
        for ranks, several in by_ranks.items():
            if len(several) > 1:
                words = (series.model, series.accelerator)
                yield f"{' on '.join(filter(None, words))}, {ranks} ranks", several


def _plots(label: str, placed: Sequence[SweptPoint]) -> Iterator[Plot]:
    yield Plot(label, _rates(placed))
    bars = [
        {"placement": each.name, "part": part, "share": share, "order": order}
        for each in placed
        for order, part in enumerate(_PARTS)
        if (share := each.critical_path.get(part))
    ]
    if bars:
        length = frame.quantity("share", title="share of the time")
        encoding = {
            "x": {**length, "scale": {"domain": [0, 1]}, "axis": {"tickCount": 4}},
            "y": frame.bar_names("placement"),
            "color": frame.category("part", **frame.colors(_PARTS)),
            "order": frame.quantity("order"),
        }
        height = frame.bar_height(len(placed))
        drawing = frame.spec(
            bars, height=height, mark={"type": "bar"}, encoding=encoding
        )
        yield Plot(f"{label}: critical path", drawing)


def _rates(placed: Sequence[SweptPoint]) -> Spec:
    """Draws the rates as bars, and the ideal as a tick on each."""
    bars: list[Spec] = [
        {
            "placement": each.name,
            "rate": each.examples_per_second,
            "ideal": each.ideal_examples_per_second,
        }
        for each in placed
    ]
    names = frame.bar_names("placement")
    most = max(bar["ideal"] or 0.0 for bar in bars)
    drawing = frame.number_bars(bars, names, "rate", "images/s", most=most)
    ideal = {**drawing["layer"][0]["encoding"]["x"], "field": "ideal"}
    tick = {"type": "tick", "thickness": 2, "color": "var(--text)"}
    drawing["layer"].append({"mark": tick, "encoding": {"x": ideal, "y": names}})
    return drawing


def _row(label: str, placed: Sequence[SweptPoint], each: SweptPoint) -> list[str]:
    rate, ideal = each.examples_per_second, each.ideal_examples_per_second
    numbers = [frame.amount(mb) for mb in each.received_mb_per_second_per_host]
    return [
        *(label, each.name, f"{each.num_repeats}"),
        frame.amount(rate),
        frame.percent(rate / placed[0].examples_per_second),
        frame.percent(ideal and rate / ideal),
        frame.percent(each.accelerator_utilization),
        each.binding or "—",
        *(frame.percent(each.critical_path.get(part)) for part in _PARTS),
        frame.percent(each.host_cpu_fraction),
        ", ".join(numbers) or "—",
        frame.percent(each.network_utilization),
    ]
