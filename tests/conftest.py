"""Fixtures: raw trees of tiny images, and what is made of them, once a session."""

import ast
import functools
import gc
import os
import pathlib
import shutil
import signal
import uuid
from collections.abc import Iterator

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.support.data.made_once import made_once
from tests.support.data.trees import (
    JOB_X,
    JOB_Y,
    JobDigests,
    convert,
    digests,
    make_tree,
)
from tests.support.processes import long_conversion
from tests.support.processes.warm_python import WarmPython
from tests.support.servers import brokers, s3_server
from tests.support.servers.shared_server import session_folder, shared

# Before TensorFlow is imported: its start-up messages would bury the failures.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Lines of progress come every 10 s, so on a slow host only. Their tests say how often.
os.environ.setdefault("TFPIPE_PROGRESS_SECONDS", "3600")
# `make` builds the native op. A test of a host without it must not build it by the way.
os.environ.setdefault("TFPIPE_NATIVE_BUILD", "0")
# A shell ignores SIGINT in what it starts in the background, and a process that a test
# starts would ignore it too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Imports and test items stay until the end. To look through them for garbage took 15 %
# of the time of collection, and each later round would look through them again.
gc.disable()


@pytest.fixture(scope="session")
def raw_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A tree of 24 training images and 7 validation images of 4 classes."""
    folder = tmp_path_factory.mktemp("raw")
    return make_tree(folder, num_images=24, num_validation_images=7)


@pytest.fixture(scope="session")
def data_dir(
    raw_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """The tree of `raw_dir` converted: 3 train shards and 2 validation shards."""
    folder = tmp_path_factory.mktemp("data") / "records"
    convert(raw_dir, folder, num_train_shards=3, num_validation_shards=2, num_workers=1)
    return folder


@pytest.fixture
def copy_dir(data_dir: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the data set that a test may damage."""
    return pathlib.Path(shutil.copytree(data_dir, tmp_path / "copy"))


@pytest.fixture(scope="session")
def job_digests(
    raw_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> JobDigests:
    """Digests of the files that the jobs X and Y make of the tree of `raw_dir`."""
    folder = tmp_path_factory.mktemp("jobs")
    for name, options in (("X", JOB_X), ("Y", JOB_Y)):
        convert(raw_dir, folder / name, **options)
    return {name: digests(folder / name) for name in ("X", "Y")}


@pytest.fixture(scope="session")
def uninterrupted(
    tmp_path_factory: pytest.TempPathFactory,
) -> long_conversion.Uninterrupted:
    """Folder of 1230 images, and digests of the files of a whole conversion of them.

    All workers of the session share it.
    """
    folder = made_once(tmp_path_factory, "uninterrupted", long_conversion.make_input)
    return long_conversion.input_of(folder)


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmPython]:
    """A Python with TensorFlow: `warm_python.run("-m", module, ...)` runs a command.

    All workers of the session share it.
    """
    folder = session_folder(tmp_path_factory, "warm_python")
    with shared("tests.support.processes.warm_python", folder) as document:
        yield WarmPython(document["address"])


# Tests that one worker runs one after the other, whatever their files.
GROUPS = ("ranks", "page cache")


def group_of(path: pathlib.Path, name: str) -> str | None:
    """Returns the group of a test function of a file, if it has one.

    A pair of ranks takes CPU time also while it waits, so a pair in each worker is a
    waste. No test drops the page cache of the host beside a test that measures it.
    """
    if _is_about_the_page_cache(path):
        return "page cache"
    return "ranks" if name in _on_ranks(path) else None


@functools.cache
def _is_about_the_page_cache(path: pathlib.Path) -> bool:
    """Whether a file says that it drops or measures the page cache of this host."""
    return "the page cache of this host." in path.read_text()


@functools.cache
def _on_ranks(path: pathlib.Path) -> frozenset[str]:
    """Returns the functions of a file that take `rank_pool`; xdist knows no more."""
    text = path.read_text()
    if "rank_pool" not in text:  # parsing all files takes seconds
        return frozenset()
    functions = (n for n in ast.parse(text).body if hasattr(n, "args"))
    return frozenset(
        function.name
        for function in functions
        if "rank_pool" in [argument.arg for argument in function.args.args]
    )


class FilesAndGroups(LoadFileScheduling):
    """Gives a file, without the tests of a group, to one worker; a group likewise."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        group = group_of(self.config.rootpath / file, name.partition("[")[0])
        return group or super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: Producer
) -> FilesAndGroups | None:
    return FilesAndGroups(config, log) if config.option.dist == "loadfile" else None


def pytest_collection_finish() -> None:
    """From here on only what tests make is looked through for garbage.

    Python looks each 700 new objects, and a graph has thousands: 5 % of the CPU time.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()


# The longest files by CPU time, groups apart: the last file to begin runs alone.
LONG_FILES = (
    "system/benchmarks/models/test_models.py",
    "system/benchmarks/training/test_elastic.py",
    "system/benchmarks/test_train_command.py",
    "system/tfpipe/test_native_training.py",
    "system/benchmarks/training/test_loop.py",
    "system/benchmarks/test_sweep.py",
    "system/benchmarks/test_input.py",
    "system/converters/test_ray.py",
    "system/benchmarks/test_report.py",
    "system/tfpipe/service/test_service.py",
    "system/tfpipe/location/test_source.py",
    "system/studies/test_loaders.py",
    "torture/converters/test_kill_points.py",
    "system/converters/test_replicate.py",
    "system/benchmarks/training/test_steps.py",
    "system/converters/test_commands.py",
    "system/tfpipe/test_native_build.py",
    "system/converters/test_unfinished.py",
    "system/converters/test_cut_off.py",
    "torture/tfpipe/test_native_fuzz.py",
    "torture/test_lost_ranks.py",
    "torture/tfpipe/test_caches_and_faults.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The groups are longer than any file, and begin first."""

    def turn(item: pytest.Item) -> int:
        group = group_of(item.path, item.name.partition("[")[0])
        return GROUPS.index(group) if group else len(GROUPS) + _turn(item.path)

    items.sort(key=turn)


@functools.cache
def _turn(path: pathlib.Path) -> int:
    """When a file begins: a file with a lower number comes first."""
    turns = (n for n, end in enumerate(LONG_FILES) if path.as_posix().endswith(end))
    return next(turns, len(LONG_FILES))


def pytest_unconfigure() -> None:
    """DuckDB names as leaked, at the end of the process, what garbage still holds."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def s3_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an S3 server that all tests of the session share, also by other workers.

    Nobody stops it; a test that wants this makes an `s3_server.S3Server`.
    """
    folder = session_folder(tmp_path_factory, "s3_server")
    with shared("tests.support.servers.s3_server", folder) as document:
        yield document["address"]


@pytest.fixture
def s3_folder(s3_address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an empty folder of its own on `s3_address`; the credentials are set."""
    for name, value in s3_server.environment(s3_address).items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3_server.BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def broker_store(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skips a test without the broker of its `kind`; Tansu, of kafka, gets a store."""
    brokers.require(kind)
    if kind == "kafka":
        request.getfixturevalue("s3_folder")
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ENDPOINT", os.environ["AWS_ENDPOINT_URL"])
