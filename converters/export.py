"""Exports a data set to other formats: images byte for byte, labels and boxes.

  python -m converters.export DIR OUT --format=tree
  python -m converters.export DIR OUT --format=webdataset
  python -m converters.export DIR OUT --format=parquet
  python -m converters.export DIR OUT --format=arrayrecord

DIR is a data set of a converter, in a folder or at a URL. OUT is a new folder.

  tree         a folder for each class, with image files, as converters.folder and
               converters.imagenet read them; boxes as XML in bbox/; the labels of the
               classes. The command that converts the tree again is printed: where it
               says so, it writes shards with the same bytes.
  webdataset   <split>-NNNNNN.tar, a file a shard; the members of a sample are .jpg,
               .cls (number of the class from 0) and .json (all else)
  parquet      <split>-NNNNN-of-NNNNN.parquet with the columns image {bytes, path},
               label (from 0), class, height, width, boxes, box_labels, as Hugging Face
               `datasets` reads them
  arrayrecord  the records as they are, as Grain and TFDS read them; needs
               pip install 'tfpipe[arrayrecord]'

The bytes of an image are compared with its digest in the catalog before they are
written. OUT gets classes.tsv and, last and only on success, export.json with the size
and digest of each file. A command that was cut off goes on when it is run again. The
same DIR and flags give the same bytes, whatever the number of workers.

The last line on stdout is one JSON object. Exit code: 0 done, 1 an error.
"""

import dataclasses
import pathlib
import tempfile
import time
from typing import Any

from converters.conversion import answers
from converters.engines import processes
from converters.exports import again, array_record, run
from converters.exports.plan import ExportPlan, Format, Paths, make_plan
from converters.exports.source import Source
from converters.options import shared
from tfpipe import cli
from tfpipe.shards import index

_COMMAND = "converters.export"
_WHAT = "What is exported"
_what = cli.group(_WHAT)


@cli.options
class ExportOptions(cli.StoreOptions):
    """Options of one export.

    Raises:
        ValueError: If values do not fit together.
    """

    data_dir: str = shared.data_dir()
    output_dir: str = shared.output_dir()
    format: Format = cli.required("Format of the export; see above.")
    subset: str | None = _what(
        None,
        "File that converters.query --save wrote, whose records alone are exported.",
        shown="FILE",
    )
    splits: tuple[str, ...] = shared.splits(group=_WHAT)
    paths: Paths = _what(
        "auto",
        "Names of the files of a tree. source: those that the images were converted "
        "from. split: <split>/<class>/<file>. auto: source if the same splits and "
        "classes can be read from these names, else split.",
        needs="--format=tree",
    )
    dry_run: bool = shared.dry_run(group=shared.RUNNING)
    num_workers: int | None = shared.num_workers()
    fsync: bool = shared.fsync()

    def __post_init__(self) -> None:
        if self.format == "arrayrecord":
            array_record.require()

    def to_json(self) -> dict[str, Any]:
        """Returns the options as JSON values."""
        return dataclasses.asdict(self) | {"splits": list(self.splits)}


def export(config: ExportOptions) -> dict[str, Any]:
    """Exports a data set, and returns the summary that the command prints as JSON.

    Raises:
        ValueError: If the data set or the output folder is not as it must be.
        OSError: If a file cannot be read or written.
        TfpipeError: If the data set or the subset is damaged or cannot be read.
    """
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        output = ("--output_dir", config.output_dir)
        source = shared.open_data_set(
            config.data_dir, folder, config.splits, output=output
        )
        plan, chosen = _plan(config, source, folder)
        same = not config.splits and again.is_identical(plan)
        done = _run(config, plan, chosen, same_shards=same)
        limits = again.limits(plan, done["num_boxes"])
    splits = dict.fromkeys((part.split for part in plan.parts), 0)
    for part in plan.parts:
        splits[part.split] += part.num_records
    return {
        "command": _COMMAND,
        "schema_version": 1,
        "config": config.to_json(),
        "dry_run": config.dry_run,
        "seconds": round(time.perf_counter() - begin, 3),
        "splits": splits,
        "num_records": plan.num_records,
        "num_shards": len(plan.parts),
        "num_bytes": done["num_bytes"],
        "num_boxes": done["num_boxes"],
        "columns": list(plan.columns),
        "decisions": {"exported": plan.num_records},
        **again.command_line(plan, _output_dir(config)),
        "same_shards": same,
        "limits": limits,
    }


def _output_dir(config: ExportOptions) -> pathlib.Path:
    return shared.path_of("--output_dir", config.output_dir)


def _run(
    config: ExportOptions, plan: ExportPlan, chosen: str | None, *, same_shards: bool
) -> dict[str, Any]:
    """Writes the export, and returns the content of export.json, or a part of it."""
    if config.dry_run:
        return {"num_bytes": plan.num_bytes, "num_boxes": 0}
    way_back = again.command_line(plan, pathlib.Path())
    return run.run(
        run.Export(
            plan=plan,
            output_dir=_output_dir(config),
            description=run.describe(plan, chosen),
            more={**way_back, "same_shards": same_shards},
            num_workers=config.num_workers
            or processes.default_workers(plan.num_records, plan.num_bytes),
            fsync=config.fsync,
        )
    )


def _plan(
    config: ExportOptions, source: Source, folder: pathlib.Path
) -> tuple[ExportPlan, str | None]:
    """Returns the plan, and the digest of the subset if there is one."""
    chosen = None
    if config.subset is not None:
        import numpy as np

        from tfpipe.shards import subset

        chosen = subset.read(shared.path_of("--subset", config.subset))
        known = index.load(source.folder)  # with all splits
        for split in chosen.splits:
            sizes = [shard.num_records for shard in known.splits.get(split, ())]
            chosen.of_split(known, split).numbers(np.array(sizes, np.int64))
    plan = make_plan(
        source, kind=config.format, paths=config.paths, subset=chosen, folder=folder
    )
    if not plan.parts:
        raise ValueError(
            f"--splits={','.join(config.splits)} must have records of the subset, got "
            "none. Choose other splits."
        )
    return plan, chosen.digest if chosen else None


def work(options: ExportOptions) -> None:
    """Exports, and prints the summary."""
    answers.export(export(options))


COMMANDS = (
    shared.command(
        ExportOptions,
        work,
        arguments=("data_dir", "output_dir"),
        groups=(_WHAT, shared.RUNNING),
    ),
)

if __name__ == "__main__":
    cli.run(*COMMANDS)
