"""Accelerators that a storage feeds: its rate over what one of them reads.

In: MB/s, and the size of a record. Out: the number of accelerators for each model, and
a sentence. An accelerator reads its published images/s times the bytes of a record.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.models.accelerators import Accelerator

_IN_SENTENCE = ("h100", "v100")


def best(measured: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Returns the fastest reading of whole shards that the page cache did not serve.

    Where memory is the storage it is the fastest one of all; None if there is none.

    Args:
        measured: Figures that `probe.run` yielded.
    """
    shards = [m for m in measured if m["what"] == "shards" and "skipped" not in m]
    apart = [m for m in shards if m["state"] != "warm"]
    return max(apart or shards, key=lambda m: m["megabytes_per_second"], default=None)


def table(
    rate: float,
    record_bytes: Sequence[float],
    models: Sequence[str],
    known: Mapping[str, Accelerator],
) -> list[dict[str, Any]]:
    """Returns how many accelerators a rate feeds, for training.

    Args:
        rate: Bytes a second.
        record_bytes: Mean bytes of a record, one or several.
        models: Names of models.
        known: Accelerators by name.

    Returns:
        A row for each model, size and accelerator that has a figure for the model.
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
        for name, accelerator in known.items()
        if (figure := accelerator.train.get(model))
    ]


def sentences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the rows of two accelerators as a sentence for each model and size.

    Args:
        rows: What `table` returned.
    """
    found: dict[tuple[str, float], list[str]] = {}
    for name in _IN_SENTENCE:
        for row in (row for row in rows if row["accelerator"] == name):
            words = f"{_amount(row['num_accelerators'])} {name.upper()}"
            found.setdefault((row["model"], row["record_bytes"]), []).append(words)
    return [
        f"It feeds {' or '.join(words)} that train {model} with records of "
        + (f"{size / 1e6:.2f} MB." if size >= 1e6 else f"{size / 1e3:.0f} kB.")
        for (model, size), words in found.items()
    ]


def _amount(number: float) -> str:
    """Returns a number with two digits that matter below 10, and none after it."""
    if number >= 10:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 0.95 else f"{number:.2g}"
