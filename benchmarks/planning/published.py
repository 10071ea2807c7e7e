"""Published figures: rates of accelerators, and tests of whole systems.

In: published.json, where every figure has its source, date, precision and kind of
measurement. Out: `ACCELERATORS` with the rates of an accelerator, `PUBLICATIONS` with
rows of whole systems and real images, and the row nearest to a measured row.

A name stands for a kind of measurement: `h100` is scaled training,
`h100_mlperf_storage` the sleep of MLPerf Storage, `h100_mlperf` a whole training of
MLPerf. A scaled figure is a published one times a ratio of two other published figures.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.models.accelerators import Accelerators, Figure
from benchmarks.results import tree
from benchmarks.results.other_results import PublishedRow

# Mean bytes of a record. ILSVRC-2012 train: 147,531,475,882 bytes of 1,281,167 images.
IMAGENET_RECORD_BYTES = 115_154
# The same images three times as wide and high, as JPEG of quality 100: 22.5 TB in 13
# copies, the larger data set of Dell's and NVIDIA's test of Inception-v4 on 72 V100.
LARGE_RECORD_BYTES = 1_351_000
_SAME_BYTES = 0.15  # most difference of the bytes of like records, as a share


def differences(
    row: PublishedRow,
    *,
    image_size: int | None,
    decodes: bool,
    record_bytes: float | None,
) -> str:
    """Returns why a run must not be compared with a row; "" for a comparable run."""
    reasons = []
    if row.image_size != image_size:
        reasons.append(_differ("images", image_size, row.image_size, "pixels"))
    if row.decodes is None:
        reasons.append("it does not say whether images were decoded")
    elif row.decodes != decodes:
        reasons.append(f"images were {'' if row.decodes else 'not '}decoded")
    theirs = row.record_bytes
    if theirs is None or record_bytes is None:
        reasons.append("the bytes of a record are not known of both")
    elif abs(record_bytes / theirs - 1) > _SAME_BYTES:
        ours = round(record_bytes / 1e3)
        reasons.append(_differ("records", ours, round(theirs / 1e3), "kB"))
    return "; ".join(reasons)


def _differ(what: str, ours: int | None, theirs: int | None, unit: str) -> str:
    return f"{what} of {theirs or 'unknown'} {unit} there, {ours or 'unknown'} here"


def find(
    *,
    model: str,
    mode: str,
    accelerator: str | None,
    num_accelerators: int,
    is_local: bool = False,
) -> PublishedRow | None:
    """Returns the published row to lay beside a measured row; None without a row.

    The row has the same model and mode. Among several rows, the number of accelerators
    is the nearest, as a ratio; among these rows, the data was in the same place.

    Args:
        accelerator: Name of the accelerator, such as "a100_mlperf_storage", whose kind
            the row must have; None if the name is unknown: every kind is taken.
    """
    kind = (accelerator or "").casefold().partition("_")[0]
    rows = [
        row
        for row in PUBLICATIONS
        if (row.model, row.mode) == (model, mode) and kind in ("", row.accelerator)
    ]
    return min(
        rows,
        key=lambda row: (
            abs(math.log((row.num_accelerators or 1) / num_accelerators)),
            row.is_local != is_local,
        ),
        default=None,
    )


def _accelerators(data: Mapping[str, Any]) -> Accelerators:
    figures: dict[str, dict[str, dict[str, Figure]]] = {}
    for row in data["figures"]:
        name, source = row["accelerator"], data["sources"][row["source"]]
        rates = figures.setdefault(name, {"train": {}, "infer": {}})[row["mode"]]
        for model, rate in row["rates"].items():
            rates[model] = Figure(
                accelerator=name, model=model, images_per_second=rate, **source
            )
    for row in data["scaled"]:
        name, on, mode = row["accelerator"], row["base"], row["mode"]
        rates = figures.setdefault(name, {"train": {}, "infer": {}})[mode]
        bases, ratio = figures[on][mode], data["ratios"][row["ratio"]]
        models = {m: m for m in bases} if row["models"] == "all" else row["models"]
        for model, of_base in models.items():
            base = f"{of_base} on {on}" if on == name else on
            figure, factor = bases[of_base], ratio["ratio"] / ratio["over"]
            rates[model] = dataclasses.replace(
                figure,
                accelerator=name,
                model=model,
                images_per_second=figure.images_per_second * factor,
                source=f"{ratio['source']}; {base}: {figure.source}",
                date=ratio["date"],
                ratio=factor,
                base=base,
            )
    for name in data["no_figure_found"]:
        figures[name] = {"train": {}, "infer": {}}
    return figures


DATA = json.loads(pathlib.Path(__file__).with_name("published.json").read_text())
ACCELERATORS = _accelerators(DATA)
# The accelerators with a figure, as flags list them.
NAMES = sorted(name for name, modes in ACCELERATORS.items() if modes["train"])
NO_FIGURE = f"No figure was found for {', '.join(DATA['no_figure_found'])}."


def _published_row(fields: Mapping[str, Any]) -> PublishedRow:
    rate = fields["images_per_second"] / fields["num_accelerators"]
    return tree.read(
        PublishedRow, {**fields, "images_per_second_per_accelerator": rate}
    )


# Where several rows fit equally well, the first row is taken.
PUBLICATIONS: Sequence[PublishedRow] = [
    _published_row(fields) for fields in DATA["publications"]
]
