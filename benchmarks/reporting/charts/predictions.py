"""Predictions of benchmarks.advise: a row for each number of accelerators.

In: documents of benchmarks.advise. Out: the sentences of an answer and its table, for
pages; and the columns, for terminals too.
"""

from collections.abc import Sequence

from benchmarks.reporting import tables
from benchmarks.results.collection import Result
from benchmarks.results.other_results import AdviceResult, PredictedRow
from tfpipe.cli.text_table import Column
from tfpipe.pages import frame
from tfpipe.pages.frame import Chart, amount, percent

ROWS: Sequence[Column[PredictedRow]] = (
    Column("accelerators", lambda r: f"{r.num_accelerators:,}"),
    Column("hosts", lambda r: f"{r.num_hosts:,}"),
    Column("images/s", lambda r: amount(r.images_per_second)),
    Column("busy", lambda r: percent(r.busy_share)),
    Column("cores", lambda r: amount(r.cores_used)),
    Column("of all", lambda r: percent(r.cores_share)),
    Column("bound by", lambda r: r.binding or "—", is_left=True),
    Column("1st epoch, images/s", lambda r: amount(r.first_epoch_images_per_second)),
    Column(
        "1st epoch, GB/s",
        lambda r: amount(r.first_epoch_storage_bytes_per_second, scale=1e-9),
    ),
    Column(
        "1st epoch, requests/s", lambda r: amount(r.first_epoch_requests_per_second)
    ),
    Column("1st epoch, bound by", lambda r: r.first_epoch_binding or "—", is_left=True),
)


@frame.of_each
def demand(index: int, result: Result[AdviceResult]) -> Chart | None:
    """Returns the answer and the table of a prediction."""
    rows = [row for row in result.values.rows if row.num_accelerators]
    if not rows:
        return None
    facts = result.values.facts
    names = (facts[key].value for key in ("model", "accelerator") if key in facts)
    title = " on ".join(str(name) for name in names if name) or result.name
    return Chart(
        *(
            f"prediction-{index}",
            f"Predicted: {title}",
            result.values.sentences,
            [],
            [],
        ),
        *tables.view(ROWS, rows),
    )
