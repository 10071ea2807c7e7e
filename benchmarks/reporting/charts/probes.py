"""Charts of benchmarks.storage: rates of the ways to read, by state of the page cache.

In: results of benchmarks.storage. Out: a chart of bars, with the table of a terminal.
"""

from benchmarks.reporting import tables
from benchmarks.results import collection as results
from benchmarks.results.collection import Result
from benchmarks.results.other_results import StorageResult
from benchmarks.storage_probe import summary
from tfpipe.pages import frame
from tfpipe.pages.frame import Bar, Chart, Plot

_STATES = ("direct", "cold", "warm", "remote", "durable")


@frame.of_each
def storage_rates(index: int, result: Result[StorageResult]) -> Chart | None:
    """Draws MB/s of a result of benchmarks.storage."""
    every = result.values.measurements
    if all(row.reads_per_second is None for row in every):
        return None
    rated = [row for row in every if row.megabytes_per_second is not None]
    states = [state for state in _STATES if state in {row.state for row in rated}]
    rates = [
        Bar(f"{summary.name(m)}\n{m.state}", m.megabytes_per_second or 0.0, m.state)
        for m in rated
        if m.state in states
    ]
    plots = [Plot("Rate", frame.bars(rates, "MB/s", parts=states))] if rates else []
    where = results.short_name(str(result.options.get("place") or "")) or result.name
    return Chart(
        f"storage-{index}-rates",
        f"How fast {where} is",
        result.values.sentences,
        frame.legend(states),
        plots,
        *tables.view(summary.READINGS, every),
    )
