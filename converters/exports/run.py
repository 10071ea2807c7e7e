"""Runs an export: its parts in worker processes, in a folder of work, then published.

In: a plan. Out: the files in the output folder, and last export.json with their list. A
complete part has a marker, so that a second run goes on after a kill. Nothing is in the
output folder before all parts are complete.
"""

import dataclasses
import functools
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import tfpipe
from converters.engines import processes
from converters.exports import array_record, carried, parquet, tree, webdataset
from converters.exports.plan import ExportedRecord, ExportPlan, Part, read_items
from converters.inputs.exported import COLUMNS_NAME
from converters.jobs import replace, side_files, work_dir, write_shard
from converters.jobs.job import changes_since
from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.shards import index

EXPORT_NAME = "export.json"
FORMAT_VERSION = 1

# In the folder of a job: the files before their publication, and the sign that all
# files are complete and are being moved.
_FILES_NAME, _JOURNAL_NAME = "files", "publish_export.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export:
    """An export.

    Attributes:
        plan: The plan of the records.
        output_dir: Folder for the files.
        description: All values that decide the files, for JSON.
        more: More members of export.json; JSON values.
        num_workers: Number of processes, >= 1.
        fsync: Whether a part must be on the disk before it counts as complete.
    """

    plan: ExportPlan
    output_dir: pathlib.Path
    description: Mapping[str, Any]
    more: Mapping[str, Any]
    num_workers: int
    fsync: bool


def describe(plan: ExportPlan, subset_digest: str | None) -> dict[str, Any]:
    """Returns all values that decide the files of an export, for JSON."""
    return {
        "command": "converters.export",
        "version": tfpipe.__version__,
        "format": plan.kind,
        "paths": plan.style,
        "source": plan.source.digest,
        "splits": list(plan.source.known.splits),
        "subset": subset_digest,
    }


def run(export: Export) -> dict[str, Any]:
    """Writes and publishes an export, and returns the content of its export.json.

    Raises:
        ValueError: If the output folder holds something else.
        BadRecordError: If a record is damaged.
        OSError: If a file cannot be read or written.
        RemoteError: If the data set cannot be read from its URL.
    """
    if finished := end_cut_off(export.output_dir, export.description):
        return finished
    if (export.output_dir / EXPORT_NAME).exists():
        return _published_before(export)
    with work_dir.open_work_dir(
        export.output_dir, export.description, task=0, restart=False, fsync=export.fsync
    ) as folder:
        (folder / _FILES_NAME).mkdir(exist_ok=True)
        done = _completed(export.plan, folder)
        missing = [part for part in export.plan.parts if part.name not in done]
        _require_space(export, missing)
        written = processes.run(
            functools.partial(_write, export.plan, folder, export.fsync),
            missing,
            num_workers=export.num_workers,
            num_images=sum(part.num_records for part in missing),
        )
        done |= {part.name: file for part, file in zip(missing, written, strict=True)}
        document = _document(export, done)
        return _publish(export, folder, document)


def _published_before(export: Export) -> dict[str, Any]:
    """Returns the content of export.json if this very export wrote it, and says so."""
    output_dir = export.output_dir
    try:
        document: dict[str, Any] = errors.from_json(
            (output_dir / EXPORT_NAME).read_bytes()
        )
        difference = changes_since(document["made_by"], export.description)
        sizes = {file["name"]: file["num_bytes"] for file in document.get("files", ())}
    except (ValueError, TypeError, LookupError):
        difference, sizes = f"its {EXPORT_NAME} cannot be read", {}
    for name, num_bytes in sizes.items():
        path = output_dir / name
        if not (path.is_file() and path.stat().st_size == num_bytes):
            difference = difference or f"its file {name} is missing or damaged"
    if difference:
        raise ValueError(
            f"--output_dir {output_dir} already holds an export that differs from this "
            f"one: {difference}. Choose another folder, or remove that one."
        )
    print(f"{output_dir} already holds this export, complete.", file=sys.stderr)
    return document


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartFile(index.File):
    """The file of a part, and the number of bounding boxes of its records."""

    num_boxes: int = 0


def _write(plan: ExportPlan, folder: pathlib.Path, fsync: bool, part: Part) -> PartFile:
    """Writes a part and its marker. Runs in worker processes."""
    write_shard.keep_freed_memory()
    num_boxes, lines = 0, []

    def exported() -> Iterator[ExportedRecord]:
        nonlocal num_boxes
        for item in read_items(plan, part):
            num_boxes += len(item.boxes)
            lines.append(carried.line_of(plan, part, item))
            yield item

    if plan.kind == "tree":
        file = tree.write_part(
            plan, part, exported(), folder / _FILES_NAME, fsync=fsync
        )
    else:
        file_path = folder / _FILES_NAME / part.name
        unfinished = folder / f"{part.name}.part"
        with atomic.new_file(file_path, part=unfinished, fsync=fsync) as path:
            if plan.kind == "webdataset":
                webdataset.write_part(plan, part, exported(), path)
            elif plan.kind == "parquet":
                parquet.write_part(plan, part, exported(), path)
            else:
                array_record.write_part(exported(), path)
            file = index.describe_file(path)
    if plan.columns:
        content = "".join(lines).encode()
        atomic.write(carried.names_path(folder, part), content, fsync=fsync)
    written = PartFile(**dataclasses.asdict(file), num_boxes=num_boxes)
    marker = json.dumps(dataclasses.asdict(written)).encode()
    atomic.write(_marker(folder, part), marker, fsync=fsync)
    return written


def _marker(folder: pathlib.Path, part: Part) -> pathlib.Path:
    return folder / f"{part.name}{write_shard.MARKER_SUFFIX}"


def _completed(plan: ExportPlan, folder: pathlib.Path) -> dict[str, PartFile]:
    """Returns the parts completed by earlier runs, by name."""
    done = {}
    for part in plan.parts:
        try:
            file = PartFile(**errors.from_json(_marker(folder, part).read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            continue  # a power loss can empty a marker that was written with --nofsync
        path = folder / _FILES_NAME / part.name
        is_there = path.exists() and path.stat().st_size == file.num_bytes
        if plan.kind == "tree" or is_there:
            done[part.name] = file
    return done


def _require_space(export: Export, parts: list[Part]) -> None:
    needed = sum(part.num_bytes for part in parts)
    free = shutil.disk_usage(export.output_dir).free
    if needed > free:
        raise OSError(
            f"{export.output_dir} needs {needed / 1e9:.2f} GB for the files still to "
            f"be written, got {free / 1e9:.2f} GB free. Make room or choose another "
            "disk."
        )


def _document(export: Export, done: Mapping[str, PartFile]) -> dict[str, Any]:
    """Returns the content of export.json."""
    plan = export.plan
    listed = plan.source.known
    files = [
        {
            "name": part.name,
            "split": part.split,
            "num_records": part.num_records,
            **dataclasses.asdict(done[part.name]),
        }
        for part in plan.parts
    ]
    return {
        "format_version": FORMAT_VERSION,
        "name": listed.name,
        "made_by": dict(export.description),
        **export.more,
        "num_records": plan.num_records,
        "num_bytes": sum(file.num_bytes for file in done.values()),
        "num_boxes": sum(file.num_boxes for file in done.values()),
        "digest_algorithm": index.DIGEST_ALGORITHM,
        # The parts of a tree are many files.
        "parts" if plan.kind == "tree" else "files": files,
    }


def _publish(
    export: Export, folder: pathlib.Path, document: Mapping[str, Any]
) -> dict[str, Any]:
    """Moves the files to the output folder, and writes export.json last."""
    plan = export.plan
    classes = side_files.classes_table(plan.source.classes)
    more = {side_files.CLASSES_NAME: side_files.as_lines(classes)}
    if plan.kind == "tree":
        more |= tree.side_files_of(plan)
    elif plan.kind == "arrayrecord":
        more |= array_record.side_files_of(plan)
    for name, content in more.items():
        atomic.write(folder / _FILES_NAME / name, content, fsync=export.fsync)
    if plan.columns:
        path = folder / _FILES_NAME / COLUMNS_NAME
        part = folder / f"{COLUMNS_NAME}.part"
        with atomic.new_file(path, part=part, fsync=export.fsync):
            carried.write(plan, folder, part)
    text = json.dumps(document, indent=1).encode()
    atomic.write(folder / _JOURNAL_NAME, text, fsync=export.fsync)
    return _move(folder, export.output_dir)


def _move(folder: pathlib.Path, output_dir: pathlib.Path) -> dict[str, Any]:
    """Moves the files out of the folder of the job, and removes the folder."""
    text = (folder / _JOURNAL_NAME).read_bytes()
    document: dict[str, Any] = errors.from_json(text)
    for path in sorted(folder.glob(f"{_FILES_NAME}/*")):  # none after a kill at the end
        os.replace(path, output_dir / path.name)
    atomic.write(output_dir / EXPORT_NAME, text)
    replace.remove_job(folder)
    return document


def end_cut_off(
    output_dir: pathlib.Path, description: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Ends an export after a kill during the move of its files.

    Returns:
        Its export.json, if the description is equal; None otherwise.
    """
    if not (output_dir / work_dir.WORK_DIR_NAME).exists():
        return None
    with work_dir.claimed(output_dir) as claimed:
        live = work_dir.is_live(claimed)
        for journal in () if live else claimed.glob(f"*/{_JOURNAL_NAME}"):
            document = _move(journal.parent, output_dir)
            if document["made_by"] == json.loads(json.dumps(description)):
                return document
        work_dir.end_cut_off(claimed, give_up=False, fsync=True)
    return None
