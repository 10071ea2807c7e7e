"""Charts of sweeps beside the publications: images/s of a rank and of a GPU.

In: documents of benchmarks.sweep, whose rows have the nearest published row. Out: a
chart of a document, with the numbers in the columns of the publications.
"""

from collections.abc import Sequence

from benchmarks.reporting.charts import frame
from benchmarks.reporting.charts.frame import Chart, Plot, Spec
from benchmarks.results.collection import Result
from benchmarks.results.other_results import PublishedRow, SweepResult, SweptRow
from tfpipe.errors import count_of

_MEASURED, _PUBLISHED = "this sweep, a rank", "published, a GPU"
_COLUMNS = (
    *("Run", "Kind", "Precision", "Hosts", "Batch", "Images/s", "A rank"),
    *("Read, MB/s", "Storage, MB/s", "CPU", "Accelerator", "Gate"),
    *("Published, a GPU", "Ours", "Storage, MB/s", "CPU"),
    *("Accelerator", "On", "Source"),
)


def beside_publications(sweeps: Sequence[Result[SweepResult]]) -> list[Chart]:
    """Draws the sweeps that have a published row."""
    return frame.of_each(sweeps, _chart)


def _chart(index: int, sweep: Result[SweepResult]) -> Chart | None:
    rows = [row for row in sweep.values.rows if row.examples_per_second_per_rank]
    named = [(_name(row, rows), row) for row in rows]
    drawn = [pair for pair in named if _of_gpu(pair[1])]
    if not drawn:
        return None
    return Chart(
        f"published-{index}",
        "Beside the published tests",
        [_sentence(name, row) for name, row in drawn],
        frame.legend([_MEASURED, _PUBLISHED]),
        [Plot("Images/s of one accelerator", _bars(drawn))],
        _COLUMNS,
        [_texts(name, row) for name, row in named],
    )


def _of_gpu(row: SweptRow) -> float | None:
    return row.published and row.published.images_per_second_per_accelerator


def _name(row: SweptRow, rows: Sequence[SweptRow]) -> str:
    """Returns model, mode and ranks of a row, and the other settings that differ."""
    model = f"{row.model}{'' if row.mode == 'train' else f' {row.mode}'}"
    words = [model, count_of(row.num_ranks, "rank")]
    if row.tier:
        # The tier says data set and cache, and comes first: a small screen cuts names.
        return ", ".join([row.tier, *words])
    settings = [(r.data_dir, r.cache, r.accelerator, r.scaling) for r in rows]
    own = (row.data_dir, row.cache, row.accelerator, row.scaling)
    columns = zip(own, zip(*settings, strict=True), strict=True)
    more = [word for word, words in columns if word and len(set(words)) > 1]
    return ", ".join([*words, *more])


def _sentence(name: str, row: SweptRow) -> str:
    published = frame.amount(_of_gpu(row))
    ours = frame.amount(row.examples_per_second_per_rank)
    text = f"{name}: {ours} images/s a rank; published {published} a GPU, on {_on(row)}"
    apart = f"; not compared: {row.not_compared}" if row.not_compared else ""
    return f"{text}{apart}."


def _on(row: SweptRow) -> str:
    """Returns the accelerators of the published row, such as 72 v100."""
    there = row.published or PublishedRow()
    count = there.num_accelerators
    return "—" if count is None else f"{count} {there.accelerator or '—'}"


def _texts(name: str, row: SweptRow) -> list[str]:
    met = {None: "—", True: "met", False: "not met"}[row.gates_met]
    there, ratio = row.published or PublishedRow(), row.rate_over_published
    return [
        name,
        *(str(v or "—") for v in (row.kind, row.precision, row.num_hosts)),
        str(row.batch_size or "—"),
        frame.amount(row.examples_per_second),
        frame.amount(row.examples_per_second_per_rank),
        frame.amount(row.consumed_megabytes_per_second),
        frame.amount(row.storage_megabytes_per_second),
        frame.percent(row.host_cpu_fraction),
        frame.percent(row.accelerator_busy_fraction),
        met,
        frame.amount(_of_gpu(row)),
        "—" if ratio is None else f"{ratio:.0%}",
        frame.amount(there.storage_megabytes_per_second),
        frame.percent(there.host_cpu_fraction),
        frame.percent(there.accelerator_busy_fraction),
        _on(row),
        there.source or "—",
    ]


def _bars(drawn: Sequence[tuple[str, SweptRow]]) -> Spec:
    """Returns two bars for each row, with numbers."""
    bars = [
        {"run": name, "of": owner, "rate": rate or 0.0}
        for name, row in drawn
        for owner, rate in (
            (_MEASURED, row.examples_per_second_per_rank),
            (_PUBLISHED, _of_gpu(row)),
        )
    ]
    return frame.number_bars(
        bars,
        frame.bar_names("run"),
        *("rate", "images/s"),
        color=frame.category("of", **frame.colors([_MEASURED, _PUBLISHED])),
        yOffset=frame.category("of", sort=[_MEASURED, _PUBLISHED]),
    )
