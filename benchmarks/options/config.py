"""The options of runs: the data set, the way to read, the model, and what is compared.

In: the values of the flags. Out: a frozen `Config` of benchmarks.train, checked for
contradictions, which the result holds as JSON; its bases are for other commands too.
tfpipe reads the files in place, through a shard cache, or with tensorflow-io.
"""

import dataclasses
import functools
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any, Literal

import tfpipe
from benchmarks.models import accelerators, catalog
from benchmarks.models.accelerators import Figure
from benchmarks.page_cache import states
from benchmarks.planning import published
from benchmarks.results import gates
from tfpipe import cli

# Groups of flags of several commands.
GROUPS = (
    *("What to run", "How long", "Where the records are", "How the input is made"),
    *("How the model computes", "An accelerator in place of the model"),
    *("What is compared and required", "What is kept", "When something goes wrong"),
)
RUN, LENGTH, RECORDS, INPUT, MODEL, EMULATED, COMPARED, KEPT, WRONG = map(
    cli.group, GROUPS
)

# A flag of commands without a data set too.
report_dir = functools.partial(
    cli.flag,
    None,
    "Folder for the result (JSON), for benchmarks.report. benchmarks.train also writes "
    "a picture of the first batch there.",
)


def shared_cache_dir(cache: str, **more: Any) -> Any:
    """Makes the field of --shared_cache_dir beside the flag of a shard cache."""
    return cli.flag(
        None,
        "Folder on a file system that all hosts share, such as Lustre or JuiceFS. A "
        f"host looks there for what {cache} lacks, and each byte of the "
        "shards is fetched once for all hosts. Default: each host fetches for itself.",
        **more,
    )


shared_cache_max_gb = functools.partial(
    cli.flag,
    None,
    "Most GB of --shared_cache_dir for the split, the same for all hosts: the start of "
    "the split is kept. Default: no limit.",
    above=0,
    needs="--shared_cache_dir",
)


# The flags of caches of the shards, for tables of unused flags.
OF_CACHES = "shard_cache_dir shard_cache_max_gb shared_cache_dir shared_cache_max_gb"


def unused(*rows: tuple[str, Callable[[Any], Any], str]) -> tuple[cli.Unused, ...]:
    """Returns a table of flags by the reason and the condition to refuse them."""
    return tuple(cli.Unused(why, when, (*names.split(),)) for why, when, names in rows)


# A pipeline of the user may read a store.
UNUSED_STORE = cli.Unused(
    "A run without a URL",
    lambda c: not (c.is_remote or getattr(c, "pipeline", None)),
    ("store_connections", "store_time_limit"),
)


@cli.options
class DataAccess(cli.StoreOptions):
    """A data set and the way to its shards."""

    data_dir: str | None = RUN(
        None,
        "Folder or URL of a converted data set. It holds an index.json; a URL begins "
        "with s3://, gs://, az://, abfs://, http(s):// or hdfs://.",
        url=True,
    )
    read_from: Literal["auto", "direct"] = RECORDS(
        "auto",
        "How the shards are read. auto: a folder is read in place, a URL through the "
        "shard cache. direct: a URL is read with tensorflow-io, and nothing is kept.",
    )
    shard_cache_dir: str | None = RECORDS(
        None,
        "Folder on a local disk of each host, for a cache of the shards. The shards of "
        "a URL, or of a folder such as a shared mount, are read through the cache. "
        "Default for a URL: $TFPIPE_SHARD_CACHE, or ~/.cache/tfpipe/shards.",
        needs="--data_dir",
    )
    shard_cache_max_gb: float | None = RECORDS(
        None,
        "Most GB of --shard_cache_dir on a host. Default: 80 % of the free room.",
        above=0,
        needs="--shard_cache_dir",
    )
    shared_cache_dir: str | None = shared_cache_dir(
        "--shard_cache_dir", group=GROUPS[2], needs="--shard_cache_dir"
    )
    shared_cache_max_gb: float | None = shared_cache_max_gb(group=GROUPS[2])

    def __post_init__(self) -> None:
        if self.read_from == "direct":
            cli.refuse(self, "--read_from=direct", "shard_cache_dir")
            if not self.is_remote:
                raise ValueError(
                    "--read_from=direct must have a URL as --data_dir, got "
                    f"{self.data_dir}. A folder is read in place without the flag."
                )
        if self.location is not None and not self.location.is_local:
            tfpipe.Files(self.location)  # a package or a setting may be missing

    @functools.cached_property
    def location(self) -> tfpipe.Location | None:
        """The location of the data set; None without a data set."""
        if self.data_dir is None:
            return None
        return tfpipe.Location.from_user("--data_dir", self.data_dir)

    @property
    def is_remote(self) -> bool:
        return self.location is not None and not self.location.is_local

    @property
    def has_shard_cache(self) -> bool:
        is_fetched = self.is_remote and self.read_from == "auto"
        return is_fetched or self.shard_cache_dir is not None

    @property
    def is_read_in_place(self) -> bool:
        """Whether the shards are files, read without a copy."""
        return self.data_dir is not None and not (
            self.has_shard_cache or self.is_remote
        )

    def shard_cache(
        self, directory: pathlib.Path | None = None
    ) -> tfpipe.ShardCache | Literal["auto", "direct"]:
        """Returns the `shard_cache` of a source; no directory is --shard_cache_dir."""
        folder = directory or self.shard_cache_dir
        if folder is None:
            return self.read_from
        sizes = (self.shard_cache_max_gb, self.shared_cache_max_gb)
        most, shared_most = (None if gb is None else int(gb * 1e9) for gb in sizes)
        return tfpipe.ShardCache(
            os.fspath(folder),
            max_bytes=most,
            shared_directory=self.shared_cache_dir,
            shared_max_bytes=shared_most,
        )


@cli.options
class DataOptions(DataAccess):
    """Options of every run on a data set."""

    model: str = RUN(
        "resnet50", "Model to train or evaluate.", choices=sorted(catalog.MODELS)
    )
    image_size: int | None = RUN(
        None,
        "Height and width of the images in pixels. Default: the model's own.",
        least=32,
    )
    batch_size: int | None = RUN(
        None, "Examples in a batch of each rank. Default: the model's own.", least=1
    )
    seed: int = INPUT(
        0, "Seed of weights, order and augmentation; the same on all ranks.", least=0
    )
    tuning: str | None = INPUT(
        None,
        "JSON file of a tuning. benchmarks.input writes the file, benchmarks.train "
        "reads it.",
        shown="FILE",
    )
    whole_batches: bool | Literal["auto"] = INPUT(
        "auto",
        "Decode and crop whole batches at once. The batches are the same, and cost "
        "less with the native op; each parallel call takes the memory of a batch. "
        "auto: yes where it pays; the result says what ran, and print(pipeline) why.",
        choices={"auto": "auto", "yes": True, "no": False},
    )
    report_dir: str | None = report_dir(group="What is kept")


@cli.options
class Config(DataOptions):
    """The options of a run."""

    mode: Literal["train", "eval", "infer"] = RUN(
        "train",
        "What the model does. train: optimize on the train split; the steps are timed. "
        "eval: accuracy on the validation split, every record once, of the newest "
        "checkpoint. infer: the model forward only, on the validation split again and "
        "again, timed.",
    )
    synthetic: bool = RUN(
        False, "Feed one random batch again and again instead of real data."
    )
    num_steps: int | None = LENGTH(
        None,
        "Timed steps, after the warm-up steps. Default: one epoch; 100 with "
        "--synthetic.",
        least=1,
    )
    num_epochs: int | None = LENGTH(
        None, "Epochs to train, those of a restored checkpoint included.", least=1
    )
    num_warmup_steps: int | None = LENGTH(
        None,
        "First steps, which are not timed. Default: until the records that were read "
        "ahead are used, at least 10; a tenth of all steps if epochs are too short.",
        least=0,
    )
    find_batch_size: bool = MODEL(
        False,
        "Run with the largest batch that fits in the memory of every GPU. Random "
        "images are tried first: the batch doubles, and then the gap halves.",
    )
    ram_cache: Literal["records", "images"] | None = RECORDS(
        None,
        "Keep the split in the memory of each rank, filled before the first step. "
        "records: as they are in the shards. images: decoded and resized once; crops "
        "for training are then parts of these smaller images.",
    )
    affinity: int | None = INPUT(
        None,
        "Epochs for which a host reads, and keeps in its shard cache, the same part of "
        "the records. Default: every host reads other records in each epoch.",
        least=1,
    )
    on_error: Literal["raise", "skip"] = INPUT(
        "raise",
        "What happens at a damaged record or image. raise: stop and name it. skip: "
        "leave it out, and count and name it in the result.",
    )
    max_faults: int = INPUT(
        100, "Most records that --on_error=skip may skip on a rank.", least=0
    )
    precision: Literal["float32", "bfloat16", "float16"] = MODEL(
        "float32",
        "Type that the model computes in. Weights stay float32; float16 scales the "
        "loss.",
    )
    data_format: Literal["NHWC", "NCHW"] = MODEL(
        "NHWC", "Channels last or first in the model. NCHW needs a GPU or --xla."
    )
    xla: bool = MODEL(False, "Compile the step with XLA.")
    fp16_allreduce: bool = MODEL(
        False, "Average the gradients over ranks as float16: half of the bytes."
    )
    as_nvidia: bool = MODEL(
        False,
        "Compute as NVIDIA's example of ResNet-50 does. Stands for "
        "--precision=float16 --xla --fp16_allreduce, channels last as Tensor Cores "
        "like them, TF_GPU_THREAD_MODE=gpu_private, and inter-op threads for the cores "
        "of a rank. Your --precision is kept.",
    )
    learning_rate: float | None = MODEL(
        None,
        "Peak learning rate for a global batch of 256. It is scaled linearly with the "
        "global batch. Default: the model's own.",
        least=0,
    )
    num_classes: int | None = MODEL(
        None,
        "Outputs of the model. Default: the classes of the data set; 1000 with "
        "--synthetic.",
        least=1,
    )
    emulate: str | None = EMULATED(
        None,
        "Replace the model by its step time on this accelerator. Any of "
        f"{', '.join(published.NAMES)}, or a name in "
        "--accelerators_file. The result says where the figure was published, or from "
        "which figure it is scaled. The input path and the copy to the device stay "
        "real.",
    )
    accelerators_file: str | None = EMULATED(
        None,
        "JSON or TOML file of other accelerators for --emulate. Its form: "
        '{"NAME": {"source": "TEXT", "train": {"MODEL": IMAGES_PER_SECOND}, '
        '"infer": {}}}.',
        needs="--emulate",
    )
    step_time_ms: float | None = EMULATED(
        None, "Replace the model by this step time, in milliseconds.", least=0
    )
    read_only: bool = EMULATED(
        False,
        "Read records and decode none of them, as storage benchmarks do. Goes with "
        "--emulate or --step_time_ms.",
    )
    cache: str = COMPARED(
        "as_is",
        "State of the page cache for the files of the split. cold empties it at the "
        "start, when the timing begins and after each epoch; warm fills it at the "
        "start. With --shard_cache_dir it is the state of that cache: cold begins with "
        "an empty one in a folder of its own, and removes it; warm fetches the whole "
        "split first. A run in which a timed epoch was in another state ends with an "
        "error.",
        choices=states.STATES,
    )
    bars: bool = COMPARED(
        False,
        "Also measure the input alone and the model on synthetic data. The command "
        "prints which of them limits the run.",
    )
    repeat: int = COMPARED(
        1,
        "Number of runs; the result is that of the median speed. The runs should agree "
        "within 5 %.",
        least=1,
    )
    link_gbps: float | None = COMPARED(
        None,
        "Speed of a host's network each way in Gbit/s, for the gate network. Default: "
        "that of its interfaces, if they tell it.",
        above=0,
    )
    require: tuple[str, ...] = COMPARED(
        (),
        "Gates that the result must meet, such as stall<=3%,au>=0.9. Another example: "
        "real/synthetic>=0.97. The exit code is 2 if a gate is not met. The metrics: "
        f"{', '.join(gates.METRICS)}.",
    )
    checkpoint_dir: str | None = KEPT(
        None,
        "Save the model here after each epoch. A run resumes from the newest "
        "checkpoint here.",
    )
    trace_steps: str | None = KEPT(
        None,
        "First step and step after the last, such as 20:25, for a trace of rank 0 by "
        "TensorFlow's profiler. Steps count from 0, with the warm-up. Traced steps are "
        "slower. TensorBoard shows the folder trace of --report_dir.",
        shown="A:B",
        needs="--report_dir",
    )
    rank_timeout: float = WRONG(
        300.0,
        "Seconds that a rank may go without a step. Then the run ends with an error.",
        least=1,
    )
    elastic: bool = WRONG(
        False,
        "Continue without a rank that dies. Needs horovodrun with --min-np and "
        "--host-discovery-script, and --num_epochs.",
    )
    allow_nan: bool = WRONG(
        False,
        "Train on although the loss is NaN or infinite, and mark the result. Default: "
        "end with an error that names step and rank.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        cli.refuse_unused(self, _CONTRADICTIONS)
        if self.synthetic == (self.data_dir is not None):
            raise ValueError(
                "One of --data_dir and --synthetic must be given, and not both; got "
                f"{'both' if self.synthetic else 'none'}."
            )
        if self.mode == "eval" and (self.synthetic or self.checkpoint_dir is None):
            raise ValueError(
                "--mode=eval must have --data_dir and --checkpoint_dir: it measures "
                "the accuracy of a trained model on real records."
            )
        if self.trace_steps is not None and not self.traced_steps:
            raise ValueError(
                "--trace_steps must be two numbers A:B with 0 <= A < B, got "
                f"{self.trace_steps}."
            )
        has_cache = self.is_read_in_place or self.shard_cache_dir is not None
        if self.cache != "as_is" and not has_cache:
            raise ValueError(
                f"--cache={self.cache} is the state of the page cache or of "
                "--shard_cache_dir, and there must be files or a shard cache; got "
                f"data_dir={self.data_dir}, synthetic={self.synthetic}."
            )

    @property
    def traced_steps(self) -> range | None:
        """The steps of --trace_steps; None without the flag."""
        if self.trace_steps is None:
            return None
        match = re.fullmatch(r"(\d+):(\d+)", self.trace_steps)
        return range(*map(int, match.groups())) if match else range(0)

    @property
    def is_emulated(self) -> bool:
        return self.emulate is not None or self.step_time_ms is not None

    @property
    def kind(self) -> str:
        """Whether the run is "real", "synthetic" (no records) or "emulated"."""
        if self.is_emulated:
            return "emulated"
        return "synthetic" if self.synthetic else "real"

    @property
    def measured(self) -> set[str]:
        """The part of `gates.NEEDS` that the options give to the run."""
        has = {
            "bars": self.bars,
            "repeats": self.repeat > 1,
            "records": not self.synthetic,
            "learning": self.mode != "infer" and not self.is_emulated,
        }
        return {name for name, is_there in has.items() if is_there}

    def spelled_out(self) -> "Config":
        """Returns the config with the flags that --as_nvidia stands for."""
        if not self.as_nvidia:
            return self
        return dataclasses.replace(
            self,
            precision="float16" if self.precision == "float32" else self.precision,
            xla=True,
            fp16_allreduce=True,
        )

    def find_emulation(self) -> Figure | None:
        """Returns the figure of the accelerator of --emulate; None without the flag."""
        if self.emulate is None:
            return None
        by_name = published.accelerators_with(self.accelerators_file)
        return accelerators.find(by_name, self.emulate, self.model, self.mode)


# The flags that exclude each other: no run can do both.
_CONTRADICTIONS = unused(
    ("A run of --num_steps", lambda c: c.num_steps is not None, "num_epochs"),
    ("--synthetic", lambda c: c.synthetic, "num_epochs bars elastic"),
    ("--synthetic", lambda c: c.synthetic, "read_only ram_cache"),
    ("--mode={mode}", lambda c: c.mode != "train", "elastic"),
    ("--mode=eval", lambda c: c.mode == "eval", "bars emulate step_time_ms"),
    ("A run with --bars", lambda c: c.bars, "checkpoint_dir read_only"),
    (
        "A run with --elastic",
        lambda c: c.elastic,
        "num_steps bars repeat emulate step_time_ms find_batch_size",
    ),
    ("A run with --find_batch_size", lambda c: c.find_batch_size, "batch_size"),
    (
        "A training with --repeat",  # the second would go on where the first ended
        lambda c: c.repeat > 1 and c.mode == "train",
        "checkpoint_dir",
    ),
    ("A run with --trace_steps", lambda c: c.trace_steps, "bars repeat elastic"),
    ("--emulate={emulate}", lambda c: c.emulate, "step_time_ms"),
    ("A real model", lambda c: not c.is_emulated, "read_only"),
    ("An emulated accelerator", lambda c: c.is_emulated, "checkpoint_dir"),
    ("--ram_cache={ram_cache}", lambda c: c.ram_cache, "cache"),
    ("--ram_cache=images", lambda c: c.ram_cache == "images", "read_only"),
    (
        "--ram_cache=images",
        lambda c: c.ram_cache == "images" and c.whole_batches is True,
        "whole_batches",
    ),
)

_OF_TRAINING = "learning_rate allow_nan fp16_allreduce as_nvidia"

# The flags without an effect, by the mode of a run.
UNUSED = (
    UNUSED_STORE,
    *unused(
        ("--mode={mode}", lambda c: c.mode != "train", f"{_OF_TRAINING} affinity"),
        (
            "--mode=eval",
            lambda c: c.mode == "eval",
            "num_steps num_epochs num_warmup_steps seed find_batch_size",
        ),
        (
            "--synthetic",
            lambda c: c.synthetic,
            f"tuning whole_batches on_error max_faults affinity read_from {OF_CACHES}",
        ),
        (
            "An emulated accelerator",
            lambda c: c.is_emulated,
            f"precision data_format xla num_classes find_batch_size {_OF_TRAINING}",
        ),
        ("--read_only", lambda c: c.read_only, "image_size whole_batches"),
        ("--on_error=raise", lambda c: c.on_error == "raise", "max_faults"),
    ),
)


def refuse_unmeasured(config: Config) -> None:
    """Checks that the run can measure the metrics of its gates."""
    required = [gates.Gate.parse(text) for text in config.require]
    gates.refuse_unmeasured(required, config.measured | {"gpu", "link"})
