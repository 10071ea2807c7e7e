"""Figures of the probe as a table for people.

In: the measurements of a result. Out: lines of text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.storage_probe.latencies import PERCENTILES
from tfpipe.errors import count_of

_NAMES = {
    "sequential": "1 MB sequential",
    "random": "4 kB random",
    "shards": "whole shards",
    "open": "open a file",
    "stat": "ask for the size of a file",
    "write": "write, fsync, rename",
}
COLUMNS = ("MB/s", "reads/s", *(f"{name.replace('_', '.')} ms" for name in PERCENTILES))
# By state: what the kernel's figures say, which know this page cache alone.
_SEEN = {
    "direct": "around this page cache",
    "cold": "not in this page cache",
    "warm": "in this page cache",
}


def name(row: Mapping[str, Any]) -> str:
    """Returns the name of a measurement, such as "whole shards, 4 threads"."""
    text = _NAMES.get(row["what"], row["what"])
    again = ", again" if row.get("is_again") else ""
    if row["num_processes"] > 1:
        return f"{text}, {row['num_processes']} processes{again}"
    return f"{text}, {count_of(row['num_threads'], 'thread')}{again}"


def is_same(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Checks whether two rows with figures are tries of the same measurement."""
    names = ("what", "state", "num_processes", "num_threads")
    return "skipped" not in row and all(row[name] == other[name] for name in names)


def cells(row: Mapping[str, Any]) -> list[str]:
    """Returns the figures of a measurement as texts, in the order of `COLUMNS`."""
    latency = row.get("latency_seconds") or {}
    milliseconds = [latency.get(name) for name in PERCENTILES]
    return [
        _amount(row.get("megabytes_per_second")),
        _amount(row.get("reads_per_second")),
        *(_amount(value and value * 1e3) for value in milliseconds),
    ]


def seen(row: Mapping[str, Any]) -> str:
    """Returns the state of a measurement as the kernel saw it.

    "not in this page cache" says nothing of caches in disks, servers and hypervisors.
    """
    state = str(row["state"])
    if state not in _SEEN or row["what"] in ("open", "stat"):
        return state
    if row["is_proven"] is None:
        return f"{state}: the kernel does not tell"
    return f"{state}: {'' if row['is_proven'] else 'NOT '}{_SEEN[state]}"


def proof(row: Mapping[str, Any]) -> str:
    """Returns `seen` with the part in memory before, or why a row is left out."""
    if "skipped" in row:
        return f"{row['state']}: left out. {row['skipped']}"
    part = row["resident_fraction"]
    return seen(row) + (f", {part:.1%} there before" if part is not None else "")


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Returns a line for each measurement, below a heading."""
    lines = [_line("", COLUMNS, "state")]
    lines += [_line(name(row), cells(row), proof(row)) for row in rows]
    return "\n".join(lines)


def _line(first: str, figures: Sequence[str], last: str) -> str:
    return f"{first:<38}{''.join(f'{text:>11}' for text in figures)}  {last}"


def _amount(value: float | None) -> str:
    """Returns a number with three to four digits that matter, or a dash."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
