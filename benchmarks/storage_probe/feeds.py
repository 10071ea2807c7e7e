"""Accelerators that a storage feeds: rates of the storage over rates of readers.

In: MB/s, and the size of a record. Out: the number of accelerators for each model, and
a sentence. An accelerator reads its published images/s times the bytes of a record.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.models.accelerators import Accelerator
from benchmarks.results.other_results import StorageReading
from benchmarks.storage_probe.reads import WRITE

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


def _rate(reading: StorageReading) -> float:
    return reading.megabytes_per_second or 0.0


def table(
    rate: float,
    record_bytes: Sequence[float],
    models: Sequence[str],
    accelerators: Mapping[str, Accelerator],
) -> list[dict[str, Any]]:
    """Returns how many accelerators a rate feeds, for training.

    Args:
        rate: Bytes a second.

    Returns:
        A row for each model, size and accelerator with a figure for the model.
    """
    return [
        {
            "model": model,
            "record_bytes": size,
            "accelerator": name,
            "images_per_second": figure.images_per_second,
            "num_accelerators": rate / (figure.images_per_second * size),
            "basis": figure.basis,
            "source": figure.source,
        }
        for model in models
        for size in record_bytes
        for name, accelerator in accelerators.items()
        if (figure := accelerator.train.get(model))
    ]


def sentences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the rows of two accelerators as a sentence for each model and size."""
    fed: dict[tuple[str, float], list[str]] = {}
    for name in _IN_SENTENCE:
        for row in (row for row in rows if row["accelerator"] == name):
            words = f"{_amount(row['num_accelerators'])} {name.upper()}"
            fed.setdefault((row["model"], row["record_bytes"]), []).append(words)
    return [
        f"It feeds {' or '.join(words)} that train {model} with records of "
        + (f"{size / 1e6:.2f} MB." if size >= 1e6 else f"{size / 1e3:.0f} kB.")
        for (model, size), words in fed.items()
    ]


def _amount(value: float) -> str:
    """Returns a value with two significant digits below 10, and no decimals above."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 0.95 else f"{value:.2g}"
