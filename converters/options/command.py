"""Steps that the converting commands share: from the listed images to the exit code.

In: the images and classes that a command found, and its options. Out: a `Job`; and,
around a whole command, its summary, or a one-line error and the exit code.
"""

import contextlib
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import app

from converters.engines import processes
from converters.inputs import boxes, ilsvrc, listing, reading
from converters.inputs.classes import Class
from converters.jobs import at_url, duplicates, plan, run
from converters.jobs.job import Job, no_boxes
from converters.options import shared, start, summary
from converters.options.job import JobOptions
from tfpipe import errors, host
from tfpipe.location import urls
from tfpipe.shards import index


def make_job(
    options: JobOptions,
    *,
    command: str,
    name: str,
    input_dir: pathlib.Path,
    tree: ilsvrc.Tree,
    classes: Sequence[Class],
    own_options: Mapping[str, Any],
    label_reason: str,
    found_boxes: boxes.Boxes | None = None,
    is_apart: bool = False,
) -> Job:
    """Leaves duplicates out if the options say so, and plans the shards.

    Args:
        options: Options of the conversion.
        command: Module of the command.
        name: Name of the data set.
        input_dir: Folder that the files of the images are relative to.
        tree: The images of each split.
        classes: All classes in label order.
        own_options: Options of the command alone that decide the bytes; JSON values.
        label_reason: Why the labels begin where they do, for people.
        found_boxes: Bounding boxes, if there are any.
        is_apart: Whether it is known already that the output folder is in no folder of
            images.

    Raises:
        ValueError: If options contradict each other or the input.
        OSError: If an image cannot be read.
    """
    _require_boxes_stay_right(options, found_boxes)
    input_dir = _seen(input_dir, options)
    output_dir = _seen(options.local_dir, options)
    num_workers = options.num_workers or host.num_cores()
    splits: Mapping[str, Sequence[ilsvrc.Image]] = tree.splits
    dropped: Sequence[Mapping[str, str]] = ()
    if not is_apart:
        files = (image.file for images in splits.values() for image in images)
        require_apart(options, input_dir, files)
    drop = options.drop_duplicates
    if drop != "none":
        splits, dropped = duplicates.drop(input_dir, splits, drop, num_workers)
    naming = {"layout": options.layout, "dataset_name": name}
    left_out_boxes = found_boxes.left_out if found_boxes else ()
    recorded = {"seed": options.seed, "drop_duplicates": drop}
    plans = plan.make_plan(splits, options.num_shards, options.seed, **naming)
    num_bytes = sum(each.num_input_bytes for each in plans)
    num_images = sum(each.num_images for each in plans)
    policy = options.policy.for_input(num_images, num_bytes)
    return Job(
        command=command,
        name=name,
        input_dir=input_dir,
        states=tree.states,
        num_rows=tree.num_rows,
        output_dir=output_dir,
        plans=plans,
        classes=classes,
        policy=policy,
        options={**naming, **recorded, **own_options},
        boxes_of=found_boxes.of if found_boxes else no_boxes,
        ignored=tree.ignored,
        left_out=[_report(item) for item in (*tree.left_out, *left_out_boxes)],
        label_reason=label_reason,
        dropped=dropped,
        num_workers=options.num_workers
        or processes.default_workers(num_images, num_bytes, encodes=policy.shrinks),
        **options.of_job(),
    )


def _seen(folder: pathlib.Path, options: JobOptions) -> pathlib.Path:
    """Returns a folder by the path at which the processes that write shards see it."""
    # Processes of a cluster have other current folders.
    is_near = options.engine != shared.RAY or urls.is_url(folder)
    return folder if is_near else folder.absolute()


def _report(item: listing.LeftOut) -> dict[str, str]:
    """Returns the line of rejects.jsonl for a file or box that was left out."""
    return {
        "name": ilsvrc.catalog_name(item.name),
        "action": "ignored",
        "reason": item.reason,
        "detail": listing.DETAILS[item.reason],
    }


def _require_boxes_stay_right(
    options: JobOptions, found_boxes: boxes.Boxes | None
) -> None:
    turned = options.policy.exif_orientation != "keep"
    if turned and found_boxes and found_boxes.num_boxes:
        raise ValueError(
            "--exif_orientation=apply would leave the bounding boxes where they were. "
            "Keep the orientation, or take the boxes out of the input."
        )


def convert(
    command: str, options: JobOptions, make: Callable[[], Job]
) -> dict[str, Any]:
    """Makes the job, runs it, and returns the summary that the command prints.

    Raises:
        ValueError: If the input or the output folder is not as it must be.
        OSError: If a file cannot be read or written.
        RemoteError: If the URL of the output cannot be read or written.
    """
    start = time.perf_counter()
    spans: list[processes.Span] = []
    if files := shared.files_of("--output_dir", options.output_dir):
        files.names()  # fails before the input is listed, if it fails
    with shared.connected(options.engine, options.ray_address, options.num_workers):
        job = make()
        result: index.Index | None = run.run(job, on_span=spans.append)
    seconds = time.perf_counter() - start
    document = summary.summarize(command, options.to_json(), result, seconds, spans)
    if result is None:
        return document
    with _catalog_folder(job) as folder:
        classes = summary.class_counts(folder, result)
    return document | {
        "label_base": result.label_base,
        "label_reason": job.label_reason,
        "classes": classes,
        "full_decode": summary.full_decode(job, result.made_by["decisions"]),
    }


@contextlib.contextmanager
def _catalog_folder(job: Job) -> Iterator[pathlib.Path]:
    """Yields a folder with the catalog of a job that is done, if it can be had."""
    if job.files is None:
        yield job.output_dir
        return
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(errors.RemoteError):
            at_url.fetch(job.files, index.CATALOG_NAME, pathlib.Path(folder))
        yield pathlib.Path(folder)


def main(argv: Sequence[str], convert_flags: Callable[[], dict[str, Any]]) -> int:
    """Runs a command that takes no argument, and returns its exit code.

    An expected failure is one line on stderr and exit code 1.
    """
    if len(argv) > 1:
        raise app.UsageError(
            f"Unexpected argument: {urls.shown(argv[1])}. Flags start with --."
        )

    def work() -> int:
        done = convert_flags()
        for line in summary.orientation_warnings(done):
            print(line, file=sys.stderr)
        summary.print_summary(done)
        return 0

    return start.exit_code(work)


def require_apart(
    options: JobOptions, input_dir: pathlib.Path, files: Iterable[str]
) -> None:
    """Refuses an output folder that the next run would take for a class.

    Args:
        options: Options of the conversion.
        input_dir: Path or URL of the input.
        files: Files of the images, relative to it, or their URLs.

    Raises:
        ValueError: If the output folder is in a folder of images.
    """
    parts = {
        file.partition("/")[0]
        for file in files
        if urls.is_url(input_dir) or not reading.is_remote(input_dir, file)
    }
    if urls.is_url(input_dir):
        _require_urls_apart(input_dir, options.output_dir, sorted(parts))
        return
    output_dir = _seen(options.local_dir, options)
    real = pathlib.Path(os.path.realpath(output_dir))
    for name in sorted(parts):
        if real.is_relative_to(os.path.realpath(input_dir / name)):
            raise ValueError(
                f"--output_dir must not be in {input_dir / name}, whose images are "
                f"converted, got {output_dir}. Choose a folder beside the input."
            )


def _require_urls_apart(
    input_dir: pathlib.Path, output_dir: str, parts: Sequence[str]
) -> None:
    """Refuses an output by URL that the next run would take for a class."""
    if not urls.is_url(output_dir):
        return
    source, output = reading.shown(input_dir), output_dir.rstrip("/") + "/"
    for name in parts:
        if output.startswith(f"{source.rstrip('/')}/{name}/"):
            raise ValueError(
                f"--output_dir must not be in {source}/{name}, whose images are "
                f"converted, got {output_dir}. Choose a folder beside the input."
            )
