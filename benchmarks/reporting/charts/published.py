"""Charts of sweeps beside the publications: images/s of one rank and of one GPU.

In: documents of benchmarks.sweep, whose rows have the published row that is nearest.
Out: for each document a chart, whose numbers are the table that the publications have.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.reporting.charts.frame import (
    Chart,
    Plot,
    Spec,
    amount,
    bar_height,
    colors,
    labels_axis,
    legend,
    of_each,
    percent,
    spec,
)
from benchmarks.reporting.results import Result, as_number

_MEASURED, _PUBLISHED = "this sweep, a rank", "published, a GPU"
_COLUMNS = (
    *("Run", "Batch", "Images/s", "A rank", "Read, MB/s", "Storage, MB/s", "CPU"),
    *("Accelerator", "Gate", "Published, a GPU", "Ours", "Storage, MB/s", "CPU"),
    *("Accelerator", "On", "Source"),
)
_TELLING = ("tier", "data_dir", "cache", "accelerator", "scaling")

Row = Mapping[str, Any]


def beside_publications(sweeps: Sequence[Result]) -> list[Chart]:
    """Draws each sweep of which at least one row was published."""
    return of_each(sweeps, _chart)


def _chart(place: int, sweep: Result) -> Chart | None:
    rows = [
        row
        for row in sweep.items("rows")
        if isinstance(row, Mapping) and _number(row, "examples_per_second_per_rank")
    ]
    known = [row for row in rows if _of_gpu(row)]
    if not known:
        return None
    names = {id(row): _name(row, rows) for row in rows}
    drawn = [(names[id(row)], row) for row in known]
    return Chart(
        f"published-{place}",
        "Beside the published tests",
        [_sentence(name, row) for name, row in drawn],
        legend([_MEASURED, _PUBLISHED]),
        [Plot("Images/s of one accelerator", _bars(drawn))],
        _COLUMNS,
        [_texts(names[id(row)], row) for row in rows],
    )


def _number(row: Row, *path: str) -> float | None:
    value: Any = row
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return as_number(value)


def _text(row: Row, key: str) -> str:
    published = row.get("published")
    value = published.get(key) if isinstance(published, Mapping) else None
    return str(value) if value else "—"


def _of_gpu(row: Row) -> float | None:
    return _number(row, "published", "images_per_second_per_accelerator")


def _name(row: Row, rows: Sequence[Row]) -> str:
    """Returns model, mode and ranks of a row, and what else tells rows apart."""
    mode = row.get("mode")
    more = [
        str(row[key])
        for key in _TELLING
        if row.get(key) and len({str(other.get(key)) for other in rows}) > 1
    ]
    ranks = _number(row, "num_ranks") or 1
    model = f"{row.get('model')}{'' if mode == 'train' else f' {mode}'}"
    known = [model, f"{ranks:g} rank{'s' if ranks != 1 else ''}"]
    if row.get("tier"):
        # It is first, as a small screen cuts names, and it says place and cache.
        return ", ".join([str(row["tier"]), *known])
    return ", ".join([*known, *more])


def _sentence(name: str, row: Row) -> str:
    published = _of_gpu(row)
    ours = amount(_number(row, "examples_per_second_per_rank"))
    text = f"{name}: {ours} images/s a rank; published {amount(published)} a GPU"
    return f"{text}, on {_on(row)}."


def _on(row: Row) -> str:
    """Returns the accelerators of the published row, such as 72 v100."""
    count = _number(row, "published", "num_accelerators")
    return "—" if count is None else f"{count:g} {_text(row, 'accelerator')}"


def _texts(name: str, row: Row) -> list[str]:
    met = {None: "—", True: "met", False: "not met"}.get(row.get("gates_met"), "—")
    ratio = _number(row, "rate_over_published")
    batch = _number(row, "batch_size")
    return [
        name,
        "—" if batch is None else f"{batch:g}",
        *(
            amount(_number(row, key))
            for key in (
                *("examples_per_second", "examples_per_second_per_rank"),
                *("consumed_megabytes_per_second", "storage_megabytes_per_second"),
            )
        ),
        percent(_number(row, "host_cpu_fraction")),
        percent(_number(row, "accelerator_busy_fraction")),
        met,
        amount(_of_gpu(row)),
        "—" if ratio is None else f"{ratio:.0%}",
        amount(_number(row, "published", "storage_megabytes_per_second")),
        percent(_number(row, "published", "host_cpu_fraction")),
        percent(_number(row, "published", "accelerator_busy_fraction")),
        _on(row),
        _text(row, "source"),
    ]


def _bars(drawn: Sequence[tuple[str, Row]]) -> Spec:
    """Returns two bars for each row, one below the other, with their numbers."""
    bars = [
        {"run": name, "of": of, "rate": rate, "shown": amount(rate)}
        for name, row in drawn
        for of, rate in (
            (_MEASURED, _number(row, "examples_per_second_per_rank") or 0.0),
            (_PUBLISHED, _of_gpu(row) or 0.0),
        )
    ]
    widest = max(bar["rate"] for bar in bars)
    x = {
        "field": "rate",
        "type": "quantitative",
        "title": "images/s",
        "scale": {"domain": [0, widest * 1.25]},  # room for the number
        "axis": {"tickCount": 4},
    }
    y = {"field": "run", "type": "nominal", "sort": None, "axis": labels_axis()}
    offset = {"field": "of", "type": "nominal", "sort": [_MEASURED, _PUBLISHED]}
    both = {"x": x, "y": y, "yOffset": offset}
    color = {"field": "of", "type": "nominal", **colors([_MEASURED, _PUBLISHED])}
    text = {"field": "shown", "type": "nominal"}
    mark = {"type": "text", "align": "left", "dx": 5}
    layer = [
        {"mark": {"type": "bar"}, "encoding": {**both, "color": color}},
        {"mark": mark, "encoding": {**both, "text": text}},
    ]
    return spec(bars, height=2 * bar_height(len(drawn)), layer=layer)
