"""Publishes a data set: makes its catalog, reports, side files and index, and moves it.

In: a job whose shards are all complete in its folder. Out: the data set in the output
folder. Any step can be cut off and done again: nothing outside the job's folder is
touched before `replace.put_in_place` begins.
"""

import collections
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tfpipe
from converters.inputs import meaning
from converters.jobs import (
    at_url,
    changed,
    duplicates,
    more_columns,
    replace,
    side_files,
    work_dir,
    write_shard,
)
from converters.jobs.job import Job, changes_since, differences
from tfpipe import errors
from tfpipe.location import atomic
from tfpipe.native import entry_file
from tfpipe.shards import index, sql

CHANGES_NAME = "changes.jsonl"
REJECTS_NAME = "rejects.jsonl"


def publish(job: Job, job_dir: pathlib.Path) -> index.Index | None:
    """Publishes the data set if all its shards are complete; returns None otherwise.

    The call waits for another task that is publishing. When several tasks end at the
    same time, the last one therefore finds all shards complete.

    Raises:
        ValueError: If a split is left without any record, or if an image is in two
            splits and the job is strict.
        FileNotFoundError: If the job's folder was removed.
        OSError: If a file cannot be written.
        BadIndexError: If the old data set has an index that cannot be read.
        RemoteError: If a file cannot be uploaded.
    """
    with work_dir.claimed(job.output_dir, flag=job.output_flag) as claimed:
        ended = work_dir.end_cut_off(claimed, give_up=False, fsync=job.fsync)
        if job.identity in ended:
            return index.load(job.output_dir)
        if not (job_dir / replace.JOB_NAME).exists():
            raise FileNotFoundError(f"{job_dir} was removed by another process.")
        state = look(job)
        done = work_dir.completed(job.plans, job_dir, uploaded=state.sizes)
        if len(done) < len(job.plans):
            return None
        written = [done[plan.name] for plan in job.plans]
        _require_records(written)
        _require_all_rows(job, written)
        if not all(state.is_claimed or (job_dir / name).exists() for name in done):
            raise OSError(
                "Another conversion has begun to write to the place of the uploaded "
                "shards, and may have replaced them. Wait for its end."
            )
        return _publish_complete(job, job_dir, written, state)


def look(job: Job) -> at_url.TargetState:
    """Looks at the URL that a job writes to; a folder is `work_dir`'s.

    Raises:
        FileExistsError: If something is there that the job must not replace.
        BadIndexError: If the old data set has an index that cannot be read.
        RemoteError: If the place cannot be read.
    """
    if job.files is None:
        return at_url.TargetState()
    shards = [plan.name for plan in job.plans]
    dali = [f"{side_files.DALI_DIR_NAME}/{name}" for name in shards]
    return at_url.look(
        job.files,
        job=job.identity,
        names={
            *(*shards, *dali, *replace.SIDE_FILE_NAMES),
            *(entry_file.name_of(plan.split) for plan in job.plans),
        },
        overwrite=job.overwrite,
    )


def abandon(job: Job) -> None:
    """Removes what a failed job has uploaded, as far as its URL can be reached."""
    if job.files is not None:
        with contextlib.suppress(errors.RemoteError):
            at_url.abandon(job.files, job.identity)


def index_state(output_dir: pathlib.Path) -> tuple[int, int] | None:
    """Returns the inode and time of the index, which change when it is replaced.

    Returns None if there is no index.
    """
    try:
        found = os.stat(output_dir / index.INDEX_NAME)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def published_by_another_task(job: Job, before: tuple[int, int] | None) -> index.Index:
    """Returns the index that another task wrote, which also removed the job's folder.

    Args:
        job: The job.
        before: The `index_state` when this task began.

    Raises:
        OSError: If no task has finished the job.
    """
    found = None
    if job.files is not None:
        with contextlib.suppress(errors.BadIndexError):
            found = at_url.load_index(job.files)
    elif index_state(job.output_dir) not in (None, before):
        found = index.load(job.output_dir)
    if found is not None and not changes_since(found.made_by, job.description):
        return found
    raise OSError(
        f"The working folder of this conversion in {job.output_dir} was removed by "
        "another process. Run the same command again to start over."
    )


class NothingStoredError(ValueError):
    """Not one image of a split could be stored; `reasons` counts why."""

    reasons: Mapping[str, int] = {}


def _require_records(written: Sequence[write_shard.Written]) -> None:
    records: collections.Counter[str] = collections.Counter()
    for item in written:
        records[item.split] += item.shard.num_records
    for split, count in records.items():
        if count == 0:
            rejects = [
                r for item in written if item.split == split for r in item.rejects
            ]
            reasons = collections.Counter(reject["reason"] for reject in rejects)
            error = NothingStoredError(
                f"Not one image of split {split} could be stored. Reasons: "
                f"{dict(sorted(reasons.items()))}. The first one is "
                f"{rejects[0]['name']}: {rejects[0]['detail']}."
            )
            error.reasons = reasons
            raise error


def _require_all_rows(job: Job, written: Sequence[write_shard.Written]) -> None:
    """Checks that each row of the input is a record, or is named with its reason."""
    if job.writer is not None:  # copies of records
        return
    num_records = sum(item.shard.num_records for item in written)
    num_rejects = sum(len(item.rejects) for item in written)
    rows = [line for line in job.left_out if not line["reason"].startswith("bbox_")]
    num_before = len(rows) + len(job.dropped)
    num_planned = sum(plan.num_images for plan in job.plans)
    num_rows = num_planned + num_before if job.num_rows is None else job.num_rows
    if num_rows != num_records + num_rejects + num_before:
        raise RuntimeError(
            f"A fault of tfpipe, not of the input: {num_rows:,} rows were read, but "
            f"{num_records:,} are records, {num_rejects:,} were rejected, and "
            f"{num_before:,} were left out before. Nothing was published; please "
            "report this."
        )


def _publish_complete(
    job: Job,
    job_dir: pathlib.Path,
    written: Sequence[write_shard.Written],
    state: at_url.TargetState,
) -> index.Index:
    new = [plan.name for plan in job.plans]
    if (job.output_dir / index.INDEX_NAME).exists() and not job.overwrite:
        raise FileExistsError(
            f"{job.output_dir} holds a data set that was not there when this "
            "conversion began. Move it away, or replace it with --overwrite."
        )
    replace.old_files(job.output_dir, new)
    catalog = job_dir / index.CATALOG_NAME
    fragments = [write_shard.fragment_path(job_dir / name) for name in new]
    with index.catalog_connection() as connection, _catalog_errors(catalog):
        more_columns.write_catalog(connection, fragments, catalog, job.more_columns)
        # Another writer makes copies on purpose: they are no finding.
        copies = duplicates.NONE
        if job.writer is None:
            copies = duplicates.find(connection, catalog)
        meaning.warn(duplicates.warnings(copies), strict=job.strict)
        result = _make_index(job, written, copies.summary)
        places = index.record_places(connection, catalog, result)
        keys = job.made_by.get("features")
        side = side_files.side_files(result, places, keys=keys)
    if job.fsync:
        atomic.sync(catalog)
    side |= _reports(job, written, copies.groups)
    for name, content in side.items():
        _write(job_dir / name, content, fsync=job.fsync)
    described = {name: index.describe(content) for name, content in side.items()}
    points = _entry_points(job, job_dir)
    described |= {name: index.describe_file(job_dir / name) for name in points}
    described[catalog.name] = index.describe_file(catalog)
    result = dataclasses.replace(result, files=described)
    index.write(result, job_dir, fsync=job.fsync)
    files = [*side, *new, *points, catalog.name]
    if job.files is None:
        replace.put_in_place(job_dir, job.output_dir, new=files, fsync=job.fsync)
    else:
        at_url.publish(job.files, state, job_dir, files, num_workers=job.num_workers)
        replace.remove_job(job_dir)
    return result


def _entry_points(job: Job, job_dir: pathlib.Path) -> list[str]:
    """Joins the entry points of the shards of each split; returns the new names."""
    parts: dict[str, list[pathlib.Path]] = {}
    for plan in job.plans:
        if job.has_entry_points(plan.split):
            part = write_shard.entry_points_path(job_dir / plan.name)
            parts.setdefault(entry_file.name_of(plan.split), []).append(part)
    for name, paths in parts.items():
        entry_file.join(paths, job_dir / name, fsync=job.fsync)
    return [*parts]


def _reports(
    job: Job,
    written: Sequence[write_shard.Written],
    copies: Iterable[Mapping[str, Any]],
) -> dict[str, bytes]:
    """Returns the content of each report by name, without the empty ones."""
    rejects = (job.left_out, job.dropped, *(item.rejects for item in written))
    reports = {
        CHANGES_NAME: _lines(change for item in written for change in item.changes),
        REJECTS_NAME: _lines(itertools.chain(*rejects)),
        duplicates.NAME: _lines(copies),
    }
    return {name: content for name, content in reports.items() if content}


@contextlib.contextmanager
def _catalog_errors(catalog: pathlib.Path) -> Iterator[None]:
    """Turns DuckDB's errors, such as for a full disk, into Python's own."""
    try:
        yield
    except sql.engine().Error as error:
        raise OSError(
            f"{catalog} cannot be made: {str(error).splitlines()[0].rstrip('.')}. Make "
            "room if the disk is full."
        ) from error


def _write(path: pathlib.Path, content: bytes, *, fsync: bool) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    if fsync:
        atomic.sync(path)


def already_published(job: Job) -> index.Index | None:
    """Ends the publishing of this job if an earlier run was cut off at it.

    Returns:
        The index, also of a run that had ended; None if the job has to be done, also
        because an image was edited after its shard was written.

    Raises:
        ValueError: If the output is the data set of another job, or of images that were
            edited since, and must not be replaced.
    """
    work_dir.require_folder(job.output_dir, job.output_flag)
    if (job.output_dir / work_dir.WORK_DIR_NAME).exists():
        with work_dir.claimed(job.output_dir, flag=job.output_flag) as claimed:
            job_dir = work_dir.job_dir(job.output_dir, job.identity)
            edited = []
            if (job_dir / replace.JOURNAL_NAME).exists():
                edited = changed.by_times(job.input_dir, job.plans, job_dir)
            ended = work_dir.end_cut_off(
                claimed, give_up=job.overwrite, fsync=job.fsync
            )
            if job.identity in ended and not edited:
                return index.load(job.output_dir)
    return None if job.overwrite else _published_before(job)


def _published_before(job: Job) -> index.Index | None:
    """Returns the index of a whole data set that this job wrote, and says so."""
    with contextlib.suppress(errors.BadIndexError):
        if (known := _data_set_of(job)) is not None:
            place = job.files.location.shown if job.files else str(job.output_dir)
            if difference := _difference(job, known):
                raise work_dir.taken(place, difference=difference, flag=job.output_flag)
            print(f"{place} already holds this data set, complete.", file=sys.stderr)
            copies = duplicates.Duplicates((), known.made_by.get("duplicates", {}))
            meaning.warn(duplicates.warnings(copies), strict=job.strict)
            return known
    return None


def _data_set_of(job: Job) -> index.Index | None:
    """Returns the index of the data set that no job has begun to replace."""
    job_dir = work_dir.job_dir(job.output_dir, job.identity)
    if job.files is None:
        is_there = index_state(job.output_dir) and not work_dir.has_jobs(job.output_dir)
        return index.load(job.output_dir) if is_there else None
    sizes = job.files.names()
    if index.INDEX_NAME not in sizes or at_url.CLAIM_NAME in sizes:
        return None
    known = at_url.load_index(job.files)
    if (job_dir / index.INDEX_NAME).exists() and index.load(job_dir) == known:
        work_dir.drop(job_dir)  # the job was cut off after it had published
    return None if work_dir.has_jobs(job.output_dir) else known


def _difference(job: Job, known: index.Index) -> str:
    """Returns how a data set differs from the one that a job would write, for people.

    Files are compared by their sizes, and images by the times of their files.
    """
    if difference := changes_since(known.made_by, job.description):
        before = {split: len(shards) for split, shards in known.splits.items()}
        now = collections.Counter(plan.split for plan in job.plans)
        return "; ".join([*differences(before, now, prefix="shards."), difference])
    shards = [shard for entries in known.splits.values() for shard in entries]
    wanted = {shard.name: shard.num_bytes for shard in shards}
    wanted |= {name: file.num_bytes for name, file in (known.files or {}).items()}
    if job.files is not None:
        sizes = job.files.names()
    else:
        paths = {name: job.output_dir / name for name in wanted}
        sizes = {n: p.stat().st_size for n, p in paths.items() if p.is_file()}
        written = job.output_dir / index.INDEX_NAME
        edited = changed.newer(job.input_dir, job.plans, written)
        if edited and job.writer is None:
            return f"{edited} was changed after it was written"
    other = [name for name, size in wanted.items() if sizes.get(name) != size]
    return f"its file {other[0]} is missing or has another size" if other else ""


def _lines(items: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(item) + "\n" for item in items).encode()


def _total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: collections.Counter[str] = collections.Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))


def _make_index(
    job: Job, written: Sequence[write_shard.Written], copies: Mapping[str, int]
) -> index.Index:
    splits: dict[str, list[index.Shard]] = {}
    for item in written:
        splits.setdefault(item.split, []).append(item.shard)
    dropped = collections.Counter(f"skipped_{drop['reason']}" for drop in job.dropped)
    made_by = {
        **job.description,
        "git_revision": tfpipe.host.git_revision(),
        "decisions": _total([*(item.decisions for item in written), dropped]),
        "ignored": dict(sorted(job.ignored.items())),
        "duplicates": dict(copies),
        "num_source_bytes": sum(item.num_source_bytes for item in written),
        "psnr": _psnr([value for item in written for value in item.psnr]),
        "rewritten": {
            "num_images": sum(item.num_rewritten for item in written),
            "num_bytes_saved": sum(item.num_bytes_saved for item in written),
        },
    }
    return index.Index(
        name=job.name,
        label_base=job.classes[0].label,
        classes=tuple((c.synset, c.text) for c in job.classes),
        splits={split: tuple(entries) for split, entries in splits.items()},
        made_by=made_by,
    )


def _psnr(values: Sequence[float]) -> dict[str, float] | None:
    """Returns the mean and lowest PSNR, in decibels, of the sample of shrunk images.

    Returns None if no image was shrunk.
    """
    if not values:
        return None
    mean, low = sum(values) / len(values), min(values)
    return {
        "num_images": len(values),
        "mean_db": round(mean, 2),
        "min_db": round(low, 2),
    }
