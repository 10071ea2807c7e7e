"""The job: a conversion, with everything for its tasks and workers to know.

In: a plan, the classes and the options of a command. Out: a frozen `Job` and its
identity. Nothing is read or written here.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import xxhash

import tfpipe
from converters.engines import ray_cluster
from converters.images import lossless
from converters.images.policy import Policy
from converters.inputs.classes import Class
from converters.inputs.image import Box
from converters.jobs.more_columns import MoreColumns
from converters.jobs.plan import ShardPlan
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.shards import index


def no_boxes(name: str) -> Sequence[Box]:
    """Returns the boxes of an image in an input without bounding boxes."""
    return ()


# Flag of the output folder of most commands.
OUTPUT_FLAG = "--output_dir"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A conversion.

    A pickled job holds only the fields for a worker process: see `__getstate__`.

    Attributes:
        command: Module of the command.
        name: Name of the data set.
        input_dir: Folder to which the files of the images are relative.
        states: State of each file in that folder that holds many images, when it was
            listed.
        num_rows: Number of rows, records or samples of the input, if it has such.
        output_dir: Folder of the data set, made if missing. With `files`, the folder in
            which the files of the data set are made.
        output_flag: Flag of the output folder, for errors.
        files: URL of the data set, if any: the files are uploaded there.
        plans: The shards to write, in order.
        classes: All classes in label order.
        policy: The decisions about kinds of images.
        options: Other options behind the bytes, for the index; JSON values.
        made_by: More about the making of the data set, for the index; JSON values.
        writer: Function to write a shard from a job, its folder and a task, and to
            return a description of the shard; None is `write_shard.write_shard`.
        entered: Splits for which `writer` writes entry points. Without `writer` the
            policy decides.
        boxes_of: Returns the bounding boxes of an image, by its name.
        more_columns: More columns of the catalog and features of the records, if any.
        ignored: Number of files left out, by reason, for the index.
        left_out: The same files by name, as lines of rejects.jsonl.
        label_reason: Why the labels begin where they do, for people.
        dropped: Images left out before the plan was made, as lines of rejects.jsonl.
        num_workers: Number of processes to write shards, >= 1.
        cluster: Where shards are written, if not in processes of the host.
        overwrite: Whether a data set in the output folder may be replaced.
        fsync: Whether only a shard on the disk counts as complete.
        max_bad: How many images may be left out: a count from 1 on, or a fraction below
            1; None allows any number.
        check_inputs: How to find images changed after the writing of their shard: by
            their "times" or by their "digest".
        strict: Whether nothing is published if an image is in two splits.
        task_index: Number of the process among the tasks, from 0.
        num_tasks: Number of tasks of the job.
        finalize: Whether to write no shard, and only publish the shards of the tasks.

    Raises:
        ValueError: If a number is out of range, or the policy needs a library that is
            not built.
    """

    command: str
    name: str
    input_dir: Location
    output_dir: pathlib.Path
    output_flag: str = OUTPUT_FLAG
    plans: Sequence[ShardPlan]
    classes: Sequence[Class]
    states: Mapping[str, str] = dataclasses.field(default_factory=dict)
    num_rows: int | None = None
    files: Files | None = None
    policy: Policy = dataclasses.field(default_factory=Policy)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    made_by: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    writer: Callable[..., Any] | None = None
    entered: Collection[str] = ()
    boxes_of: Callable[[str], Sequence[Box]] = no_boxes
    more_columns: MoreColumns | None = None
    ignored: Mapping[str, int] = dataclasses.field(default_factory=dict)
    left_out: Sequence[Mapping[str, str]] = ()
    dropped: Sequence[Mapping[str, str]] = ()
    label_reason: str = ""
    num_workers: int = 1
    cluster: ray_cluster.Cluster | None = None
    overwrite: bool = False
    fsync: bool = True
    max_bad: float | None = None
    check_inputs: Literal["times", "digest"] = "times"
    strict: bool = False
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
        if self.writer is None:  # others prepare no image
            lossless.require(self.policy)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the fields for pickle, without the parent process's own fields.

        A worker gets the plan and the boxes of a shard with the task of the shard.
        The plans and boxes of all shards would be sent to every worker.
        """
        unused = {"plans": (), "boxes_of": no_boxes, "left_out": (), "dropped": ()}
        return {**vars(self), "identity": self.identity, **unused}

    def has_entry_points(self, split: str) -> bool:
        """Whether a file with the entry points of a split is written."""
        if self.writer is None:
            return self.policy.entry_points
        return split in self.entered

    @functools.cached_property
    def identity(self) -> str:
        """Digest of the description: two jobs are the same if their digests are
        equal."""
        return identity_of(self.description)

    @functools.cached_property
    def description(self) -> dict[str, Any]:
        """Everything behind the written bytes, as JSON values."""
        digest, num_bytes = xxhash.xxh3_128(), 0
        for plan in self.plans:
            lines = [
                f"{plan.name} {image.name} {image.num_bytes} {image.class_index}\n"
                for image in plan.images
            ]
            digest.update("".join(lines).encode(errors="surrogateescape"))
            num_bytes += plan.num_input_bytes
        labels = [(item.label, item.synset, item.text) for item in self.classes]
        return {
            **self.made_by,
            "command": self.command,
            "version": tfpipe.__version__,
            "options": dict(self.options) | {"policy": dataclasses.asdict(self.policy)},
            "classes": xxhash.xxh3_128_hexdigest(repr(labels).encode()),
            "input": {
                "num_images": sum(plan.num_images for plan in self.plans),
                "num_bytes": num_bytes,
                "digest": digest.hexdigest(),
            },
        }


def identity_of(description: Mapping[str, Any]) -> str:
    """Returns a digest of the description of a job, of JSON values."""
    return index.digest(json.dumps(description, sort_keys=True))


def differences(
    before: Mapping[str, Any], wanted: Mapping[str, Any], *, prefix: str = ""
) -> list[str]:
    """Returns `name was x, is y` for all different values, at any depth."""
    texts = []
    for key in sorted({*before, *wanted}):
        old, new = before.get(key), wanted.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            texts += differences(old, new, prefix=f"{prefix}{key}.")
        elif old != new and (named := _DIGESTS.get(f"{prefix}{key}")):
            texts.append(f"{named} differ")
        elif old != new:
            texts.append(f"{prefix}{key} was {old!r}, is {new!r}")
    return texts


# Values without a meaning for people, with names for their contents.
_DIGESTS = {
    "input.digest": "names, sizes, classes or shards of the images",
    "classes": "names or labels of the classes",
    "source.index_digest": "records of the source",
    "source": "records of the source",
    "subset": "records of the subset",
    "options.chosen": "the chosen records",
}


def changes_since(made_by: Mapping[str, Any], description: Mapping[str, Any]) -> str:
    """Returns how a job differs from the job of an index; the index says more.

    Args:
        made_by: Member of an index or of an export.
        description: Description of the job, or some of its members.

    Returns:
        A text for people; empty if nothing differs.
    """
    wanted = json.loads(json.dumps(description))  # a tuple is a list in JSON
    before = {key: made_by[key] for key in wanted if key in made_by}
    return "; ".join(differences(before, wanted))
