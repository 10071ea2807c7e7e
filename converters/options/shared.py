"""The flags that several commands have, each defined in one place, and user's paths.

Each function defines a flag at its first call, because a command must not have a flag
that it does not use, and absl refuses to define a flag twice. A command calls the
functions of its flags, and then `flags.adopt_module_key_flags` on this module, so that
its `--help` lists them.
"""

import contextlib
import functools
import os
import pathlib
import stat
import tempfile
from collections.abc import Iterator

from absl import app, flags

from converters.engines import ray_cluster
from tfpipe import errors
from tfpipe.remote import urls
from tfpipe.remote.files import Files
from tfpipe.shards import index

OUTPUT_DIR = "output_dir"
RAY_ADDRESS = "ray_address"
PROCESSES, RAY = "processes", "ray"


@functools.cache
def input_dir() -> "flags.FlagHolder[str | None]":
    """Defines --input_dir, which is optional: see `required_input_dir`."""
    return flags.DEFINE_string(
        "input_dir", None, "Folder with the images as they came; see the layout above."
    )


def required_input_dir() -> str:
    """Returns the value of --input_dir.

    Raises:
        app.UsageError: If the flag was not given.
    """
    if (value := input_dir().value) is None:
        raise app.UsageError("--input_dir must be given: the folder to convert.")
    return value


@functools.cache
def output_dir() -> "flags.FlagHolder[str]":
    """Defines --output_dir, which is required."""
    return flags.DEFINE_string(
        OUTPUT_DIR,
        None,
        "Folder to write to, or in converters.imagenet and converters.folder its URL, "
        "such as s3://bucket/imagenet. The result appears in it only when it is "
        "complete.",
        required=True,
    )


@functools.cache
def work_dir() -> "flags.FlagHolder[str | None]":
    """Defines --work_dir."""
    return flags.DEFINE_string(
        "work_dir",
        None,
        "Folder in which the shards for an --output_dir by URL are made and wait for "
        "their upload. The same command goes on from there. Tasks of several hosts "
        "need one that all of them see. Default: a folder below the system's one for "
        "temporary files.",
    )


@functools.cache
def overwrite() -> "flags.FlagHolder[bool]":
    """Defines --overwrite."""
    return flags.DEFINE_boolean(
        "overwrite",
        False,
        "Replace what an earlier run left in --output_dir. The old content stays until "
        "the new one is complete.",
    )


@functools.cache
def seed() -> "flags.FlagHolder[int]":
    """Defines --seed."""
    return flags.DEFINE_integer(
        "seed",
        0,
        "Seed of every random choice. The same flags and seed write the same bytes.",
        lower_bound=0,
    )


@functools.cache
def num_workers() -> "flags.FlagHolder[int | None]":
    """Defines --num_workers."""
    return flags.DEFINE_integer(
        "num_workers",
        None,
        "Number of worker processes; does not change what is written. "
        "Default: one for each CPU that this process may use.",
        lower_bound=1,
    )


@functools.cache
def engine() -> "flags.FlagHolder[str]":
    """Defines --engine."""
    return flags.DEFINE_enum(
        "engine",
        PROCESSES,
        [PROCESSES, RAY],
        "Where shards are written; does not change what is written. processes: on this "
        "host. ray: on a Ray cluster, see --ray_address, on all its CPUs unless "
        "--num_workers says otherwise; this needs pip install 'tfpipe[ray]'.",
    )


@functools.cache
def ray_address() -> "flags.FlagHolder[str | None]":
    """Defines --ray_address."""
    return flags.DEFINE_string(
        RAY_ADDRESS,
        None,
        "Cluster for --engine=ray: HOST:PORT of its head, ray://HOST:PORT, auto for "
        "the cluster that this host belongs to, or local for one that is started for "
        "this command. Default: RAY_ADDRESS of the environment, else auto, else local.",
    )


def require_engine(engine: str, address: str | None) -> None:
    """Checks the values of --engine and --ray_address.

    Raises:
        ValueError: If they do not fit together, or Ray is not installed.
    """
    if engine == RAY:
        ray_cluster.require()
    elif address is not None:
        raise ValueError(
            f"--ray_address={address} needs --engine=ray. Add it, or leave the address "
            "out."
        )


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


def cluster_of(engine: str, num_workers: int | None) -> ray_cluster.Cluster | None:
    """Returns the cluster that writes shards; None for processes of this host."""
    return ray_cluster.Cluster(num_workers=num_workers) if engine == RAY else None


def path_of(name: str, value: str) -> pathlib.Path:
    """Returns the path that a user gave, with ~ replaced by a home folder.

    Args:
        name: The argument or flag, as a user writes it.
        value: Its value.

    Raises:
        ValueError: If the value is empty, which would be the current folder, is a URL,
            or names a user that is not known.
    """
    errors.require_local_path("", name, value)
    if not value:
        raise ValueError(f"{name} must be a path, got nothing. Write . for here.")
    try:
        return pathlib.Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError(
            f"{name} must be a path, got {value}, whose user has no home folder "
            f"here. Write ./{value} for a name that begins with ~."
        ) from error


def files_of(name: str, value: str) -> Files | None:
    """Returns the files at the URL that a user gave; None for a path.

    Args:
        name: The argument or flag, as a user writes it.
        value: Its value.

    Raises:
        ValueError: If the value is a URL that is not known or holds a password.
        RemoteError: If a package for this kind of URL is missing.
    """
    if not urls.is_url(value):
        return None
    return Files(urls.require_place("", name, value))


def work_folder(url: str, work_dir: str | None) -> pathlib.Path:
    """Returns the folder in which the files for a URL are made.

    Args:
        url: Place of the data set.
        work_dir: Value of --work_dir. Without one, the folder is in a folder of this
            user below the system's folder for temporary files.
    """
    name = f"tfpipe-convert-{index.digest(url.rstrip('/'))[:16]}"
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
