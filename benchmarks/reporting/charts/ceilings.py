"""Charts of predictions: the demand of accelerators against each ceiling.

In: documents of benchmarks.advise. Out: charts of images a second over the number of
accelerators. Lines are the demand of the accelerators and the ceiling of each resource;
points are the predicted rates.
"""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.results.collection import Result
from benchmarks.results.other_results import AdviceResult, PredictedRow
from tfpipe.pages import frame
from tfpipe.pages.frame import Chart, Plot, PlottedPoint, Spec

Ceilings = Mapping[str, float | None]
_Of = Callable[[PredictedRow], float | None]
_DOT = {"type": "point", "size": 60, "filled": True, "color": "var(--text)"}
_NAMES = {
    "accelerator": "demand of the accelerators",
    "cores": "cores of the hosts",
    "storage": "storage",
    "network": "network of the hosts",
    "requests": "requests of the storage",
}
_OLD_NAMES = {"cores": "cpu", "network": "link"}  # in results of older versions
_TITLES: Mapping[str, tuple[_Of, Callable[[PredictedRow], Ceilings]]] = {
    "With full caches": (lambda row: row.images_per_second, lambda row: row.ceilings),
    "In the first epoch": (
        lambda row: row.first_epoch_images_per_second,
        lambda row: row.first_epoch_ceilings,
    ),
}
_COLUMNS: Mapping[str, Callable[[PredictedRow], str]] = {
    "Accelerators": lambda row: f"{row.num_accelerators:,}",
    "Hosts": lambda row: f"{row.num_hosts:,}",
    "images/s": lambda row: frame.amount(row.images_per_second),
    "Bound by": lambda row: _NAMES.get(row.binding, "—"),
    "Busy": lambda row: frame.percent(row.busy_share),
    "CPU": lambda row: frame.percent(row.cores_share),
    "1st epoch, images/s": lambda row: frame.amount(row.first_epoch_images_per_second),
    "1st epoch, GB/s": lambda row: frame.amount(
        row.first_epoch_storage_bytes_per_second, scale=1e-9
    ),
    "Bound by, 1st epoch": lambda row: _NAMES.get(row.first_epoch_binding, "—"),
}


def demand(advice: Sequence[Result[AdviceResult]]) -> list[Chart]:
    """Draws demand and ceilings of each prediction."""
    return frame.of_each(advice, _chart)


def _chart(index: int, result: Result[AdviceResult]) -> Chart | None:
    rows = [row for row in result.values.rows if row.num_accelerators]
    drawn = {title: _drawn(rows, *get) for title, get in _TITLES.items()}
    if len(rows) < 2 or not all(lines for lines, _ in drawn.values()):
        return None
    points = {point.line for lines, _ in drawn.values() for point in lines}
    used = [name for name in _NAMES.values() if name in points]
    full, first = drawn.values()
    if full == first:
        drawn = {"In each epoch": full}
    return Chart(
        f"ceilings-{index}",
        f"Predicted: demand and ceilings, {_name(result)}",
        [
            *result.values.sentences,
            "Lines are the images a second that each resource allows; points are "
            "those that come out.",
        ],
        frame.legend(used),
        [Plot(title, _draw(*both, used)) for title, both in drawn.items()],
        *frame.table(_COLUMNS, rows),
    )


def _name(result: Result[AdviceResult]) -> str:
    facts = result.values.facts
    names = (facts[key].value for key in ("model", "accelerator") if key in facts)
    return " on ".join(str(name) for name in names if name) or result.name


def _drawn(
    rows: Sequence[PredictedRow],
    rate: _Of,
    ceilings: Callable[[PredictedRow], Ceilings],
) -> tuple[list[PlottedPoint], list[Spec]]:
    """Returns the ceiling of each limited resource, and the predicted rates."""
    reached = [row for row in rows if rate(row)]
    points = [
        PlottedPoint(row.num_accelerators, ceiling, name)
        for row in reached
        for key, name in _NAMES.items()
        if (
            ceiling := ceilings(row).get(
                key, ceilings(row).get(_OLD_NAMES.get(key, ""))
            )
        )
    ]
    return points, [{"x": row.num_accelerators, "y": rate(row)} for row in reached]


def _draw(
    points: Sequence[PlottedPoint], reached: Sequence[Spec], names: list[str]
) -> Spec:
    tooltip = [
        frame.quantity("x", title="accelerators"),
        frame.quantity("y", title="reached", format=",.0f"),
    ]
    dots = {"x": frame.quantity("x"), "y": frame.quantity("y"), "tooltip": tooltip}
    return frame.lines(
        points,
        names,
        {
            "title": "accelerators",
            "scale": {"type": "log", "base": 2},
            "axis": {"tickCount": 6, "format": ",d"},
        },
        {
            "title": "images/s",
            "scale": {"type": "log"},
            "axis": {"format": "~s", "tickCount": 5},
        },
        height=260,
        layers=[{"data": {"values": list(reached)}, "mark": _DOT, "encoding": dots}],
    )
