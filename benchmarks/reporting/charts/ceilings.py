"""Charts of predictions: the demand of accelerators against each ceiling.

In: documents of benchmarks.advise. Out: charts of images a second over the number of
accelerators. Lines are the demand of the accelerators and the ceiling of each resource;
points are the predicted rates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.reporting.charts import frame
from benchmarks.reporting.charts.frame import Chart, Plot, Spec
from benchmarks.results.collection import Result, as_number

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
_TITLES = {
    "ceilings": ("images_per_second", "With full caches"),
    "first_epoch_ceilings": ("first_epoch_images_per_second", "In the first epoch"),
}
_COLUMNS = ("Accelerators", "Hosts", "images/s", "Bound by", "Busy", "CPU")
_COLUMNS += ("1st epoch, images/s", "1st epoch, GB/s", "Bound by, 1st epoch")


def demand(advice: Sequence[Result]) -> list[Chart]:
    """Draws demand and ceilings of each prediction."""
    return frame.of_each(advice, _chart)


def _chart(index: int, result: Result) -> Chart | None:
    rows = [
        row
        for row in result.items("rows")
        if isinstance(row, Mapping) and as_number(row.get("num_accelerators"))
    ]
    drawn = {key: _lines(rows, key) for key in _TITLES}
    if len(rows) < 2 or not all(drawn.values()):
        return None
    used = [
        name
        for key, name in _NAMES.items()
        if any(_ceiling(row, kind, key) for row in rows for kind in _TITLES)
    ]
    if drawn["ceilings"] == drawn["first_epoch_ceilings"]:
        del drawn["first_epoch_ceilings"]
    plots = [
        Plot(_TITLES[key][1] if len(drawn) > 1 else "In each epoch", _draw(lines, used))
        for key, lines in drawn.items()
    ]
    return Chart(
        f"ceilings-{index}",
        f"Predicted: demand and ceilings, {_name(result)}",
        [
            *(text for text in result.items("sentences") if isinstance(text, str)),
            "Lines are the images a second that each resource allows; points are "
            "those that come out.",
        ],
        frame.legend(used),
        plots,
        _COLUMNS,
        [_texts(row) for row in rows],
    )


def _name(result: Result) -> str:
    """Returns model and accelerator of a prediction."""
    names = (result.text(f"facts.{key}.value") for key in ("model", "accelerator"))
    return " on ".join(name for name in names if name) or result.name


def _ceiling(row: Mapping[str, Any], kind: str, key: str) -> float | None:
    ceilings = row.get(kind)
    if not isinstance(ceilings, Mapping):
        return None
    return as_number(ceilings.get(key, ceilings.get(_OLD_NAMES.get(key))))


def _lines(rows: Sequence[Mapping[str, Any]], kind: str) -> list[Spec]:
    """Returns the ceiling of each limited resource, and the predicted rate."""
    points = []
    for row in rows:
        rate = as_number(row.get(_TITLES[kind][0]))
        point = {"number": as_number(row["num_accelerators"]), "reached": rate}
        points += [
            {**point, "what": name, "rate": ceiling}
            for key, name in _NAMES.items()
            if rate and (ceiling := _ceiling(row, kind, key))
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


def _texts(row: Mapping[str, Any]) -> list[str]:
    first_bytes = as_number(row.get("first_epoch_storage_bytes_per_second"))
    return [
        f"{as_number(row.get('num_accelerators')) or 0:,.0f}",
        f"{as_number(row.get('num_hosts')) or 1:,.0f}",
        frame.amount(as_number(row.get("images_per_second"))),
        _NAMES.get(str(row.get("binding")), "—"),
        frame.percent(as_number(row.get("busy_share"))),
        frame.percent(as_number(row.get("cores_share"))),
        frame.amount(as_number(row.get("first_epoch_images_per_second"))),
        frame.amount(None if first_bytes is None else first_bytes / 1e9),
        _NAMES.get(str(row.get("first_epoch_binding")), "—"),
    ]
