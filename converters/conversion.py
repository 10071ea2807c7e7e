"""What the converting command lines share: from a listed tree to a job, and the ending.

In: the images and classes that a command found, and the job's flags. Out: a `run.Job`;
and, around a whole command, its summary or its one-line error and exit code.
"""

import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import app

from converters import (
    boxes,
    duplicates,
    flags,
    inputs,
    job_flags,
    output,
    plan,
    run,
    summary,
    workers,
)
from converters.classes import Class
from tfpipe import errors, index


def make_job(
    config: job_flags.JobConfig,
    *,
    command: str,
    name: str,
    input_dir: pathlib.Path,
    tree: inputs.Tree,
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
    splits: Mapping[str, Sequence[inputs.Image]] = tree.splits
    dropped: Sequence[Mapping[str, str]] = ()
    fields = config.job_fields()
    if config.drop_duplicates != "none":
        splits, dropped = duplicates.drop(
            input_dir, splits, config.drop_duplicates, fields["num_workers"]
        )
    naming = {"layout": config.layout, "dataset_name": name}
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
        dropped=dropped,
        **fields,
    )


def _require_boxes_stay_right(
    config: job_flags.JobConfig, found_boxes: boxes.Boxes | None
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
    spans: list[workers.Span] = []
    result: index.Index | None = run.run(make(), on_span=spans.append)
    seconds = time.perf_counter() - start
    return summary.summarize(command, config, result, seconds, spans)


def main(argv: Sequence[str], convert_flags: Callable[[], dict[str, Any]]) -> int:
    """Runs a command; an expected failure is one line on stderr and exit code 1."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected argument: {argv[1]}. Flags start with --.")
    try:
        with workers.terminate_as_interrupt():
            summary.print_summary(convert_flags())
    except (ValueError, FileExistsError, errors.TfpipeError) as error:
        # The same command would fail again.
        message = str(error)
    except OSError as error:
        message = f"{error}{_how_to_go_on()}"
    except KeyboardInterrupt:
        message = f"interrupted.{_how_to_go_on()}"
    else:
        return 0
    print(f"Error: {message}", file=sys.stderr)
    return 1


def _how_to_go_on() -> str:
    """What to do about a job that has been begun."""
    output_dir = pathlib.Path(flags.OUTPUT_DIR.value)
    if not (output_dir.expanduser() / output.WORK_DIR_NAME).exists():
        return ""
    return " Complete shards are kept. Run the same command again to go on."
