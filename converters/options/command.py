"""What the converting command lines share: from a listed tree to a job, and the ending.

In: the images and classes that a command found, and the job's flags. Out: a `run.Job`;
and, around a whole command, its summary or its one-line error and exit code.
"""

import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import app

from converters.engines import processes
from converters.inputs import boxes, ilsvrc, listing
from converters.inputs.classes import Class
from converters.jobs import duplicates, output, plan, run
from converters.options import job, shared, summary
from tfpipe import errors
from tfpipe.shards import index


def make_job(
    config: job.JobConfig,
    *,
    command: str,
    name: str,
    input_dir: pathlib.Path,
    tree: ilsvrc.Tree,
    classes: Sequence[Class],
    options: Mapping[str, Any],
    found_boxes: boxes.Boxes | None = None,
) -> run.Job:
    """Leaves duplicates out if asked to, and plans the shards.

    Args:
        config: The job's flags.
        command: Which command line it comes from.
        name: Name of the data set.
        input_dir: Folder that the images' files are relative to.
        tree: The images of each split.
        classes: All classes in label order.
        options: What else decides the bytes; JSON values.
        found_boxes: Bounding boxes, if there are any.

    Raises:
        ValueError: If options do not fit together or the input.
        OSError: If an image cannot be read.
    """
    _require_boxes_stay_right(config, found_boxes)
    splits: Mapping[str, Sequence[ilsvrc.Image]] = tree.splits
    dropped: Sequence[Mapping[str, str]] = ()
    fields = config.job_fields()
    _require_apart(input_dir, fields["output_dir"], splits)
    if config.drop_duplicates != "none":
        splits, dropped = duplicates.drop(
            input_dir, splits, config.drop_duplicates, fields["num_workers"]
        )
    naming = {"layout": config.layout, "dataset_name": name}
    of_boxes = found_boxes.left_out if found_boxes else ()
    own = {"seed": config.seed, "drop_duplicates": config.drop_duplicates}
    return run.Job(
        command=command,
        name=name,
        input_dir=input_dir,
        plans=plan.make_plan(splits, config.num_shards, config.seed, **naming),
        classes=classes,
        options={**naming, **own, **options},
        boxes_of=found_boxes.of if found_boxes else lambda name: (),
        ignored=tree.ignored,
        left_out=[_report(item) for item in (*tree.left_out, *of_boxes)],
        dropped=dropped,
        **fields,
    )


def _report(item: listing.LeftOut) -> dict[str, str]:
    """A line of rejects.jsonl."""
    name, detail = ilsvrc.catalog_name(item.name), listing.DETAILS[item.reason]
    return {
        "name": name,
        "action": "ignored",
        "reason": item.reason,
        "detail": detail,
    }


def _require_boxes_stay_right(
    config: job.JobConfig, found_boxes: boxes.Boxes | None
) -> None:
    turned = config.policy.exif_orientation != "keep"
    if turned and found_boxes and found_boxes.num_boxes:
        raise ValueError(
            "--exif_orientation=apply would leave the bounding boxes where they were. "
            "Keep the orientation, or take the boxes out of the input."
        )


def convert(
    command: str, config: Mapping[str, Any], make: Callable[[], run.Job]
) -> dict[str, Any]:
    """Makes the job, runs it, and returns the summary that the command prints."""
    start = time.perf_counter()
    spans: list[processes.Span] = []
    result: index.Index | None = run.run(make(), on_span=spans.append)
    seconds = time.perf_counter() - start
    return summary.summarize(command, config, result, seconds, spans)


def main(argv: Sequence[str], convert_flags: Callable[[], dict[str, Any]]) -> int:
    """RecordRanges a command; an expected failure is one line on stderr and exit code 1."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected argument: {argv[1]}. Flags start with --.")
    try:
        with processes.terminate_as_interrupt():
            summary.print_summary(convert_flags())
    except (ValueError, FileExistsError, errors.TfpipeError) as error:
        message = str(error)  # the same command would fail again
    except OSError as error:
        message = f"{error}{_how_to_go_on('Mend the cause, then run')}"
    except MemoryError:
        message = f"out of memory.{_how_to_go_on('Try fewer --num_workers, or run')}"
    except KeyboardInterrupt:
        message = f"interrupted.{_how_to_go_on('Run')}"
    else:
        return 0
    print(f"Error: {message}", file=sys.stderr)
    return 1


def _how_to_go_on(what_to_do: str) -> str:
    """What to do about a job that has been begun."""
    # These raise nothing, also where nothing can be looked at.
    output_dir = os.path.expanduser(shared.OUTPUT_DIR.value)
    if not os.path.exists(os.path.join(output_dir, output.WORK_DIR_NAME)):
        return ""
    return f" Complete shards are kept. {what_to_do} the same command again to go on."


def _require_apart(
    input_dir: pathlib.Path,
    output_dir: pathlib.Path,
    splits: Mapping[str, Sequence[ilsvrc.Image]],
) -> None:
    """Refuses an output folder that the next run would take for a class."""
    real = pathlib.Path(os.path.realpath(output_dir))
    files = (image.file for images in splits.values() for image in images)
    for name in sorted({file.partition("/")[0] for file in files}):
        if real.is_relative_to(os.path.realpath(input_dir / name)):
            raise ValueError(
                f"--output_dir must not be in {input_dir / name}, whose images are "
                f"converted, got {output_dir}. Choose a folder beside the input."
            )
