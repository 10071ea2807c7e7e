"""Runs a job: writes the shards that are not complete yet, then publishes the data set.

In: a `Job`. Out: a complete data set in the output folder, or an exception and a
working folder, and the same job goes on. Several tasks on several hosts with access to
the output folder can share a job: every task writes its own shards, and the last task
publishes the data set.
"""

import collections
import contextlib
import functools
import heapq
import pathlib
import shutil
from collections.abc import Callable, Sequence

import PIL

import tfpipe
from converters.engines import processes, ray_cluster
from converters.images import lossless
from converters.jobs import at_url, changed, publish, replace, work_dir, write_shard
from converters.jobs.job import Job
from converters.jobs.plan import ShardPlan
from tfpipe.cli.signals import terminated_as_interrupted
from tfpipe.location import atomic
from tfpipe.shards import index


def run(
    job: Job, *, on_span: Callable[[processes.Span], object] = id
) -> index.Index | None:
    """Converts, and returns the index; None while other tasks have shards to write.

    Args:
        job: The conversion.
        on_span: Called for every shard with the times at which it was written.

    Raises:
        ValueError: If the output folder holds something else, if an image is bad and
            the policy is to fail, or if too many images are bad.
        OSError: If a file cannot be read or written, or if an earlier conversion was
            cut off and cannot be ended.
        BadIndexError: If the data set to replace has an index that cannot be read.
        KeyboardInterrupt: On Ctrl-C and SIGTERM.
    """
    with terminated_as_interrupted():
        result = publish.already_published(job)
        if result is None:
            try:
                result = _convert(job, on_span)
            except ValueError:
                # Another start of the same job may have ended since.
                if (result := publish.already_published(job)) is None:
                    raise
        if job.files is not None:
            _remove_if_empty(job.output_dir)
        return result


def _convert(
    job: Job, on_span: Callable[[processes.Span], object]
) -> index.Index | None:
    before = publish.index_state(job.output_dir)
    made = not job.output_dir.exists()
    publish.look(job)  # so that a refused job leaves nothing here
    with work_dir.open_work_dir(
        job.output_dir,
        job.description,
        task=job.task_index,
        restart=job.overwrite,
        names=[plan.name for plan in job.plans],
        fsync=job.fsync,
        flag=job.output_flag,
    ) as job_dir:
        try:
            # Another task may have published since.
            result = _complete(job, job_dir, publish.look(job), on_span)
        except FileNotFoundError:
            if job_dir.exists():
                raise
            result = publish.published_by_another_task(job, before)
        except ValueError:
            # The same input would fail again: there is nothing to go on from.
            if job.num_tasks == 1:
                work_dir.drop(job_dir)
                publish.abandon(job)
                if made:
                    _remove_if_empty(job.output_dir)
            raise
    return result


def _remove_if_empty(folder: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _complete(
    job: Job,
    job_dir: pathlib.Path,
    state: at_url.TargetState,
    on_span: Callable[[processes.Span], object],
) -> index.Index | None:
    if job.finalize:
        _require_complete(job, job_dir, state)
    else:
        _write_missing(job, job_dir, state, on_span)
    return publish.publish(job, job_dir)


def _require_complete(
    job: Job, job_dir: pathlib.Path, state: at_url.TargetState
) -> None:
    done = work_dir.completed(job.plans, job_dir, uploaded=state.sizes)
    missing = [plan.name for plan in job.plans if plan.name not in done]
    if missing:
        raise OSError(
            f"--finalize needs all {len(job.plans)} shards in {job_dir}, "
            f"but lacks {len(missing)}, the first is {missing[0]}. "
            "Run the tasks that did not end."
        )


def _write_missing(
    job: Job,
    job_dir: pathlib.Path,
    state: at_url.TargetState,
    on_span: Callable[[processes.Span], object],
) -> None:
    """Writes the unfinished shards of the task."""
    mine = job.plans[job.task_index :: job.num_tasks]
    _forget_changed(job, mine, job_dir)
    done = work_dir.completed(mine, job_dir, uploaded=state.sizes)
    missing = [plan for plan in mine if plan.name not in done]
    if not missing:
        return
    # While an older data set is at the URL, the shards of the new one stay here.
    uploads = job.files is not None and not state.has_index
    missing.sort(key=lambda plan: plan.order)
    # On a cluster, every node has room of its own for the shards that it uploads.
    num_kept = 0 if job.cluster else job.num_workers
    kept = _largest(missing, num_kept) if uploads else missing
    require_space(job.output_dir, kept, 0, shrinks=job.policy.shrinks)
    limit = _BadLimit(job.max_bad, sum(plan.num_images for plan in mine))
    for written in done.values():
        limit.add(written)
    if job.files is not None and uploads:
        at_url.write_claim(job.files, state)
    write = _write_and_upload if uploads else _write
    try:
        ray_cluster.write_files(
            functools.partial(write, job),
            job_dir,
            [write_shard.task_of(job, plan) for plan in missing],
            nodes=_nodes(job, job_dir, uploads=uploads),
            num_workers=job.num_workers,
            num_images=sum(plan.num_images for plan in missing),
            on_result=limit.add,
            on_span=on_span,
            note="{} shards uploaded" if uploads else "",
        )
    finally:
        work_dir.sweep(job_dir)  # the unfinished files of a worker that was killed


def _nodes(
    job: Job, job_dir: pathlib.Path, *, uploads: bool
) -> ray_cluster.Nodes | None:
    """Returns how the nodes of the job's cluster write its shards, if it has one."""
    if job.cluster is None:
        return None

    def keep(name: str, content: bytes) -> None:
        atomic.write(job_dir / name, content, fsync=job.fsync)

    return ray_cluster.Nodes(
        job.cluster,
        functools.partial(_problem, job, None if uploads else job_dir, _versions()),
        uploads,
        keep,
        write_shard.MARKER_SUFFIX,
    )


def _problem(job: Job, job_dir: pathlib.Path | None, versions: str) -> str:
    """Returns what keeps a node from writing the job's shards; runs on the node.

    Args:
        job: The job.
        job_dir: The folder of the job, if the node must have access.
        versions: Versions on the host of the command.
    """
    if (found := _versions()) != versions:
        return f"must have {versions}, got {found}. Install the same on every node."
    try:
        lossless.require(job.policy)
    except ValueError as error:
        return f"lacks a library: {error}"
    if job.input_dir.is_local and not job.input_dir.path.is_dir():
        return f"does not see the input {job.input_dir.shown}. Mount it there."
    if job_dir is not None and not (job_dir / replace.JOB_NAME).exists():
        return (
            f"does not see the output {job_dir.parent.parent} as the host of the "
            "command does. Mount it there, or give the URL of an object store."
        )
    return ""


def _versions() -> str:
    """Returns the versions that decide which bytes are written."""
    return f"tfpipe {tfpipe.__version__} and Pillow {PIL.__version__}"


def _largest(plans: Sequence[ShardPlan], number: int) -> list[ShardPlan]:
    """Returns the shards that need the most room of those written at the same time."""
    return heapq.nlargest(number, plans, key=lambda plan: plan.room(shrinks=False))


def _write(
    job: Job, job_dir: pathlib.Path, task: write_shard.Task
) -> write_shard.Written:
    """Writes a shard as the job says. Runs in worker processes."""
    write = job.writer or write_shard.write_shard
    written: write_shard.Written = write(job, job_dir, task)
    return written


def _write_and_upload(
    job: Job, job_dir: pathlib.Path, task: write_shard.Task
) -> write_shard.Written:
    """Writes a shard, and moves it to the URL of the job. Runs in worker processes."""
    written = _write(job, job_dir, task)
    assert job.files is not None, "only a job that writes to a URL uploads"
    at_url.move(job.files, job_dir, written.shard.name)
    return written


def _forget_changed(
    job: Job, plans: Sequence[ShardPlan], job_dir: pathlib.Path
) -> None:
    """Makes shards incomplete whose images changed after the shard was written."""
    markers = changed.by_times(job.input_dir, plans, job_dir)
    if job.check_inputs == "digest":
        known = work_dir.completed(plans, job_dir)
        names = changed.by_digest(job, plans, known)
        markers += [write_shard.marker_path(job_dir / name) for name in names]
    work_dir.forget(markers, job_dir)


class _BadLimit:
    """Ends a run as soon as more images were left out than `max_bad` allows."""

    def __init__(self, max_bad: float | None, num_images: int) -> None:
        fraction = max_bad is not None and max_bad < 1
        self._limit = max_bad * num_images if fraction and max_bad else max_bad
        self._reasons: collections.Counter[str] = collections.Counter()

    def add(self, written: write_shard.Written) -> None:
        self._reasons.update(reject["reason"] for reject in written.rejects)
        num_bad = self._reasons.total()
        if self._limit is not None and num_bad > self._limit:
            first = written.rejects[0]
            raise ValueError(
                f"--max_bad allows {self._limit:g} images to be left out, got "
                f"{num_bad} so far: {dict(self._reasons)}. The first one of the last "
                f"shard is {first['name']}: {first['detail']}."
            )


def require_space(
    output_dir: pathlib.Path,
    plans: Sequence[ShardPlan],
    num_complete_bytes: int,
    *,
    shrinks: bool = False,
) -> None:
    """Checks before the start that the shards still to be written fit on the disk.

    Args:
        output_dir: Folder of the shards.
        plans: The shards.
        num_complete_bytes: Bytes of their images on the disk already.
        shrinks: Whether images are made smaller. Then only the bytes that a record adds
            to its image are sure to be written.

    Raises:
        OSError: If the shards do not fit.
    """
    needed = sum(plan.room(shrinks=shrinks) for plan in plans)
    if not shrinks:
        needed -= num_complete_bytes
    free = shutil.disk_usage(output_dir).free
    if needed > free:
        raise OSError(
            f"{output_dir} needs {needed / 1e9:.2f} GB for the shards still to be "
            f"written, got {free / 1e9:.2f} GB free. Make room or choose another disk."
        )
