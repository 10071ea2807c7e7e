"""The flags that several commands have, each defined in one place, and user's paths.

A flag is defined when a command first asks for it by name: a command must not have a
flag that it does not use, and absl refuses to define a flag twice. A command calls
`define`, and then `flags.adopt_module_key_flags` on this module, so that its `--help`
lists the flags. `options_from_flags` makes options of the flags of the same names.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from absl import app, flags

from converters.engines import ray_cluster
from converters.images import policy, shrink
from converters.inputs.files import path_of as path_of
from converters.inputs.tables import columns
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.shards import index

OUTPUT_DIR = "output_dir"
RAY_ADDRESS = "ray_address"
INPUT_DIR, INPUT = "input_dir", "input"
# Flags whose values may be URLs; the commands check these values.
TAKE_URLS = frozenset({OUTPUT_DIR, RAY_ADDRESS, INPUT_DIR, INPUT, "table", "root"})
PROCESSES, RAY = "processes", "ray"

QUALITY_HELP = (
    "Quality of every JPEG that is encoded, 1 to 100. If given, every JPEG is encoded "
    "again and replaces the original where it has fewer bytes. Default: originals "
    f"stay; {shrink.DEFAULT_QUALITY} for images that are scaled down, "
    f"{policy.REENCODE_QUALITY} for images that were not JPEGs. converters.replicate: "
    "quality of the images that --enlarge or --reencode encode, "
    f"{policy.REENCODE_QUALITY} by default."
)


# The help of flags that say how an input is read: one input, or, as NAME=VALUE, each
# source of a merge.
_OF_INPUTS = {
    "image_column": (
        "Column of the images: paths, URLs, bytes or structs. Default: image."
    ),
    "label_column": "Column of the labels. Default: label.",
    "name_column": (
        "Column of the images' names, which must all differ; the catalog has them as "
        "filename. Default: the path, or row-000000001 and so on where there are bytes "
        "alone."
    ),
    "split_column": (
        "Column of the split: train, validation (val, valid, dev) or test. Default: "
        "all images are train, unless --split_fractions divides them."
    ),
    "root": (
        "Folder or URL that paths are relative to and must not leave. Default: the "
        "folder of the input."
    ),
    "query": (
        "SELECT over the table, which it names input; see above. Default: all its rows."
    ),
    "label_from": (
        "Where the class of a sample is: in its part cls, in its part json or in its "
        "key. Default: json if --label_key is given, otherwise cls."
    ),
    "image_part": (
        "Part of a sample that is its image, such as jpg or left.png. Default: the one "
        "that ends as that of an image."
    ),
    "label_key": (
        "Key of the class. In a tar: in the .json part, with dots between the keys of "
        "nested objects; default: label. In TFRecords: feature of the record; default: "
        "image/class/label or label."
    ),
    "image_key": "Feature with the encoded image. Default: image/encoded or image.",
    "name_key": (
        "Feature with the name of the image; an empty text numbers the records. "
        "Default: image/filename, file_name or filename, if a record has one."
    ),
}
# The help of yes-or-no flags; their default is no.
_SWITCHES = {
    "entry_points": policy.ENTRY_POINTS_HELP,
    "overwrite": (
        "Replace what an earlier run left in --output_dir. The old content stays until "
        "the new one is complete."
    ),
    "finalize": (
        "Write no shard, and publish the data set of tasks that have all ended. This "
        "is needed only if the last task died before it published."
    ),
    "dry_run": (
        "Show what would be written and how large it is, and end; writes nothing."
    ),
    "file_in_names": (
        "Let the name of an image begin with that of its file. This is needed if names "
        "come again in other files."
    ),
}
_DEFINITIONS: Mapping[str, Callable[[], object]] = {
    "quality": lambda: flags.DEFINE_integer(
        "quality", None, QUALITY_HELP, lower_bound=1, upper_bound=100
    ),
    INPUT_DIR: lambda: flags.DEFINE_string(
        INPUT_DIR,
        None,
        "Folder with the images as they came, or its URL, such as s3://bucket/raw; see "
        "the layout above.",
    ),
    INPUT: lambda: flags.DEFINE_multi_string(
        INPUT,
        [],
        "What to convert: a file, a pattern with {000..099}, {a,b}, * or ?, a folder, "
        "or the URL of one of these; see above. It may come several times.",
    ),
    OUTPUT_DIR: lambda: flags.DEFINE_string(
        OUTPUT_DIR,
        None,
        "Folder to write to, or its URL, such as s3://bucket/imagenet; "
        "converters.synthesize takes a folder. The result appears in it only when it "
        "is complete.",
        required=True,
    ),
    "work_dir": lambda: flags.DEFINE_string(
        "work_dir",
        None,
        "Folder in which the shards for an --output_dir by URL are made and wait for "
        "their upload. The same command goes on from there. Tasks of several hosts "
        "need one that all of them see. Default: a folder below the system's one for "
        "temporary files.",
    ),
    "seed": lambda: flags.DEFINE_integer(
        "seed",
        0,
        "Seed of every random choice. The same flags and seed write the same bytes.",
        lower_bound=0,
    ),
    "num_workers": lambda: flags.DEFINE_integer(
        "num_workers",
        None,
        "Number of worker processes; does not change what is written. "
        "Default: one for each CPU that this process may use.",
        lower_bound=1,
    ),
    "engine": lambda: flags.DEFINE_enum(
        "engine",
        PROCESSES,
        [PROCESSES, RAY],
        "Where shards are written; does not change what is written. processes: on this "
        "host. ray: on a Ray cluster, see --ray_address, on all its CPUs unless "
        "--num_workers says otherwise; this needs pip install 'tfpipe[ray]'.",
    ),
    RAY_ADDRESS: lambda: flags.DEFINE_string(
        RAY_ADDRESS,
        None,
        "Cluster for --engine=ray: HOST:PORT of its head, ray://HOST:PORT, auto for "
        "the cluster that this host belongs to, or local for one that is started for "
        "this command. Default: RAY_ADDRESS of the environment, else auto, else local.",
    ),
    "fsync": lambda: flags.DEFINE_boolean(
        "fsync",
        True,
        "Wait until each shard is on the disk, so that a power loss costs no complete "
        "shard.",
    ),
    "task_index": lambda: flags.DEFINE_integer(
        "task_index",
        0,
        "Number of this task, from 0 to --num_tasks - 1. Each task writes its own "
        "shards of one plan into the same --output_dir, and the last task to end "
        "publishes the data set.",
        lower_bound=0,
    ),
    "num_tasks": lambda: flags.DEFINE_integer(
        "num_tasks",
        1,
        "Number of tasks, on any hosts, that share the job.",
        lower_bound=1,
    ),
    "splits": lambda: flags.DEFINE_list("splits", [], "Splits to take. Default: all."),
    "on_null": lambda: flags.DEFINE_enum(
        "on_null",
        columns.FAIL,
        [columns.FAIL, columns.SKIP],
        "What to do about a row whose image, label or split is NULL or whose file does "
        "not exist, and about an image in a tar without its .cls or .json: fail, or "
        "leave it out and name it in rejects.jsonl.",
    ),
}


def define(*names: str) -> None:
    """Defines flags of this module, unless another module has asked for them."""
    for name in names:
        if name in flags.FLAGS:
            continue
        if name in _OF_INPUTS:
            flags.DEFINE_multi_string(name, [], _OF_INPUTS[name])
        elif name in _SWITCHES:
            flags.DEFINE_boolean(name, False, _SWITCHES[name])
        else:
            _DEFINITIONS[name]()


def value_of(name: str) -> Any:
    """Returns the value of a flag; lists become tuples.

    Raises:
        UnparsedFlagAccessError: If the command line was not parsed yet.
    """
    value = getattr(flags.FLAGS, name)
    return tuple(value) if isinstance(value, list) else value


Options = TypeVar("Options")


def options_from_flags(kind: type[Options], **own: Any) -> Options:
    """Returns options whose fields have the values of the flags of the same names.

    A flag without a value leaves its field the default.

    Args:
        kind: A dataclass.
        own: Values of the fields that are no flag, or are not the value of their flag.

    Raises:
        ValueError: If values do not fit together.
    """
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in own or field.name in _OF_INPUTS:
            continue
        if (value := value_of(field.name)) is not None:
            own[field.name] = value
    return kind(**own)


def only(name: str) -> str | None:
    """Returns the value of a flag of a command with one input; None if not given.

    Raises:
        app.UsageError: If it was given several times.
    """
    values = getattr(flags.FLAGS, name)
    if len(values) > 1:
        raise app.UsageError(f"--{name} must be given once.")
    return values[0] if values else None


def by_name(
    what: str, words: Sequence[str], *, form: str = "NAME=VALUE", may_be_empty: bool
) -> dict[str, str]:
    """Returns the values of words like NAME=VALUE by their names.

    Args:
        what: The flag or arguments, for errors.
        form: How a word must be, for errors.
        words: The words. No error shows a value: it may be a URL with a password.
        may_be_empty: Whether a value may be an empty text.

    Raises:
        ValueError: If a word has another form, or a name comes twice.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals or "://" in name or not (value or may_be_empty):
            got = "a URL" if "://" in word else repr(word)
            raise ValueError(
                f"{what} must be given as {form}, got {got}. NAME is the name of "
                "a source."
            )
        if name in found:
            raise ValueError(f"{what} must have different names, got {name!r} twice.")
        found[name] = value
    return found


def reader_from_flags(kind: type[Options], **own: Any) -> Options:
    """Returns the reader of one input, whose fields are named as their flags.

    Args:
        kind: A reader.
        own: Values of the fields that are not the value of their flag.

    Raises:
        UsageError: If a flag was given several times.
        ValueError: If values do not fit together.
    """
    fields = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in fields & _OF_INPUTS.keys() - own.keys():
        if (value := only(name)) is not None:
            own[name] = value
    return options_from_flags(kind, **own)


def required_input() -> Sequence[str]:
    """Returns the values of --input.

    Raises:
        UsageError: If the flag was not given.
    """
    if not (values := value_of(INPUT)):
        raise app.UsageError("--input must be given: what to convert.")
    return tuple(values)


def required_input_dir() -> str:
    """Returns the value of --input_dir.

    Raises:
        app.UsageError: If the flag was not given.
    """
    if (value := value_of(INPUT_DIR)) is None:
        raise app.UsageError("--input_dir must be given: the folder to convert.")
    return str(value)


@contextlib.contextmanager
def connected(
    engine: str, address: str | None, num_workers: int | None
) -> Iterator[None]:
    """Connects to the cluster that the flags name, if any, until the end of the block.

    Raises:
        ValueError: If the address is not one.
        OSError: If the cluster cannot be reached.
    """
    if engine != RAY:
        yield
        return
    with ray_cluster.connected(address, num_workers=num_workers):
        yield


def location_of(name: str, value: str) -> Location:
    """Returns the path or URL of a user, see `Location.from_user`."""
    return Location.from_user(name, value, expand_user=True)


def work_folder(output: Location, work_dir: str | None) -> pathlib.Path:
    """Returns the folder in which the files of a data set are made.

    Args:
        output: The data set. A folder is its own.
        work_dir: Value of --work_dir for a URL. Without one, the folder is in a folder
            of this user below the system's folder for temporary files.
    """
    if output.is_local:
        return output.path
    name = f"tfpipe-convert-{index.digest(output.text)[:16]}"
    if work_dir is not None:
        return path_of("--work_dir", work_dir) / name
    return _temporary_folder() / name


def _temporary_folder() -> pathlib.Path:
    return pathlib.Path(tempfile.gettempdir()) / f"tfpipe-{os.getuid()}"


def make_temporary_folder() -> None:
    """Makes the folder of this user below the system's folder for temporary files.

    Other users cannot look into it.

    Raises:
        ValueError: If another user has made it.
    """
    folder = _temporary_folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat(follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise ValueError(
            f"{folder} must be a folder of this user, got another user's or a link. "
            "Name another folder with --work_dir."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WritingOptions:
    """Options of every command that writes shards; their flags describe them.

    Raises:
        ValueError: If `output_dir` is a URL that cannot be written, if `work_dir` does
            not fit to it, or if `engine` needs a package that is not installed.
    """

    output_dir: str
    work_dir: str | None = None
    num_workers: int | None = None
    engine: str = PROCESSES
    ray_address: str | None = None
    seed: int = 0
    overwrite: bool = False
    fsync: bool = True
    task_index: int = 0
    num_tasks: int = 1
    finalize: bool = False

    def __post_init__(self) -> None:
        self._check_url()
        if self.engine == RAY:
            ray_cluster.require()
        elif self.ray_address is not None:
            raise ValueError(
                f"--ray_address={self.ray_address} needs --engine=ray. Add it, or "
                "leave the address out."
            )

    def _check_url(self) -> None:
        """Checks an `output_dir` that is a URL, and what goes with it."""
        if self.output.is_local:
            if self.work_dir is not None:
                raise ValueError(
                    "--work_dir is for an --output_dir by URL: a folder holds its own "
                    "unfinished shards. Leave it out."
                )
            return
        if self.output.is_web_server:
            raise ValueError(
                "--output_dir must be a folder or an object store, got "
                f"{self.output.shown}: files of a web server are only read. Use the "
                "store's own URL, such as s3://."
            )
        if self.num_tasks > 1 and self.work_dir is None:
            raise ValueError(
                f"--num_tasks={self.num_tasks} with an --output_dir by URL needs "
                "--work_dir, a folder that all tasks see."
            )

    @functools.cached_property
    def output(self) -> Location:
        """The folder or URL of --output_dir."""
        return location_of("--output_dir", self.output_dir)

    @property
    def local_dir(self) -> pathlib.Path:
        """The output folder, or the folder in which files for a URL are made.

        Raises:
            ValueError: If a path or the folder for temporary files cannot be used.
        """
        if not self.output.is_local and self.work_dir is None:
            make_temporary_folder()
        return work_folder(self.output, self.work_dir)

    def of_job(self) -> dict[str, Any]:
        """Returns the fields of a `Job` that follow from these options alone."""
        cluster = None
        if self.engine == RAY:
            cluster = ray_cluster.Cluster(num_workers=self.num_workers)
        return {
            "files": None if self.output.is_local else Files(self.output),
            "cluster": cluster,
            "overwrite": self.overwrite,
            "fsync": self.fsync,
            "task_index": self.task_index,
            "num_tasks": self.num_tasks,
            "finalize": self.finalize,
        }


WRITING_FLAGS = tuple(field.name for field in dataclasses.fields(WritingOptions))
