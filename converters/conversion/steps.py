"""Steps of all converting commands: from a reader to the summary.

In: the reader of an input, and the options of a command. Out: a `Job`, a data set, and
the printed summary.
"""

import contextlib
import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from converters.conversion import summary
from converters.engines import processes
from converters.inputs import exported, labels, listing, meaning
from converters.inputs.image import Image, catalog_name
from converters.inputs.labels import Labelled
from converters.inputs.reader import Reader, Workspace
from converters.inputs.tables import columns, spool
from converters.jobs import (
    at_url,
    changed,
    division,
    duplicates,
    expected,
    more_columns,
    plan,
    run,
    work_dir,
)
from converters.jobs.job import Job, no_boxes
from converters.options import shared
from converters.options.job import ConvertOptions
from tfpipe import errors, host
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.shards import index
from tfpipe.shards.catalog import LABELS
from tfpipe.shards.split_names import TRAIN

if TYPE_CHECKING:
    from converters.inputs.boxes import Boxes


def run_command(command: str, options: ConvertOptions, reader: Reader) -> None:
    """Converts, and prints warnings and the summary.

    Args:
        command: Module of the command.
        options: Options of the conversion.
        reader: Reader of the input.

    Raises:
        As `convert` does.
    """
    done = convert(command, options, reader)
    summary.print_summary(done)


def convert(command: str, options: ConvertOptions, reader: Reader) -> dict[str, Any]:
    """Converts, and returns the summary for the command to print.

    Args:
        command: Module of the command.
        options: Options of the conversion.
        reader: Reader of the input.

    Raises:
        ValueError: If the input or the output folder cannot be used.
        BadIndexError: If the input is a damaged data set.
        OSError: If a file cannot be read or written.
        RemoteError: If a URL cannot be read or written.
    """
    start = time.perf_counter()
    spans: list[processes.Span] = []
    if not options.output.is_local:
        Files(options.output).names()  # an error comes before the input is listed
    with _cleaned(options), options.connected():
        job = make_job(command, options, reader)
        result: index.Index | None = run.run(job, on_span=spans.append)
        seconds = time.perf_counter() - start
        config = options.to_json() | reader.to_json()
        document = summary.summarize(command, config, result, seconds, spans)
        if result is None:
            return document
        document["label_base"] = result.label_base
        document["label_reason"] = job.label_reason
        with _catalog_folder(job) as folder:
            document["classes"] = summary.class_counts(folder, result)
        decisions = result.made_by["decisions"]
        document["full_decode"] = summary.full_decode(job, decisions)
    if options.near_duplicates is None:
        return document
    # The comparison needs NumPy and Pillow.
    from converters.catalog import near_duplicates

    return document | near_duplicates.write(
        options.output.path,
        distance=options.near_duplicates,
        num_workers=options.num_workers or host.num_cores(),
    )


@contextlib.contextmanager
def _catalog_folder(job: Job) -> Iterator[pathlib.Path]:
    """Yields a folder with the catalog of a finished job, if there is a catalog."""
    if job.files is None:
        yield job.output_dir
        return
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(errors.RemoteError):
            at_url.fetch(job.files, index.CATALOG_NAME, pathlib.Path(folder))
        yield pathlib.Path(folder)


def make_job(command: str, options: ConvertOptions, reader: Reader) -> Job:
    """Lists the images, gives them labels and splits, and plans the shards.

    Args:
        command: Module of the command.
        options: Options of the conversion.
        reader: Reader of the input.

    Raises:
        ValueError: If options contradict other options or the input.
        BadIndexError: If the input is a damaged data set.
        OSError: If an image cannot be read.
        RemoteError: If a URL cannot be read.
    """
    num_workers = options.num_workers or host.num_cores()
    _require_free(command, options, reader)
    with contextlib.ExitStack() as stack:
        workspace = Workspace(
            folder=options.local_dir / work_dir.WORK_DIR_NAME,
            stack=stack,
            num_workers=num_workers,
        )
        listed = reader.list_images(options.meaning, workspace)
        _require_apart(options, listed.folders_of_images())
        labelled = labels.give_labels(listed, options.meaning)
        whole = exported.with_columns(labelled.listed, workspace)
        labelled = labelled._replace(listed=whole)
        expected.check_expected(options.expect, labelled)
        splits = labelled.listed.splits
        lines = meaning.disagreements(splits, options.label_type)
        meaning.warn([*listed.warnings, *lines], strict=options.strict)
        job = _planned(command, options, reader, labelled)
        more = _more_columns(labelled, workspace)
        own = more is not None and {*more.in_records} - {LABELS}
        recorded = {columns.IN_RECORDS_OPTION: True} if own else {}
        options_of_job = {**job.options, **recorded}
        return dataclasses.replace(job, more_columns=more, options=options_of_job)


def _planned(
    command: str, options: ConvertOptions, reader: Reader, labelled: Labelled
) -> Job:
    """Divides the splits, leaves duplicates out, and plans the shards."""
    listed = labelled.listed
    _require_boxes_stay_right(options, listed.boxes)
    _require_new_splits(options, listed.splits)
    choice = options.classes, options.fractions, options.seed
    divided = division.divide(labelled, *choice)
    input_dir = _seen(listed.folder, options)
    splits: Mapping[str, Sequence[Image]] = divided.splits
    dropped: Sequence[Mapping[str, str]] = ()
    drop = options.drop_duplicates
    if drop != "none":
        cores = options.num_workers or host.num_cores()
        splits, dropped = duplicates.drop(input_dir, splits, drop, cores)
    naming = {"layout": options.layout, "dataset_name": options.name}
    plans = plan.make_plan(splits, options.num_shards, options.seed, **naming)
    num_bytes = sum(each.num_input_bytes for each in plans)
    num_images = sum(each.num_images for each in plans)
    policy = options.policy.for_input(num_images, num_bytes)
    boxes, left_out = listed.boxes, [*listed.left_out, *divided.left_out]
    return Job(
        command=command,
        name=options.name,
        input_dir=input_dir,
        states=listed.states,
        num_rows=listed.num_rows,
        output_dir=_seen(Location(str(options.local_dir)), options).path,
        plans=plans,
        classes=labelled.classes(),
        label_reason=labelled.reason,
        policy=policy,
        options=options.recorded() | _of_boxes(boxes) | {**reader.recorded},
        boxes_of=boxes.of if boxes else no_boxes,
        ignored=listing.count(left_out),
        left_out=[*map(_report, [*left_out, *(boxes.left_out if boxes else ())])],
        dropped=dropped,
        num_workers=options.num_workers
        or processes.default_workers(num_images, num_bytes, encodes=policy.shrinks),
        **options.of_job(),
    )


def _seen(folder: Location, options: ConvertOptions) -> Location:
    """Returns a folder by its path in the processes for writing shards."""
    # Processes of a cluster have other current folders.
    return folder.absolute() if options.engine == shared.RAY else folder


def _report(item: listing.LeftOut) -> dict[str, str]:
    """Returns the line of rejects.jsonl for a left-out file or box."""
    return {
        "name": catalog_name(item.name),
        "action": "ignored",
        "reason": item.reason.slug,
        "detail": item.reason.value,
    }


def _of_boxes(boxes: "Boxes | None") -> dict[str, Any]:
    """Returns a digest of the boxes: a job must not go on with other boxes."""
    if boxes is None:
        return {}
    digest = {"boxes_digest": boxes.digest()} if boxes.num_boxes else {}
    return {"boxes": boxes.decisions, **digest}


def _more_columns(
    labelled: Labelled, workspace: Workspace
) -> more_columns.MoreColumns | None:
    """Returns what the catalog and the records get beside the images and classes."""
    listed = labelled.listed
    several, extra = listed.several, [each for each in listed.rows if each.columns]
    if not (several or extra):
        return None
    in_records = {n: 0 for each in extra if each.in_records for n in each.columns}
    labels_of = None
    if several:
        in_records = {LABELS: 0, **in_records}
        labels_of = {
            image.name: [
                labelled.labels[each] for each in several.get(image.name, [name])
            ]
            for classes in listed.splits.values()
            for name, images in classes.items()
            for image in images
        }
    folder = spool.folder_in(workspace, more_columns.EXTRAS_NAME)
    images = (image.name for image in listed.images())
    path = more_columns.write(folder, images, extra, labels_of)
    return more_columns.MoreColumns(path=path, in_records=tuple(in_records))


def _require_boxes_stay_right(options: ConvertOptions, boxes: "Boxes | None") -> None:
    if options.policy.exif_orientation != "keep" and boxes and boxes.num_boxes:
        raise ValueError(
            "--exif_orientation=apply would leave the bounding boxes where they were. "
            "Keep the orientation, or take the boxes out of the input."
        )


def _require_new_splits(options: ConvertOptions, splits: Collection[str]) -> None:
    for split in options.fractions:
        if split != TRAIN and split in splits:
            raise ValueError(
                f"The input already has a {split} split, which --validation_fraction "
                "or --split_fractions must not make again. Leave it out of the flag, "
                "or move the split away."
            )


def _require_apart(options: ConvertOptions, folders: Iterable[Location]) -> None:
    """Refuses an output folder inside the input: the next run would find a class there.

    Args:
        options: Options of the conversion.
        folders: Folders with images.

    Raises:
        ValueError: If the output folder is in a folder with images, or a folder with
            images is an unfinished data set.
    """
    for folder in folders:
        if folder.is_local:
            work_dir.require_whole(folder.path)
        if options.output.is_in(folder):
            raise ValueError(
                f"--output_dir must not be in {folder.shown}, whose images are "
                f"converted, got {options.output.shown}. Choose a folder beside the "
                "input."
            )


def _require_free(command: str, options: ConvertOptions, reader: Reader) -> None:
    """Refuses an output folder early, before a slow input is read.

    Raises:
        ValueError: If the job would.
        OSError: If a file cannot be looked at.
    """
    output_dir, overwrite = options.local_dir, options.overwrite
    if not output_dir.is_dir() or work_dir.has_jobs(output_dir):
        return
    if (slow := reader.slow_files) is None:
        return
    recorded = {"command": command, **reader.recorded}
    work_dir.require_free(output_dir, (), overwrite=overwrite, options=recorded)
    written = output_dir / index.INDEX_NAME
    for file in slow if written.exists() and not overwrite else ():
        if changed.modified_ns(pathlib.Path(file)) > written.stat().st_mtime_ns:
            difference = f"{file} was changed after it was written"
            raise work_dir.taken(str(output_dir), difference=difference)


@contextlib.contextmanager
def _cleaned(options: ConvertOptions) -> Iterator[None]:
    """Removes the data of tables at the end, unless the conversion can go on.

    The data are also removed after an error of the input.
    """
    output_dir = options.local_dir
    is_new = not output_dir.exists()
    try:
        yield
    except ValueError:
        if options.num_tasks == 1:
            _clean(output_dir)
        raise
    else:
        _clean(output_dir)
    finally:
        # Folders with content stay.
        is_near = is_new or not options.output.is_local
        for path in (output_dir / work_dir.WORK_DIR_NAME, output_dir)[: 1 + is_near]:
            with contextlib.suppress(OSError):
                path.rmdir()


def _clean(output_dir: pathlib.Path) -> None:
    """Removes the data of tables.

    Another command may be running, or may go on with its job: its images stay.
    """
    folder = output_dir / work_dir.WORK_DIR_NAME
    if any(folder.glob(f"{spool.PREFIX}*")):
        with work_dir.claimed(output_dir):
            if not work_dir.has_jobs(output_dir) and not work_dir.is_live(folder):
                spool.remove(folder)
