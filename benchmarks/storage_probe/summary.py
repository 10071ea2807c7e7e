"""Figures of the probe as a table for people.

In: the measurements of a result. Out: lines of text.
"""

from collections.abc import Sequence

from benchmarks.results.other_results import StorageReading
from tfpipe.cli import text_table
from tfpipe.cli.text_table import Column
from tfpipe.errors import count_of

_NAMES = {
    "sequential": "1 MB sequential",
    "random": "4 kB random",
    "shards": "whole shards",
    "open": "open a file",
    "stat": "ask for the size of a file",
    "write": "write, fsync, rename",
}
# By state: what the kernel's figures say, which know this page cache alone.
_SEEN = {
    "direct": "around this page cache",
    "cold": "not in this page cache",
    "warm": "in this page cache",
}


def name(row: StorageReading) -> str:
    """Returns the name of a reading, such as "whole shards, 4 threads"."""
    text = _NAMES.get(row.what, row.what)
    again = ", again" if row.is_again else ""
    if row.num_processes > 1:
        return f"{text}, {row.num_processes} processes{again}"
    return f"{text}, {count_of(row.num_threads, 'thread')}{again}"


def seen(row: StorageReading) -> str:
    """Returns the state of a reading as the kernel saw it.

    "not in this page cache" says nothing of caches in disks, servers and hypervisors.
    """
    if row.state not in _SEEN or row.what in ("open", "stat"):
        return row.state
    if row.is_proven is None:
        return f"{row.state}: the kernel does not tell"
    return f"{row.state}: {'' if row.is_proven else 'NOT '}{_SEEN[row.state]}"


def proof(row: StorageReading) -> str:
    """Returns `seen` with the part in memory before, or why a row is left out."""
    if row.skipped:
        return f"{row.state}: left out. {row.skipped}"
    part = row.resident_fraction
    return seen(row) + (f", {part:.1%} there before" if part is not None else "")


def table(rows: Sequence[StorageReading]) -> str:
    """Returns a line for each reading, below the titles."""
    return "\n".join(text_table.lines(_COLUMNS, rows))


def _amount(value: float | None) -> str:
    """Returns a number with three to four digits that matter, or a dash."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _milliseconds(seconds: float | None) -> str:
    return _amount(None if seconds is None else seconds * 1e3)


_COLUMNS: Sequence[Column[StorageReading]] = (
    Column("", name, is_left=True),
    Column("MB/s", lambda row: _amount(row.megabytes_per_second)),
    Column("reads/s", lambda row: _amount(row.reads_per_second)),
    Column("p50 ms", lambda row: _milliseconds(row.latency_seconds.p50)),
    Column("p90 ms", lambda row: _milliseconds(row.latency_seconds.p90)),
    Column("p99 ms", lambda row: _milliseconds(row.latency_seconds.p99)),
    Column("p99.9 ms", lambda row: _milliseconds(row.latency_seconds.p99_9)),
    Column("state", proof, is_left=True),
)
