"""Charts of sweeps beside the publications: images/s of a rank and of a GPU.

In: documents of benchmarks.sweep, whose rows have the nearest published row. Out: a
chart of a document, with the numbers in the columns of the publications.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.reporting.charts import frame
from benchmarks.reporting.charts.frame import Chart, Plot, Spec
from benchmarks.results.collection import Result, as_number

_MEASURED, _PUBLISHED = "this sweep, a rank", "published, a GPU"
_COLUMNS = (
    *("Run", "Kind", "Precision", "Hosts", "Batch", "Images/s", "A rank"),
    *("Read, MB/s", "Storage, MB/s", "CPU", "Accelerator", "Gate"),
    *("Published, a GPU", "Ours", "Storage, MB/s", "CPU"),
    *("Accelerator", "On", "Source"),
)
_TELLING = ("tier", "data_dir", "cache", "accelerator", "scaling")

Row = Mapping[str, Any]


def beside_publications(sweeps: Sequence[Result]) -> list[Chart]:
    """Draws the sweeps that have a published row."""
    return frame.of_each(sweeps, _chart)


def _chart(index: int, sweep: Result) -> Chart | None:
    rows = [
        row
        for row in sweep.items("rows")
        if isinstance(row, Mapping) and _number(row, "examples_per_second_per_rank")
    ]
    names = {id(row): _name(row, rows) for row in rows}
    drawn = [(names[id(row)], row) for row in rows if _of_gpu(row)]
    if not drawn:
        return None
    return Chart(
        f"published-{index}",
        "Beside the published tests",
        [_sentence(name, row) for name, row in drawn],
        frame.legend([_MEASURED, _PUBLISHED]),
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
    """Returns model, mode and ranks of a row, and the other settings that differ."""
    mode = row.get("mode")
    more = [
        str(row[key])
        for key in _TELLING
        if row.get(key) and len({str(other.get(key)) for other in rows}) > 1
    ]
    ranks = _number(row, "num_ranks") or 1
    model = f"{row.get('model')}{'' if mode == 'train' else f' {mode}'}"
    words = [model, f"{ranks:g} rank{'s' if ranks != 1 else ''}"]
    if row.get("tier"):
        # The tier says data set and cache, and comes first: a small screen cuts names.
        return ", ".join([str(row["tier"]), *words])
    return ", ".join([*words, *more])


def _sentence(name: str, row: Row) -> str:
    published = frame.amount(_of_gpu(row))
    ours = frame.amount(_number(row, "examples_per_second_per_rank"))
    text = f"{name}: {ours} images/s a rank; published {published} a GPU"
    if different := row.get("not_compared"):
        return f"{text}, on {_on(row)}; not compared: {different}."
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
        *(str(row.get(key) or "—") for key in ("kind", "precision", "num_hosts")),
        "—" if batch is None else f"{batch:g}",
        *(
            frame.amount(_number(row, key))
            for key in (
                *("examples_per_second", "examples_per_second_per_rank"),
                *("consumed_megabytes_per_second", "storage_megabytes_per_second"),
            )
        ),
        frame.percent(_number(row, "host_cpu_fraction")),
        frame.percent(_number(row, "accelerator_busy_fraction")),
        met,
        frame.amount(_of_gpu(row)),
        "—" if ratio is None else f"{ratio:.0%}",
        frame.amount(_number(row, "published", "storage_megabytes_per_second")),
        frame.percent(_number(row, "published", "host_cpu_fraction")),
        frame.percent(_number(row, "published", "accelerator_busy_fraction")),
        _on(row),
        _text(row, "source"),
    ]


def _bars(drawn: Sequence[tuple[str, Row]]) -> Spec:
    """Returns two bars for each row, with numbers."""
    bars = [
        {"run": name, "of": owner, "rate": rate, "shown": frame.amount(rate)}
        for name, row in drawn
        for owner, rate in (
            (_MEASURED, _number(row, "examples_per_second_per_rank") or 0.0),
            (_PUBLISHED, _of_gpu(row) or 0.0),
        )
    ]
    widest = max(bar["rate"] for bar in bars)
    encoding = {
        "x": frame.bar_length("rate", "images/s", widest * 1.25),  # room for the number
        "y": frame.bar_names("run"),
        "yOffset": frame.category("of", sort=[_MEASURED, _PUBLISHED]),
    }
    color = frame.category("of", **frame.colors([_MEASURED, _PUBLISHED]))
    layer = frame.labelled_bars(encoding, color, label="shown")
    return frame.spec(bars, height=2 * frame.bar_height(len(drawn)), layer=layer)
