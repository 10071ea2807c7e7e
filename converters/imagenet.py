"""Converts an ImageNet-style tree into TFRecord shards with an index and a catalog.

  python -m converters.imagenet --input_dir=RAW --output_dir=DIR

RAW holds train/<synset>/*.JPEG and, if there is a validation split, val/*.JPEG with
RAW/synset_labels.txt (line i is the synset of the i-th file by name), or
val/<synset>/*.JPEG. Labels are those of ILSVRC-2012 (1 to 1000 in the order of the
synsets), also for a part of its classes; a RAW/synsets.txt (one synset a line, in label
order) and RAW/synset_words.txt (synset, tab, name) take their place if they are there.

DIR gets train-SSSSS-of-NNNNN and validation-SSSSS-of-NNNNN (tf.train.Example records
with the keys of the Inception scripts), catalog.parquet (one row a record), labels.txt
and, last and only on success, index.json. JPEG files are stored byte for byte; CMYK and
files of another format are stored as RGB JPEG and counted. The same input, options and
seed give the same bytes, whatever the number of workers.

The last line on stdout is one JSON object. Exit code: 0 done, 1 an error.
"""

import dataclasses
import json
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

from absl import app, flags

import tfpipe
from converters import classes, inputs, plan, run, workers
from converters import flags as converter_flags
from tfpipe import errors, index

flags.adopt_module_key_flags(converter_flags)

_INPUT_DIR = flags.DEFINE_string(
    "input_dir", None, "Folder that holds train/ and val/.", required=True
)
_NUM_TRAIN_SHARDS = flags.DEFINE_integer(
    "num_train_shards",
    None,
    "Shards of the train split. Default: one for each 48 MB of images, at most 1024, "
    "which is what ImageNet gets.",
    lower_bound=1,
)
_NUM_VALIDATION_SHARDS = flags.DEFINE_integer(
    "num_validation_shards",
    None,
    "Shards of the validation split. Default: one for each 48 MB of images, at most "
    "128, which is what ImageNet gets.",
    lower_bound=1,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """One conversion as its flags say; see the flags' help."""

    input_dir: str
    output_dir: str
    num_train_shards: int | None = None
    num_validation_shards: int | None = None
    num_workers: int | None = None
    seed: int = 0
    overwrite: bool = False


def config_from_flags() -> Config:
    """The only reader of the flags' values."""
    return Config(
        input_dir=_INPUT_DIR.value,
        output_dir=converter_flags.OUTPUT_DIR.value,
        num_train_shards=_NUM_TRAIN_SHARDS.value,
        num_validation_shards=_NUM_VALIDATION_SHARDS.value,
        num_workers=converter_flags.NUM_WORKERS.value,
        seed=converter_flags.SEED.value,
        overwrite=converter_flags.OVERWRITE.value,
    )


def convert(config: Config) -> dict[str, Any]:
    """Converts and returns the summary that the command prints as JSON.

    Raises:
        ValueError: If the input or the output folder is not as it must be.
        OSError: If a file cannot be read or written.
    """
    start = time.perf_counter()
    input_dir, output_dir = (
        pathlib.Path(path).expanduser()
        for path in (config.input_dir, config.output_dir)
    )
    run.require_free(output_dir, overwrite=config.overwrite)
    class_list = classes.read_classes(input_dir)
    tree = inputs.read_tree(input_dir, class_list)
    num_shards = {
        "train": config.num_train_shards,
        "validation": config.num_validation_shards,
    }
    plans = plan.make_plan(tree.splits, num_shards, config.seed)
    made_by = {
        "command": "converters.imagenet",
        "version": tfpipe.__version__,
        "seed": config.seed,
        "num_ignored_files": tree.num_ignored,
    }
    job = run.Job(
        input_dir=input_dir,
        output_dir=output_dir,
        name="imagenet",
        plans=plans,
        classes=class_list,
        made_by=made_by,
        num_workers=config.num_workers or workers.num_available(),
        overwrite=config.overwrite,
    )
    result = run.run(job)
    return summarize(config, result, time.perf_counter() - start)


def summarize(config: Config, result: index.Index, seconds: float) -> dict[str, Any]:
    """The JSON document of a conversion."""
    entries = [shard for split in result.splits.values() for shard in split]
    decisions = dict(result.made_by["decisions"])
    if result.made_by["num_ignored_files"]:
        decisions["ignored_other_name"] = result.made_by["num_ignored_files"]
    return {
        "command": "converters.imagenet",
        "schema_version": 1,
        "config": dataclasses.asdict(config),
        "splits": {split: result.num_records(split) for split in result.splits},
        "num_records": sum(shard.num_records for shard in entries),
        "num_shards": len(entries),
        "num_bytes": sum(shard.num_bytes for shard in entries),
        "decisions": decisions,
        "seconds": round(seconds, 3),
    }


def print_summary(summary: dict[str, Any]) -> None:
    """A few lines for people, then the JSON line for scripts."""
    rate = summary["num_records"] / summary["seconds"]
    print(f"{summary['config']['output_dir']}: {summary['num_bytes'] / 1e6:,.1f} MB in")
    for split, num_records in summary["splits"].items():
        print(f"  {split:<12} {num_records:>9,} records")
    for decision, count in summary["decisions"].items():
        print(f"  {decision:<22} {count:>9,} images")
    print(f"{summary['seconds']:.1f} s, {rate:,.0f} images/s")
    print(json.dumps(summary, separators=(",", ":")))


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected argument: {argv[1]}. Flags start with --.")
    try:
        print_summary(convert(config_from_flags()))
    except (ValueError, OSError, errors.TfpipeError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Error: interrupted; nothing was kept.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    app.run(main)
