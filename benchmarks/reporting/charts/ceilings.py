"""Charts of predictions: the demand of accelerators against each ceiling.

In: documents of benchmarks.advise. Out: charts of images a second over the number of
accelerators. Lines are the demand of the accelerators and the ceiling of each resource;
points are the predicted rates.
"""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.reporting.charts import frame
from benchmarks.reporting.charts.frame import Chart, Plot, Spec
from benchmarks.results.collection import Result
from benchmarks.results.other_results import AdviceResult, PredictedRow

Ceilings = Mapping[str, float | None]
_Of = Callable[[PredictedRow], float | None]
_HEIGHT = 260
_LINE = {"type": "line", "strokeWidth": 2.5}
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
_COLUMNS = ("Accelerators", "Hosts", "images/s", "Bound by", "Busy", "CPU")
_COLUMNS += ("1st epoch, images/s", "1st epoch, GB/s", "Bound by, 1st epoch")


def demand(advice: Sequence[Result[AdviceResult]]) -> list[Chart]:
    """Draws demand and ceilings of each prediction."""
    return frame.of_each(advice, _chart)


def _chart(index: int, result: Result[AdviceResult]) -> Chart | None:
    rows = [row for row in result.values.rows if row.num_accelerators]
    drawn = {title: _lines(rows, *get) for title, get in _TITLES.items()}
    if len(rows) < 2 or not all(drawn.values()):
        return None
    used = [
        name
        for name in _NAMES.values()
        if any(point["what"] == name for points in drawn.values() for point in points)
    ]
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
        [Plot(title, _draw(lines, used)) for title, lines in drawn.items()],
        _COLUMNS,
        [_texts(row) for row in rows],
    )


def _name(result: Result[AdviceResult]) -> str:
    """Returns model and accelerator of a prediction."""
    facts = result.values.facts
    names = (facts[key].value for key in ("model", "accelerator") if key in facts)
    return " on ".join(str(name) for name in names if name) or result.name


def _lines(
    rows: Sequence[PredictedRow],
    rate: _Of,
    ceilings: Callable[[PredictedRow], Ceilings],
) -> list[Spec]:
    """Returns the ceiling of each limited resource, and the predicted rate."""
    points = []
    for row in rows:
        point = {"number": row.num_accelerators, "reached": rate(row)}
        allowed = ceilings(row)
        points += [
            {**point, "what": name, "rate": ceiling}
            for key, name in _NAMES.items()
            if rate(row)
            and (ceiling := allowed.get(key, allowed.get(_OLD_NAMES.get(key, ""))))
        ]
    return points


def _draw(points: Sequence[Spec], names: Sequence[str]) -> Spec:
    x = frame.quantity(
        "number",
        title="accelerators",
        scale={"type": "log", "base": 2},
        axis={"tickCount": 6, "format": ",d"},
    )
    y = frame.quantity(
        "rate",
        title="images/s",
        scale={"type": "log"},
        axis={"format": "~s", "tickCount": 5},
    )
    tooltip = [
        frame.quantity("number", title="accelerators"),
        frame.category("what"),
        frame.quantity("rate", title="allows", format=",.0f"),
        frame.quantity("reached", format=",.0f"),
    ]
    lines = {"x": x, "y": y, "color": frame.category("what", **frame.colors(names))}
    dots = {"x": x, "y": {**y, "field": "reached"}}
    return frame.spec(
        points,
        height=_HEIGHT,
        layer=[
            {"mark": mark, "encoding": {**encoding, "tooltip": tooltip}}
            for mark, encoding in ((_LINE, lines), (_DOT, dots))
        ],
    )


def _texts(row: PredictedRow) -> list[str]:
    first_bytes = row.first_epoch_storage_bytes_per_second
    return [
        f"{row.num_accelerators:,}",
        f"{row.num_hosts:,}",
        frame.amount(row.images_per_second),
        _NAMES.get(row.binding, "—"),
        frame.percent(row.busy_share),
        frame.percent(row.cores_share),
        frame.amount(row.first_epoch_images_per_second),
        frame.amount(None if first_bytes is None else first_bytes / 1e9),
        _NAMES.get(row.first_epoch_binding, "—"),
    ]
