"""Published figures: rates of accelerators, and tests of whole systems.

In: published.json, where every figure has its source, date, precision and kind of
measurement; and files of users in JSON or TOML. Out: `ACCELERATORS` with the rates of
an accelerator, also with those of a file; `PUBLICATIONS` with rows of whole systems and
real images, and the row nearest to a measured row.

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

from benchmarks.models import accelerators, catalog
from benchmarks.models.accelerators import Accelerators, Figure
from benchmarks.results import tree
from benchmarks.results.other_results import PublishedRow
from benchmarks.results.train_result import TrainResult
from tfpipe import errors

# Mean bytes of a record. ILSVRC-2012 train: 147,531,475,882 bytes of 1,281,167 images.
IMAGENET_RECORD_BYTES = 115_154
# The same images three times as wide and high, as JPEG of quality 100: 22.5 TB in 13
# copies, the larger data set of Dell's and NVIDIA's test of Inception-v4 on 72 V100.
LARGE_RECORD_BYTES = 1_351_000
_SAME_BYTES = 0.15  # most difference of the bytes of like records, as a share


def differences(row: PublishedRow, run: TrainResult) -> str:
    """Returns why a run must not be compared with a row; "" for a comparable run."""
    config, rate = run.config, run.examples_per_second
    image_size = config.image_size or catalog.MODELS[row.model].image_size
    decodes = not config.read_only and not config.synthetic
    megabytes = run.consumed_megabytes_per_second
    record_bytes = megabytes and rate and megabytes * 1e6 / rate
    reasons = []
    if row.image_size != image_size:
        theirs = row.image_size or "unknown"
        reasons.append(f"images of {theirs} pixels there, {image_size} here")
    if row.decodes is None:
        reasons.append("it does not say whether images were decoded")
    elif row.decodes != decodes:
        reasons.append(f"images were {'' if row.decodes else 'not '}decoded")
    if row.record_bytes is None or not record_bytes:
        reasons.append("the bytes of a record are not known of both")
    elif abs(record_bytes / row.record_bytes - 1) > _SAME_BYTES:
        sizes = f"{row.record_bytes / 1e3:.0f} kB there, {record_bytes / 1e3:.0f} here"
        reasons.append(f"records of {sizes}")
    return "; ".join(reasons)


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
    is the nearest, as a ratio; among these rows, the data was in the same place. The
    row has the kind of the accelerator, such as "a100_mlperf_storage"; None is every
    kind.
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


# Where several rows fit equally well, the first row is taken.
PUBLICATIONS: Sequence[PublishedRow] = [
    dataclasses.replace(
        row,
        images_per_second_per_accelerator=(row.images_per_second or 0.0)
        / (row.num_accelerators or 1),
    )
    for row in (tree.read(PublishedRow, fields) for fields in DATA["publications"])
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OwnAccelerator:
    source: str
    train: Mapping[str, float] = dataclasses.field(default_factory=dict)
    infer: Mapping[str, float] = dataclasses.field(default_factory=dict)


def accelerators_with(path: str | None) -> Accelerators:
    """Returns the published accelerators, and those of --accelerators_file, by name.

    The file holds {name: {"source": text, "train": {model: images a second}, "infer":
    likewise}}.
    """
    if not path:
        return ACCELERATORS
    settings = read_settings("accelerators_file", path)
    if not settings:
        raise ValueError(f"--accelerators_file={path} must hold an accelerator.")
    return {**ACCELERATORS} | {
        name: _own_figures(name, value, f"--accelerators_file={path}: {name}")
        for name, value in settings.items()
    }


def _own_figures(
    name: str, value: Any, where: str
) -> Mapping[str, Mapping[str, Figure]]:
    if accelerators.name_of(name, ACCELERATORS) in ACCELERATORS:
        raise ValueError(f"{where} is a built-in accelerator; choose another name.")
    keys = [field.name for field in dataclasses.fields(_OwnAccelerator)]
    if not isinstance(value, Mapping) or not {*value} <= {*keys}:
        raise ValueError(f"{where} must be a table of {', '.join(keys)}, got {value}.")
    try:
        own = tree.read(_OwnAccelerator, value)
        for model in (*own.train, *own.infer):
            errors.require_choice("", "a model", model, sorted(catalog.MODELS))
        if not own.train and not own.infer:
            raise ValueError("figures must be in train or infer, got none.")
        about: Any = {"accelerator": name, "source": own.source}
        return {
            mode: {
                m: Figure(model=m, images_per_second=r, **about)
                for m, r in rates.items()
            }
            for mode, rates in (("train", own.train), ("infer", own.infer))
        }
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def read_settings(flag: str, path: str) -> dict[str, Any]:
    """Reads the settings that a file of a flag holds: JSON, or TOML by its name."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        parse = _parse_toml if path.endswith(".toml") else errors.from_json
        settings = parse(text)
    except OSError as error:
        raise ValueError(f"--{flag}={path} cannot be read: {error.strerror}.") from None
    except ValueError as error:  # the base class of both parsers' errors
        raise ValueError(f"--{flag}={path} cannot be read: {error}.") from error
    if not isinstance(settings, dict):
        raise ValueError(f"--{flag}={path} must hold an object, got {text[:40]!r}.")
    return settings


def _parse_toml(text: str) -> dict[str, Any]:
    import tomllib  # a small command reads no TOML

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("brackets must be nested less deeply") from None
