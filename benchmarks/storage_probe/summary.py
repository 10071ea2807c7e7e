"""Figures of the probe as a table for people.

In: the measurements of a result. Out: lines of text.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.models.accelerators import Accelerators
from benchmarks.results.other_results import StorageReading
from benchmarks.storage_probe.reads import WRITE
from tfpipe.cli.text_table import Column
from tfpipe.errors import count_of
from tfpipe.pages.frame import amount, milliseconds

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
    readers = count_of(row.num_threads, "thread")
    if row.num_processes > 1:
        readers = f"{row.num_processes} processes"
    again = ", again" if row.is_again else ""
    return f"{_NAMES.get(row.what, row.what)}, {readers}{again}"


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


READINGS: Sequence[Column[StorageReading]] = (
    Column("reading", name, is_left=True),
    Column("MB/s", lambda row: amount(row.megabytes_per_second)),
    Column("reads/s", lambda row: amount(row.reads_per_second)),
    Column("p50 ms", lambda row: milliseconds(row.latency_seconds.p50)),
    Column("p90 ms", lambda row: milliseconds(row.latency_seconds.p90)),
    Column("p99 ms", lambda row: milliseconds(row.latency_seconds.p99)),
    Column("p99.9 ms", lambda row: milliseconds(row.latency_seconds.p99_9)),
    Column("state", proof, is_left=True),
)


_IN_ORDER = ("shards", "sequential")  # kinds of readings
_IN_SENTENCE = ("h100", "v100")


def best(measured: Iterable[StorageReading]) -> StorageReading | None:
    """Returns the fastest reading in order without help of the page cache.

    Where memory is the storage, any reading counts.
    """
    read = [m for m in measured if m.what in _IN_ORDER and not m.skipped]
    apart = [m for m in read if m.state != "warm"]
    return max(apart or read, key=_rate, default=None)


def fastest_write(measured: Iterable[StorageReading]) -> StorageReading | None:
    """Returns the fastest of the writes; None if nothing was written."""
    return max((m for m in measured if m.what == WRITE), key=_rate, default=None)


def fastest(measured: Iterable[StorageReading], best: StorageReading) -> str:
    """Returns a sentence about the fastest reading, with the rate of its other try."""
    text = f"The fastest: {_rate(best):,.0f} MB/s with "
    text += name(dataclasses.replace(best, is_again=False)) + f", {seen(best)}"
    if each := best.megabytes_per_second_per_host:
        text += f"; {len(each)} hosts: {' + '.join(f'{rate:,.0f}' for rate in each)}"
    tries = [_rate(row) for row in measured if row.way == best.way and not row.skipped]
    if len(tries) > 1:
        text += f"; {min(tries):,.0f} in another try"
    return f"{text}."


def _rate(reading: StorageReading) -> float:
    return reading.megabytes_per_second or 0.0


def fed(
    rate: float,
    record_bytes: Sequence[float],
    models: Sequence[str],
    accelerators: Accelerators,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns how many accelerators a rate in bytes a second feeds, for training.

    Returns:
        A row for each model, size and accelerator with a figure for the model; a
        sentence for each model and size, with two of the accelerators.
    """
    rows: list[dict[str, Any]] = []
    sentences = []
    for model, size in itertools.product(models, record_bytes):
        own: dict[str, dict[str, Any]] = {
            name: {
                "model": model,
                "record_bytes": size,
                "accelerator": name,
                "images_per_second": figure.images_per_second,
                "num_accelerators": rate / (figure.images_per_second * size),
                "basis": figure.basis,
                "source": figure.source,
            }
            for name, modes in accelerators.items()
            if (figure := modes["train"].get(model))
        }
        rows += own.values()
        words = [
            f"{_count_text(own[name]['num_accelerators'])} {name.upper()}"
            for name in _IN_SENTENCE
            if name in own
        ]
        if words:
            shown = f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
            sentences.append(
                f"It feeds {' or '.join(words)} that train {model} with records of "
                f"{shown}."
            )
    return rows, sentences


def _count_text(value: float) -> str:
    """Returns a value with two significant digits below 10, and no decimals above."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 0.95 else f"{value:.2g}"
