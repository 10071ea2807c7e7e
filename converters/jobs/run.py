"""Run a plan: write the shards that are not complete yet, then finish the data set.

In: a `Job`. Out: a complete data set in the output folder, or an exception and a
working folder from which the same job goes on. A job can be shared by several tasks on
several hosts that see the output folder: each writes its own shards, and the last one
finishes.
"""

import collections
import contextlib
import dataclasses
import functools
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import xxhash

import tfpipe
from converters.engines import processes
from converters.images import policy as policy_images
from converters.inputs import ilsvrc
from converters.inputs.boxes import Boxes, read_boxes
from converters.inputs.classes import Class
from converters.jobs import changed, output, publish, work_dir, write_shard
from converters.jobs.plan import ShardPlan
from tfpipe.shards import index

_REPAIR_DIR_NAME = ".repairing"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One conversion.

    Attributes:
        command: Which command line it comes from.
        name: Name of the data set.
        input_dir: Folder that the images' files are relative to.
        output_dir: Where the data set goes; made if it is not there.
        plans: The shards to write, in order.
        classes: All classes in label order.
        policy: What to do about each kind of image.
        options: What else decides the bytes, for the index; JSON values.
        boxes_of: Boxes of an image by name.
        ignored: Files left out by reason, for the index.
        left_out: Those files by name, as in rejects.jsonl.
        dropped: Images left out before the plan was made, as in rejects.jsonl.
        num_workers: Processes that write shards.
        overwrite: Whether to replace a data set that is there.
        fsync: Whether shards are on the disk before they are called complete.
        max_bad: How many images may be left out: a count from 1 on, a fraction below
            1; None is any number.
        check_inputs: How to see that an image of a complete shard has changed: by its
            "times" or its "digest".
        task_index: Which of the tasks this process is.
        num_tasks: How many tasks share the job.
        finalize: Whether to write no shard but only finish what the tasks wrote.
    """

    command: str
    name: str
    input_dir: pathlib.Path
    output_dir: pathlib.Path
    plans: Sequence[ShardPlan]
    classes: Sequence[Class]
    policy: policy_images.Policy = dataclasses.field(
        default_factory=policy_images.Policy
    )
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    boxes_of: Callable[[str], Sequence[write_shard.Box]] = lambda name: ()
    ignored: Mapping[str, int] = dataclasses.field(default_factory=dict)
    left_out: Sequence[Mapping[str, str]] = ()
    dropped: Sequence[Mapping[str, str]] = ()
    num_workers: int = 1
    overwrite: bool = False
    fsync: bool = True
    max_bad: float | None = None
    check_inputs: Literal["times", "digest"] = "times"
    task_index: int = 0
    num_tasks: int = 1
    finalize: bool = False

    def __post_init__(self) -> None:
        if self.num_workers < 1:
            raise ValueError(f"num_workers must be >= 1, got {self.num_workers}.")
        if not 0 <= self.task_index < self.num_tasks:
            raise ValueError(
                f"--task_index must be 0 to --num_tasks - 1 = {self.num_tasks - 1}, "
                f"got {self.task_index}."
            )
        if self.max_bad is not None and not self.max_bad >= 0:  # nan too
            raise ValueError(f"--max_bad must be >= 0, got {self.max_bad}.")

    @functools.cached_property
    def identity(self) -> str:
        """What tells the job from any other one."""
        return work_dir.identity(self.description)

    @functools.cached_property
    def description(self) -> dict[str, Any]:
        """What decides the bytes that are written; another one is another job."""
        digest, num_bytes = xxhash.xxh3_128(), 0
        for plan in self.plans:
            lines = [
                f"{plan.name} {image.name} {image.num_bytes} {image.class_index}\n"
                for image in plan.images
            ]
            digest.update("".join(lines).encode(errors="surrogateescape"))
            num_bytes += sum(image.num_bytes for image in plan.images)
        labels = [(item.label, item.synset, item.text) for item in self.classes]
        return {
            "command": self.command,
            "version": tfpipe.__version__,
            "options": dict(self.options) | {"policy": dataclasses.asdict(self.policy)},
            "classes": xxhash.xxh3_128_hexdigest(repr(labels).encode()),
            "input": {
                "num_images": sum(len(plan.images) for plan in self.plans),
                "num_bytes": num_bytes,
                "digest": digest.hexdigest(),
            },
        }


def run(
    job: Job, *, on_span: Callable[[processes.Span], object] = id
) -> index.Index | None:
    """Converts, and returns the index; None while other tasks have shards to write.

    Args:
        job: The conversion.
        on_span: Called with when each shard was written, and what it took.

    Raises:
        ValueError: If the output folder holds something else, an image is bad and the
            policy is to fail, or too many are.
        OSError: If a file cannot be read or written, or a cut-off conversion not ended.
        BadIndexError: If the data set to replace has an index that cannot be read.
        KeyboardInterrupt: On Ctrl-C and SIGTERM.
    """
    with processes.terminate_as_interrupt():
        if (done := publish.already_published(job)) is not None:
            return done
        before = publish.index_state(job.output_dir)
        made = not job.output_dir.exists()
        with work_dir.open_work_dir(
            job.output_dir,
            job.description,
            task=job.task_index,
            restart=job.overwrite,
            names=[plan.name for plan in job.plans],
            fsync=job.fsync,
        ) as job_dir:
            try:
                return _complete(job, job_dir, on_span)
            except FileNotFoundError:
                if job_dir.exists():
                    raise
                return publish.published(job, before)
            except ValueError:
                # The same input would fail again: there is nothing to go on from.
                if job.num_tasks == 1:
                    work_dir.drop(job_dir)
                    if made:
                        _remove_if_empty(job.output_dir)
                raise


def _remove_if_empty(folder: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _complete(
    job: Job, job_dir: pathlib.Path, on_span: Callable[[processes.Span], object]
) -> index.Index | None:
    if job.finalize:
        _require_complete(job, job_dir)
    else:
        _write_missing(job, job_dir, on_span)
    return publish.finish(job, job_dir)


def _require_complete(job: Job, job_dir: pathlib.Path) -> None:
    done = work_dir.completed(job.plans, job_dir)
    missing = [plan.name for plan in job.plans if plan.name not in done]
    if missing:
        raise OSError(
            f"--finalize needs all {len(job.plans)} shards in {job_dir}, "
            f"{len(missing)} are missing, the first is {missing[0]}. "
            "Run the tasks that did not end."
        )


def _write_missing(
    job: Job, job_dir: pathlib.Path, on_span: Callable[[processes.Span], object]
) -> None:
    """Writes this task's shards that no earlier run completed."""
    mine = job.plans[job.task_index :: job.num_tasks]
    stale = work_dir.outdated(job.input_dir, mine, job_dir)
    if job.check_inputs == "digest":
        known = work_dir.completed(mine, job_dir)
        names = changed.find(job.input_dir, mine, known, job.policy, job.num_workers)
        stale += [write_shard.marker_path(job_dir / name) for name in names]
    work_dir.forget(stale, job_dir)
    done = work_dir.completed(mine, job_dir)
    missing = [plan for plan in mine if plan.name not in done]
    if not missing:
        return
    policy = job.policy
    shrinks = policy.squeezes or (policy.max_side or policy.short_side) is not None
    output.require_space(job.output_dir, missing, 0, shrinks=shrinks)
    settings = write_shard.Settings(
        input_dir=job.input_dir,
        work_dir=job_dir,
        classes=job.classes,
        policy=policy,
        fsync=job.fsync,
        job=job.identity,
        task=job.task_index,
    )
    limit = _BadLimit(job.max_bad, sum(len(plan.images) for plan in mine))
    for written in done.values():
        limit.add(written)
    try:
        processes.run(
            functools.partial(write_shard.write_shard, settings),
            [write_shard.Task(plan, _boxes(job, plan)) for plan in missing],
            num_workers=job.num_workers,
            num_images=sum(len(plan.images) for plan in missing),
            on_result=limit.add,
            on_span=on_span,
        )
    finally:
        work_dir.sweep(job_dir)  # what a worker left that was killed


def _boxes(job: Job, plan: ShardPlan) -> dict[str, Sequence[write_shard.Box]]:
    found = ((image.name, job.boxes_of(image.name)) for image in plan.images)
    return {name: boxes for name, boxes in found if boxes}


class _BadLimit:
    """Ends a run as soon as more images were left out than may be."""

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
                f"{num_bad} so far: {dict(self._reasons)}. The last shard's first is "
                f"{first['name']}: {first['detail']}."
            )


def rewrite(
    data_dir: pathlib.Path,
    input_dir: pathlib.Path,
    names: Sequence[str],
    num_workers: int,
) -> None:
    """Rebuilds shards of a data set from its input, byte for byte as they were.

    The catalog says which images a shard holds, so the plan is not needed.

    Raises:
        ValueError: If the input no longer gives a shard that the index describes.
        OSError: If a file cannot be read or written.
    """
    known = index.load(data_dir)
    # No conversion replaces the data set meanwhile.
    with work_dir.claimed(data_dir) as claimed, _repair_dir(data_dir) as repair_dir:
        work_dir.end_cut_off(claimed, give_up=False, fsync=True)
        if index.load(data_dir) != known:
            raise OSError(f"{data_dir} was replaced just now. Check it again.")
        settings = write_shard.Settings(
            input_dir=input_dir,
            work_dir=repair_dir,
            classes=[
                Class(label, synset, text)
                for label, (synset, text) in enumerate(known.classes, known.label_base)
            ],
            policy=policy_images.policy_of(known.made_by["options"]["policy"]),
            fsync=True,
        )
        boxes = read_boxes(input_dir, num_workers=num_workers)
        tasks = _tasks_from_catalog(data_dir, input_dir, known, names, boxes)
        processes.run(
            functools.partial(_rewrite_shard, settings, data_dir),
            tasks,
            num_workers=num_workers,
            num_images=sum(len(task.plan.images) for task, _ in tasks),
        )


@contextlib.contextmanager
def _repair_dir(data_dir: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder for the shards of a repair, without what a killed one left in it."""
    folder = data_dir / _REPAIR_DIR_NAME
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ValueError(
            f"{folder} must be a folder of its own, got a link or a file. What is "
            "behind it is not touched. Move it away."
        )
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _rewrite_shard(
    settings: write_shard.Settings,
    data_dir: pathlib.Path,
    work: tuple[write_shard.Task, index.Shard],
) -> None:
    """Writes one shard again and puts it in place if it is what the index says."""
    task, expected = work
    written = write_shard.write_shard(settings, task).shard
    if written != expected:
        raise ValueError(
            f"{settings.input_dir} no longer gives shard {expected.name}: it must have "
            f"digest {expected.digest}, got {written.digest}. The input has changed "
            "since the conversion; convert it again."
        )
    os.replace(settings.work_dir / written.name, data_dir / written.name)
    index.sync_folder(data_dir)


def _tasks_from_catalog(
    data_dir: pathlib.Path,
    input_dir: pathlib.Path,
    known: index.Index,
    names: Sequence[str],
    boxes: Boxes,
) -> list[tuple[write_shard.Task, index.Shard]]:
    columns = ["shard", "label", "filename"]
    tasks = []
    for split, entries in known.splits.items():
        rows = index.load_catalog(data_dir, split, columns)
        for number, entry in enumerate(entries):
            if entry.name not in names:
                continue
            mine = rows["shard"] == number
            labels = rows["label"][mine] - known.label_base
            found = ilsvrc.locate(input_dir, rows["filename"][mine], labels)
            plan = ShardPlan(split, number, entry.name, found)
            of_images = {image.name: boxes.of(image.name) for image in found}
            tasks.append((write_shard.Task(plan, of_images), entry))
    return tasks
