"""Options of several commands: fields of a single flag, and `WritingOptions`.

A function such as `num_workers()` makes a field of options, so every flag is described
once. The paths of a user and the end of a command are here too.
"""

import contextlib
import functools
import os
import pathlib
import stat
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from converters.engines import ray_cluster
from converters.images import policy
from converters.inputs.tables import columns
from converters.jobs import work_dir
from tfpipe import cli, errors
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.shards import index

if TYPE_CHECKING:
    from converters.exports.source import Source

INPUT, LABELS, SHARDS = "How the input is read", "Splits and labels", "Shards"
RUNNING = "How the work is done"
# Titles of the groups of flags in the help.
GROUPS = (INPUT, LABELS, SHARDS, policy.STORED, policy.KINDS, RUNNING)
PROCESSES, RAY = "processes", "ray"

_input, running, kinds = map(cli.group, (INPUT, RUNNING, policy.KINDS))

# Flags of several commands.

data_dir = functools.partial(
    cli.argument,
    "Data set of a converter: a folder, or a URL such as s3://bucket/imagenet.",
    shown="DIR",
    url=True,
)
input_dir = functools.partial(
    cli.required,
    "Folder with the images as they came, or its URL, such as s3://bucket/raw.",
    shown="PHOTOS",
    url=True,
)
input_files = functools.partial(
    cli.required,
    "What to convert: a file, a pattern with {000..099}, {a,b}, * or ?, a folder, or "
    "the URL of one of these. It may come several times.",
    shown="FILES",
    repeated=True,
    url=True,
)
output_dir = functools.partial(
    cli.required,
    "Folder to write to. The result appears in it only when it is complete.",
)
seed = functools.partial(
    cli.flag,
    0,
    "Seed of every random choice. The same flags and seed write the same bytes.",
    group=SHARDS,
    least=0,
)
overwrite = functools.partial(
    cli.flag,
    False,
    "Replace what an earlier run left in --output_dir. The old content stays until the "
    "new one is complete.",
    group=SHARDS,
)
num_workers = functools.partial(
    running,
    None,
    "Worker processes. Their number does not change what is written. Default: one for "
    "each CPU that this process may use.",
    least=1,
)
fsync = functools.partial(
    running,
    True,
    "Wait until each shard is on the disk, so that a power loss costs no complete "
    "shard.",
)
splits = functools.partial(cli.flag, (), "Splits to take. Default: all.")
dry_run = functools.partial(
    cli.flag,
    False,
    "Show what would be written and how large it is, and end. Nothing is written.",
)
root = functools.partial(
    _input,
    help="Folder or URL that paths are relative to and must not leave. Default: the "
    "folder of the input.",
    shown="DIR",
    url=True,
)
generation = functools.partial(
    cli.flag,
    None,
    "Number of the generation of a growing data set, from 1. Default: the newest.",
    least=1,
)
on_null = functools.partial(
    _input,
    columns.FAIL,
    "What to do about a row whose image, label or split is NULL or whose file does not "
    "exist, and about an image in a tar without its .cls or .json. skip: leave the "
    "image out, and name it in rejects.jsonl.",
    choices=(columns.FAIL, columns.SKIP),
)
file_in_names = functools.partial(
    _input,
    False,
    "Let the name of an image begin with that of its file. This is needed if names "
    "come again in other files.",
)


def location_of(name: str, value: str) -> Location:
    """Returns the path or URL of a user, see `Location.from_user`."""
    return Location.from_user(name, value, expand_user=True)


def by_name(
    what: str,
    words: Sequence[str],
    *,
    form: str = "NAME=VALUE",
    may_be_empty: bool = False,
) -> dict[str, str]:
    """Returns the values of words like NAME=VALUE by their names.

    Args:
        what: The flag of the words, for errors. Errors show no value: a value may hold
            a password.
        words: The words.
        form: The form of a word, for errors.
        may_be_empty: Whether a value may be an empty text.

    Raises:
        ValueError: If a word has another form, or a name comes twice.
    """
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals or "://" in name or not (value or may_be_empty):
            got = "a URL" if "://" in word else repr(word)
            hint = " NAME is the name of a source." if form.startswith("NAME=") else ""
            raise ValueError(f"{what} must be given as {form}, got {got}.{hint}")
        if name in values:
            raise ValueError(f"{what} must have different names, got {name!r} twice.")
        values[name] = value
    return values


def path_of(name: str, value: str) -> pathlib.Path:
    """Returns the path in the value of a flag, with ~ replaced by a home folder."""
    errors.require_local_path("", name, value)
    if not value:
        raise ValueError(f"{name} must be a path, got nothing. Write . for here.")
    return location_of(name, value).path


def work_folder(output: Location, work_dir: str | None) -> pathlib.Path:
    """Returns the folder for the files of an unfinished data set.

    Args:
        output: The data set. A folder is its own.
        work_dir: Value of --work_dir for a URL. Without one, the folder is in a folder
            of the user below the system's folder for temporary files.
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
    """Makes the folder of the user below the system's folder for temporary files.

    Other users cannot look into the folder.

    Raises:
        ValueError: If the folder is another user's.
    """
    folder = _temporary_folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat(follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise ValueError(
            f"{folder} must be a folder of this user, got another user's or a link. "
            "Name another folder with --work_dir."
        )


@cli.options
class WritingOptions(cli.StoreOptions):
    """Options of every command with shards as its output.

    Raises:
        ValueError: If `output_dir` is a URL for reading only, if `work_dir` does not
            fit to `output_dir`, or if the package of `engine` is not installed.
    """

    output_dir: str = cli.required(
        "Folder to write to, or its URL, such as s3://bucket/imagenet. The result "
        "appears in it only when it is complete.",
        url=True,
    )
    overwrite: bool = overwrite()
    seed: int = seed()
    num_workers: int | None = num_workers()
    work_dir: str | None = running(
        None,
        "Folder in which the shards for an --output_dir by URL are made and wait for "
        "their upload. The same command goes on from there. Tasks of several hosts "
        "need one that all of them see. Default: a folder below the system's one for "
        "temporary files.",
    )
    num_tasks: int = running(
        1, "Number of tasks, on any hosts, that share the job.", least=1
    )
    task_index: int = running(
        0,
        "Number of this task, from 0 to --num_tasks - 1. Each task writes its own "
        "shards of one plan into the same --output_dir, and the last task to end "
        "publishes the data set.",
        least=0,
    )
    finalize: bool = running(
        False,
        "Write no shard, and publish the data set of tasks that have all ended. This "
        "is needed only if the last task died before it published.",
    )
    engine: Literal["processes", "ray"] = running(
        PROCESSES,
        "Where shards are written; does not change what is written. processes: on this "
        "host. ray: on a Ray cluster, see --ray_address, on all its CPUs unless "
        "--num_workers says otherwise; this needs pip install 'tfpipe[ray]'.",
    )
    ray_address: str | None = running(
        None,
        "Cluster for --engine=ray: HOST:PORT of its head, ray://HOST:PORT, auto for "
        "the cluster that this host belongs to, or local for one that is started for "
        "this command. Default: RAY_ADDRESS of the environment, else auto, else local.",
        shown="HOST:PORT",
        url=True,
        needs="--engine=ray",
    )
    fsync: bool = fsync()

    def __post_init__(self) -> None:
        self._check_url()
        if self.engine == RAY:
            ray_cluster.require()

    def _check_url(self) -> None:
        """Checks the URL of `output_dir`, and the options of a URL."""
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
        """The output folder, or the folder for unfinished files of a URL.

        Raises:
            ValueError: If a path or the folder for temporary files cannot be used.
        """
        if not self.output.is_local and self.work_dir is None:
            make_temporary_folder()
        return work_folder(self.output, self.work_dir)

    def of_job(self) -> dict[str, Any]:
        """Returns the fields of a `Job` with values from the options alone."""
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

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Connects to the cluster of --engine=ray until the end of the block.

        Raises:
            ValueError: If the address is wrong.
            OSError: If the cluster cannot be reached.
        """
        if self.engine != RAY:
            yield
            return
        workers = self.num_workers
        with ray_cluster.connected(self.ray_address, num_workers=workers):
            yield


def how_to_go_on(options: Any, error: BaseException) -> str:
    """Returns a sentence on how to go on with a job; empty if no job was begun.

    Args:
        options: Options of a command with `output_dir`.
        error: The end of the work.
    """
    wrong = (ValueError, FileExistsError, errors.BadIndexError, errors.BadRecordError)
    if isinstance(error, (*wrong, errors.BadSubsetError)):
        return ""  # the same command would fail again
    do = "Mend the cause, then run"
    if isinstance(error, MemoryError):
        do = "Try fewer --num_workers, or run"
    if isinstance(error, KeyboardInterrupt):
        do = "Run"
    output = location_of("--output_dir", options.output_dir)
    folder = work_folder(output, getattr(options, "work_dir", None))
    # Functions of os.path raise no error, even where the folder cannot be looked at.
    if not os.path.exists(folder / work_dir.WORK_DIR_NAME):
        return ""
    return f"Complete shards are kept. {do} the same command again to go on."


command = functools.partial(cli.Command, groups=GROUPS, hint=how_to_go_on)


def open_data_set(
    data_dir: str,
    folder: pathlib.Path,
    splits: Sequence[str],
    *,
    output: tuple[str, str] | None,
    generation: int | None = None,
) -> "Source":
    """Opens DIR, and refuses an output inside DIR.

    Args:
        data_dir: DIR, a folder or a URL.
        folder: Empty folder for the index and catalog of a data set at a URL.
        splits: Splits to take; empty takes all.
        output: The flag of the output, and its value; None for no output.
        generation: Number of the generation of a growing data set; None is the newest.

    Raises:
        ValueError: If DIR or the output cannot be used.
        TfpipeError: If the data set cannot be read.
    """
    # Commands with images start without Pillow.
    from converters.exports.source import open_source, require_beside

    location = location_of("DIR", data_dir)
    if output is not None:
        require_beside(output[0], location_of(*output), location)
    return open_source(location, folder, splits, generation=generation or "latest")
