"""Options of every run on a data set: the data set, the way to read, the model.

In: the values of the flags. Out: a `DataAccess`, checked for contradictions. tfpipe
reads the files in place, through a shard cache, or with tensorflow-io.
"""

import functools
import os
import pathlib
from typing import Any, Literal

import tfpipe
from benchmarks.models import catalog
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
        """Returns the argument `shard_cache` of a source.

        Args:
            directory: Folder of the cache; None is --shard_cache_dir.
        """
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
