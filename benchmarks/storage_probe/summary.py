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
}
COLUMNS = ("MB/s", "reads/s", *(f"{name.replace('_', '.')} ms" for name in PERCENTILES))
_PROOF = {True: "proven", False: "NOT proven", None: "no proof"}


def name(row: Mapping[str, Any]) -> str:
    """Returns the name of a measurement, such as "whole shards, 4 threads"."""
    text = _NAMES.get(row["what"], row["what"])
    if row["num_processes"] > 1:
        return f"{text}, {row['num_processes']} processes"
    return f"{text}, {count_of(row['num_threads'], 'thread')}"


def cells(row: Mapping[str, Any]) -> list[str]:
    """Returns the figures of a measurement as texts, in the order of `COLUMNS`."""
    latency = row.get("latency_seconds") or {}
    milliseconds = [latency.get(name) for name in PERCENTILES]
    return [
        _amount(row.get("megabytes_per_second")),
        _amount(row.get("reads_per_second")),
        *(_amount(value and value * 1e3) for value in milliseconds),
    ]


def proof(row: Mapping[str, Any]) -> str:
    """Returns the state of a measurement with its proof, or why it was left out."""
    if "skipped" in row:
        return f"{row['state']}: left out. {row['skipped']}"
    if row["state"] == "remote" or row["what"] in ("open", "stat"):
        return str(row["state"])
    text = f"{row['state']}, {_PROOF[row['is_proven']]}"
    if row["resident_fraction"] is not None:
        text += f", {row['resident_fraction']:.1%} in memory before"
    return text


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
