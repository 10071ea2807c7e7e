"""Fixtures: raw trees of tiny images, and what is made of them, once a session."""

import functools
import gc
import os
import pathlib
import shutil
from collections.abc import Iterator

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.support import long_conversion
from tests.support.data import JOB_X, JOB_Y, JobDigests, convert, digests, make_tree
from tests.support.shared_server import session_folder, shared
from tests.support.warm_python import WarmPython

# Before TensorFlow is imported: its start-up messages would bury the failures.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Lines of progress come every 10 s, so on a slow host only. Their tests say how often.
os.environ.setdefault("TFPIPE_PROGRESS_SECONDS", "3600")
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
    """Folder of 1230 images, and digests of the files of a whole conversion of them."""
    return long_conversion.make_input(tmp_path_factory.mktemp("uninterrupted"))


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmPython]:
    """A Python with TensorFlow: `warm_python.run("-m", module, ...)` runs a command.

    All workers of the session share it.
    """
    folder = session_folder(tmp_path_factory, "warm_python")
    with shared("warm_python", folder) as document:
        yield WarmPython(document["address"])


class FilesAndRanks(LoadFileScheduling):
    """Gives a file to one worker, and all files that `is_with_ranks` to the same.

    Ranks take CPU time also while they wait, so a pair in each worker is a waste. The
    page cache of the host must not be dropped beside ranks that measure it.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "ranks" if is_with_ranks(self.config.rootpath / file) else file


@functools.cache
def is_with_ranks(path: pathlib.Path) -> bool:
    """Whether a file has tests on `rank_pool`, or says that it drops the page cache."""
    text = path.read_text()
    return "rank_pool: RankPool" in text or "drops the page cache" in text


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: Producer
) -> FilesAndRanks | None:
    return FilesAndRanks(config, log) if config.option.dist == "loadfile" else None


def pytest_collection_finish() -> None:
    """From here on only what tests make is looked through for garbage."""
    gc.freeze()
    gc.enable()


# The longest files of tests/system by CPU time: the last file to begin runs alone.
LONG_FILES = (
    "converters/test_ray.py",
    "benchmarks/test_sweep.py",
    "converters/test_replicate.py",
    "converters/test_commands.py",
    "studies/test_loaders.py",
    "models/test_models.py",
    "cache/test_processes.py",
    "tfpipe/test_native_build.py",
    "converters/test_unfinished.py",
    "converters/test_cut_off.py",
    "training/test_loop.py",
    "training/test_elastic.py",
    "benchmarks/test_report.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests on the shared ranks are the longest group, and begin first."""
    items.sort(key=lambda item: _turn(item.path))


@functools.cache
def _turn(path: pathlib.Path) -> int:
    """When a file begins: a file with a lower number comes first."""
    if is_with_ranks(path):
        return -1
    turns = (n for n, end in enumerate(LONG_FILES) if path.as_posix().endswith(end))
    is_long = "tests/system/" in path.as_posix()
    return next(turns, len(LONG_FILES)) if is_long else len(LONG_FILES)
