"""Finish a data set: catalog, duplicates, side files, final names, the index last.

In: a job all of whose shards are complete in its working folder. Out: the data set. Any
step can be cut off and done again: nothing in the working folder is lost before the
index is written, and the index is written last.
"""

import collections
import dataclasses
import itertools
import json
import os
import pathlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from converters import compat, duplicates, shards, work
from tfpipe import index

if TYPE_CHECKING:
    from converters.run import Job

CHANGES_NAME = "changes.jsonl"
REJECTS_NAME = "rejects.jsonl"


def finish(job: "Job", work_dir: pathlib.Path) -> index.Index | None:
    """Publishes the data set if all its shards are complete; None if some are not.

    Raises:
        ValueError: If a split is left without any record.
        OSError: If a file cannot be written.
    """
    with work.finishing(work_dir) as free:
        done = work.completed(job.plans, work_dir)
        if not free or len(done) < len(job.plans):
            return None
        written = [done[plan.name] for plan in job.plans]
        _require_records(written)
        result = _publish(job, work_dir, written)
        shutil.rmtree(work_dir)
        return result


def _require_records(written: Sequence[shards.Written]) -> None:
    records: collections.Counter[str] = collections.Counter()
    for item in written:
        records[item.split] += item.shard.num_records
    for split, count in records.items():
        if count == 0:
            raise ValueError(
                f"Not one image of split {split} could be stored. Reasons: "
                f"{_total(item.decisions for item in written)}."
            )


def _publish(
    job: "Job", work_dir: pathlib.Path, written: Sequence[shards.Written]
) -> index.Index:
    catalog = work_dir / index.CATALOG_NAME
    fragments = [shards.fragment_path(work_dir / plan.name) for plan in job.plans]
    with index.catalog_connection() as connection:
        index.write_catalog(connection, fragments, catalog)
        same = duplicates.find(connection, catalog)
        result = _make_index(job, written, same.summary)
        places = index.record_places(connection, catalog, result)
        side = compat.side_files(result, places)
    if job.fsync:
        with open(catalog, "rb") as file:
            os.fsync(file.fileno())
    side |= {
        CHANGES_NAME: _lines(change for item in written for change in item.changes),
        REJECTS_NAME: _lines(
            itertools.chain(
                job.left_out, job.dropped, *(item.rejects for item in written)
            )
        ),
        duplicates.NAME: _lines(same.groups),
    }
    if (job.output_dir / index.INDEX_NAME).exists():
        remove_data_set(job.output_dir)
    # An empty shard has an empty index file; an empty report is left out.
    side = {
        name: content
        for name, content in side.items()
        if content or not name.endswith(".jsonl")
    }
    # Everything is written in the working folder and then moved: a crash leaves no
    # temporary file among the final ones.
    for name, content in side.items():
        _write(work_dir / name, content, fsync=job.fsync)
    files = {name: index.describe(content) for name, content in side.items()}
    files[catalog.name] = index.describe_file(catalog)
    result = dataclasses.replace(result, files=files)
    plain = [*(plan.name for plan in job.plans), catalog.name]
    _move_all([*side, *plain], job, work_dir)
    index.write(result, work_dir, fsync=job.fsync)
    _move_all([index.INDEX_NAME], job, work_dir)
    return result


def _write(path: pathlib.Path, content: bytes, *, fsync: bool) -> None:
    path.parent.mkdir(exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
        if fsync:
            file.flush()
            os.fsync(file.fileno())


def _move_all(names: Sequence[str], job: "Job", work_dir: pathlib.Path) -> None:
    """Gives files their final places, and has that on the disk before it returns."""
    for name in names:
        if (work_dir / name).exists():  # else it was moved before a crash
            _move(name, work_dir, job.output_dir)
    if job.fsync:
        # Once for all: a sync after each of thousands of files takes longer than they.
        for folder in {job.output_dir, *((job.output_dir / n).parent for n in names)}:
            index.sync_folder(folder)


def _move(name: str, work_dir: pathlib.Path, output_dir: pathlib.Path) -> None:
    place = output_dir / name
    place.parent.mkdir(exist_ok=True)
    os.replace(work_dir / name, place)


def left_over(job: "Job") -> index.Index | None:
    """The index, if a run of this job ended after writing it; clears what it left.

    None where the job is still to be done.
    """
    work_dir = job.output_dir / work.WORK_DIR_NAME
    if job.overwrite or not work_dir.exists():
        return None
    if not (job.output_dir / index.INDEX_NAME).exists():
        return None
    found = index.load(job.output_dir)
    wanted = json.loads(json.dumps(job.description))
    if any(found.made_by.get(key) != value for key, value in wanted.items()):
        return None
    shutil.rmtree(work_dir)
    return found


def _lines(items: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(item) + "\n" for item in items).encode()


def _total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: collections.Counter[str] = collections.Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))


def _make_index(
    job: "Job", written: Sequence[shards.Written], same: Mapping[str, int]
) -> index.Index:
    splits: dict[str, list[index.Shard]] = {}
    for item in written:
        splits.setdefault(item.split, []).append(item.shard)
    dropped = collections.Counter(f"skipped_{drop['reason']}" for drop in job.dropped)
    made_by = {
        **job.description,
        "decisions": _total([*(item.decisions for item in written), dropped]),
        "ignored": dict(sorted(job.ignored.items())),
        "duplicates": dict(same),
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
    """Decibels over the sample of shrunk images; None if none was shrunk."""
    if not values:
        return None
    mean, low = sum(values) / len(values), min(values)
    return {
        "num_images": len(values),
        "mean_db": round(mean, 2),
        "min_db": round(low, 2),
    }


def remove_data_set(data_dir: pathlib.Path) -> None:
    """Removes the files of the data set that the index lists, the index first."""
    old = index.load(data_dir)
    (data_dir / index.INDEX_NAME).unlink()
    names = [shard.name for entries in old.splits.values() for shard in entries]
    for name in (*names, *sorted(work.SIDE_NAMES)):
        path = data_dir / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
