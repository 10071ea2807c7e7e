"""Run a plan: worker processes, progress, and the index last.

In: a `Job`. Out: a complete data set in the output folder, or an exception and nothing.
Shards are written into one dot-folder inside the output folder, which no reader's glob
matches, and get their names only when all of them are complete.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import fcntl
import functools
import multiprocessing
import os
import pathlib
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tqdm

from converters import compat, shards
from converters.classes import Class
from converters.plan import ShardPlan
from tfpipe import index

WORK_DIR_NAME = ".converting"
_POLL_SECONDS = 0.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One conversion.

    Attributes:
        input_dir: Folder that the images' paths are relative to.
        output_dir: Where the data set goes; made if it is not there.
        name: Name of the data set.
        plans: The shards to write, in order.
        classes: All classes in label order.
        made_by: How it was made, for the index; decisions are added.
        num_workers: Processes that write shards.
        overwrite: Whether to replace a data set that is there.
    """

    input_dir: pathlib.Path
    output_dir: pathlib.Path
    name: str
    plans: Sequence[ShardPlan]
    classes: Sequence[Class]
    made_by: Mapping[str, Any]
    num_workers: int
    overwrite: bool

    def __post_init__(self) -> None:
        if self.num_workers < 1:
            raise ValueError(f"num_workers must be >= 1, got {self.num_workers}.")


def run(job: Job) -> index.Index:
    """Converts, and returns the index of what was written.

    Raises:
        ValueError: If the output folder holds something else, or an image is bad.
        OSError: If a file cannot be read or written.
    """
    require_free(job.output_dir, overwrite=job.overwrite)
    with _work_dir(job.output_dir) as work_dir:
        written = _write_shards(job, work_dir)
        return _publish(job, work_dir, written)


def require_free(output_dir: pathlib.Path, *, overwrite: bool) -> None:
    """Refuses an output folder whose content a conversion would mix with or lose.

    Raises:
        ValueError: If there is a data set and `overwrite` is not set, or there are
            files that no converter wrote.
    """
    if not output_dir.exists():
        return
    if not output_dir.is_dir():
        raise ValueError(f"--output_dir must be a folder, got the file {output_dir}.")
    if (output_dir / index.INDEX_NAME).exists():
        if overwrite:
            return
        raise ValueError(
            f"--output_dir {output_dir} already holds a data set. "
            "Choose another folder, or replace it with --overwrite."
        )
    others = sorted({entry.name for entry in output_dir.iterdir()} - {WORK_DIR_NAME})
    if others:
        raise ValueError(
            f"--output_dir {output_dir} must be empty or hold a data set, "
            f"got other files, the first is {others[0]}. Choose another folder."
        )


@contextlib.contextmanager
def _work_dir(output_dir: pathlib.Path) -> Iterator[pathlib.Path]:
    """The working folder, locked; removed at the end with what is left in it."""
    work_dir = output_dir / WORK_DIR_NAME
    made_output_dir = not output_dir.exists()
    work_dir.mkdir(parents=True, exist_ok=True)
    lock = os.open(work_dir, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"Another conversion is writing to {output_dir}. Wait for it, "
                "or choose another folder."
            ) from None
        for left_over in work_dir.iterdir():
            left_over.unlink()
        try:
            yield work_dir
        finally:
            shutil.rmtree(work_dir)
            if made_output_dir and not any(output_dir.iterdir()):
                output_dir.rmdir()
    finally:
        os.close(lock)


def _write_shards(job: Job, work_dir: pathlib.Path) -> list[shards.Written]:
    """Writes all shards in worker processes; results in the order of the plans."""
    context = multiprocessing.get_context("spawn")
    num_done = context.Value("q", 0)
    total = sum(len(plan.images) for plan in job.plans)
    write = functools.partial(
        shards.write_shard,
        input_dir=job.input_dir,
        work_dir=work_dir,
        classes=job.classes,
        on_record=_count_record,
    )
    with (
        _terminate_as_interrupt(),
        concurrent.futures.ProcessPoolExecutor(
            min(job.num_workers, len(job.plans)),
            mp_context=context,
            initializer=_start_worker,
            initargs=(num_done,),
        ) as pool,
        tqdm.tqdm(total=total, unit="image", file=sys.stderr, disable=None) as bar,
    ):
        futures = [pool.submit(write, plan) for plan in job.plans]
        try:
            _wait(futures, lambda: bar.update(num_done.value - bar.n))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        return [future.result() for future in futures]


def _wait(
    futures: Sequence[concurrent.futures.Future[Any]], on_poll: Callable[[], object]
) -> None:
    """Waits for all; raises what the first that fails raises."""
    pending = set(futures)
    while pending:
        done, pending = concurrent.futures.wait(
            pending, _POLL_SECONDS, concurrent.futures.FIRST_EXCEPTION
        )
        on_poll()
        for future in done:
            future.result()


_num_done: Any = None


def _start_worker(num_done: Any) -> None:
    """Worker start-up: the shared count, and Ctrl-C left to the parent."""
    global _num_done
    _num_done = num_done
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _count_record() -> None:
    with _num_done.get_lock():
        _num_done.value += 1


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Lets SIGTERM clean up as Ctrl-C does; signals exist in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _publish(
    job: Job, work_dir: pathlib.Path, written: Sequence[shards.Written]
) -> index.Index:
    """Gives the files their names, the index last; an old data set goes first."""
    paths = [work_dir / item.shard.name for item in written]
    catalog = work_dir / index.CATALOG_NAME
    index.write_catalog([shards.fragment_path(path) for path in paths], catalog)
    labels = work_dir / compat.LABELS_NAME
    index.replace_file(labels, compat.labels_text(job.classes).encode())
    if (job.output_dir / index.INDEX_NAME).exists():
        _remove_data_set(job.output_dir)
    for path in (*paths, catalog, labels):
        os.replace(path, job.output_dir / path.name)
    index.sync_folder(job.output_dir)
    result = _make_index(job, written)
    index.write(result, job.output_dir)
    return result


def _make_index(job: Job, written: Sequence[shards.Written]) -> index.Index:
    splits: dict[str, list[index.Shard]] = {}
    decisions: collections.Counter[str] = collections.Counter()
    for item in written:
        splits.setdefault(item.split, []).append(item.shard)
        decisions.update(item.decisions)
    return index.Index(
        name=job.name,
        label_base=job.classes[0].label,
        classes=tuple((c.synset, c.text) for c in job.classes),
        splits={split: tuple(entries) for split, entries in splits.items()},
        made_by={**job.made_by, "decisions": dict(sorted(decisions.items()))},
    )


def _remove_data_set(data_dir: pathlib.Path) -> None:
    """Removes the files of the data set that the index lists, the index first."""
    old = index.load(data_dir)
    (data_dir / index.INDEX_NAME).unlink()
    names = [shard.name for entries in old.splits.values() for shard in entries]
    for name in (*names, index.CATALOG_NAME, compat.LABELS_NAME):
        (data_dir / name).unlink(missing_ok=True)
