"""Copies a data set, so that no cache and no deduplication can hide a storage.

  python -m converters.replicate DIR OUT --copies=150
  python -m converters.replicate DIR OUT --target_bytes=22TB
  python -m converters.replicate DIR OUT --for_ram=512GB --num_hosts=9

DIR is a data set of a converter, in a folder or at a URL. OUT becomes one with as many
times the shards. By default the copies are distinct: each image decodes to the same
pixels in every copy, but its bytes differ, because its JPEG gets other Huffman codes.
Nothing is decoded, and nothing is lost. Labels, boxes and all other features stay.

  --mirror             half of the images of a copy are mirrored, without loss
  --reencode           decode and encode each image with other tables, for images
                       whose bits cannot be changed otherwise
  --enlarge=3          scale each image up by this factor and encode it: large images
                       from small ones; --quality=100 gives 1.3 MB an image
  --identical          copies with the same bytes, by reflink or hard link where the
                       file system has them: quick, but a cache serves all from one
  --entry_points       also write entry_points-<split>, so that tfpipe decodes less of
                       each image; --identical copies those of DIR without this flag

--for_ram makes enough copies that the split that is trained on has 5 times the memory
of all hosts, as MLPerf Storage wants it, and more than --storage_cache. The arithmetic,
bytes, seconds and room are shown on stderr before the work. --dry_run shows them and
ends. Run the same command again to go on after an interruption. The same DIR, flags and
seed give the same bytes, whatever the number of workers and tasks.

The last line on stdout is one JSON object. Exit code: 0 done, 1 an error, 2 a dry run
found too little room.
"""

import pathlib
import sys
import tempfile
import time
from typing import Any, NamedTuple

from converters.conversion import answers, summary
from converters.engines import processes
from converters.exports import copies, estimate, identical, sizing, tables
from converters.exports.source import Source
from converters.images.policy import Policy, policy_of
from converters.jobs import run
from converters.jobs.job import Job
from converters.options import shared
from converters.options.replicate import GROUPS, ReplicateOptions
from tfpipe import cli, host
from tfpipe.location.location import Location

_COMMAND = "converters.replicate"


class ReplicaJob(NamedTuple):
    """The source of a replication, its size and its cost."""

    source: Source
    sizing: sizing.Sizing
    estimate: estimate.Estimate
    growth: float
    num_workers: int


def make_copies(config: ReplicateOptions) -> dict[str, Any]:
    """Copies a data set, and returns the summary that the command prints as JSON.

    Raises:
        ValueError: If the data set or the output folder is not as it must be.
        OSError: If a file cannot be read or written.
        TfpipeError: If the data set is damaged or cannot be read.
    """
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        plan = make_plan(config, pathlib.Path(folder))
        facts = estimate.facts(plan.source, plan.sizing, plan.estimate)
        for line in estimate.lines(plan.source, plan.sizing, plan.estimate):
            print(line, file=sys.stderr, flush=True)
        if config.dry_run:
            config_json = {"command": _COMMAND, "config": config.to_json()}
            return config_json | {"schema_version": 1, "dry_run": True} | facts
        spans: list[processes.Span] = []
        with config.connected():
            job = make_job(config, plan)
            result = run.run(job, on_span=spans.append)
    seconds = time.perf_counter() - begin
    done = summary.summarize(_COMMAND, config.to_json(), result, seconds, spans)
    return facts | done | {"dry_run": False}


def make_plan(config: ReplicateOptions, folder: pathlib.Path) -> ReplicaJob:
    """Looks at the data set and this machine, and plans the copies.

    Args:
        config: The options.
        folder: Empty folder for the index and catalog of a data set at a URL; it must
            exist as long as the plan is used.

    Raises:
        ValueError: If the data set or the output folder is not as it must be.
        OSError: If a file cannot be read.
        TfpipeError: If the data set cannot be read.
    """
    source = _source(config, folder)
    output = config.output.path if config.output.is_local else None
    change, how = config.change, "copy"
    found = estimate.NOTHING
    if change is not None:
        found = estimate.sample(source, change)
    elif output is not None:
        near = estimate.nearest_folder(output)
        how = identical.way(source, near, config.identical_by)
    # Other bits take about the same room, so that a sample would add nothing but noise.
    growth = found.growth if change is not None and change.quality else 1.0
    split = source.read_split
    sized = sizing.size(
        config.wanted,
        all_bytes=growth * source.num_bytes(),
        read_bytes=growth * source.num_bytes(split),
        split=split,
    )
    num_workers = config.num_workers or host.num_cores()
    cost = estimate.estimate(
        source,
        found,
        copies=sized.copies,
        num_workers=num_workers,
        output_dir=output,
        how=how,
    )
    room = cost.room_bytes / max(cost.num_bytes, 1)
    return ReplicaJob(source, sized, cost, found.growth * room, num_workers)


def _source(config: ReplicateOptions, folder: pathlib.Path) -> Source:
    """Opens the data set, and refuses an output inside the data set."""
    output = ("--output_dir", config.output_dir)
    return shared.open_data_set(config.data_dir, folder, config.splits, output=output)


def make_job(config: ReplicateOptions, plan: ReplicaJob) -> Job:
    """Returns the job that makes the copies.

    Raises:
        ValueError: If TFDS could not read the shards' names, or a number is wrong.
    """
    source, change = plan.source, config.change
    layout = source.known.made_by.get("options", {}).get("layout", "inception")
    points, entered = tables.Tables(), tuple(source.known.splits)
    if change is None:
        points = tables.find_tables(source)
        entered = tuple(points.paths)
        options: dict[str, Any] = {"kind": "identical", **points.options()}
    else:
        entered = entered if change.entry_points else ()
        kind = "enlarged" if change.kind == "enlarged" else "distinct"
        options = {"kind": kind, "seed": config.seed, "change": change.to_json()}
    writer = copies.CopyWriter(
        source=source,
        leave_out="" if change is None else ", or leave it out with --damaged=skip",
        change=change,
        seed=config.seed,
        damaged=config.damaged,
        share=config.identical_by if change is None else None,
        tables=points,
    )
    return Job(
        command=_COMMAND,
        name=source.known.name,
        input_dir=Location(str(source.folder)),
        # Processes of a cluster have other current folders.
        output_dir=config.local_dir.absolute(),
        plans=copies.make_plans(
            source, plan.sizing.copies, layout=layout, growth=plan.growth
        ),
        classes=source.classes,
        policy=_policy(source),
        options={"copies": plan.sizing.copies, "layout": layout, **options},
        made_by=source.origin(),
        writer=writer,
        entered=entered,
        more_columns=copies.more_columns(source),
        num_workers=plan.num_workers,
        **config.of_job(),
    )


def _policy(source: Source) -> Policy:
    """Returns the policy with which the images came into the source."""
    fields = source.known.made_by.get("options", {}).get("policy")
    # Readers ask the policy how other images are prepared in the same way.
    return Policy() if fields is None else policy_of(fields)


def work(options: ReplicateOptions) -> int:
    """Copies, prints the summary, and returns the exit code."""
    done = make_copies(options)
    is_complete = done.get("finished", False)
    answers.replicate(done, estimate.details(done) if is_complete else ())
    return 2 if done["dry_run"] and not done["estimate"]["fits"] else 0


COMMANDS = (
    shared.command(
        ReplicateOptions, work, arguments=("data_dir", "output_dir"), groups=GROUPS
    ),
)

if __name__ == "__main__":
    cli.run(*COMMANDS)
