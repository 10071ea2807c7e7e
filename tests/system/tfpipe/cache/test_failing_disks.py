"""Caches on real disks that are full or read-only, from the start or from later on.

Each is named with its folder and the remedy. A shard cache and a shared folder that
fail later cost no record: reading goes on without them.
"""

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator

import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.shards import MadeShards, make_shards
from tfpipe.shard_cache import pieces as cuts

READ_ONLY = "Its disk is read-only: mount the disk for writing, or give another."
FULL = "Free some room there, or give a folder on another disk."
Failure = Callable[[pathlib.Path], object]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeShards:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuts, "_MOST_BYTES", 60_000)
        return make_shards(tmp_path_factory.mktemp("data"), [80, 70], record_bytes=5000)


@pytest.fixture
def mount(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """An ext4 of 8 MB in a file."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(8 << 20)
    _run("mkfs.ext4", "-q", "-m", "0", str(image))
    try:
        _run("mount", "-o", "loop", str(image), str(folder))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this host has no loop devices for this user")
    yield folder
    _run("umount", "-l", str(folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _make_read_only(folder: pathlib.Path) -> None:
    """As the kernel does after an error of the disk, with files open for writing."""
    _run("mount", "-o", "remount,abort", str(folder))


def _fill(folder: pathlib.Path) -> None:
    with contextlib.suppress(OSError), open(folder / "other", "wb", 0) as file:
        while file.write(bytes(4096)):
            pass


def _pipeline(made: MadeShards, kind: str, mount: pathlib.Path) -> tfpipe.Pipeline:
    folder, cache, stages = mount / "cache", "auto", [tfpipe.Interleave()]
    if kind == "shard cache":
        cache = tfpipe.ShardCache(folder, max_bytes=10**7)
    elif kind == "shared folder":
        beside = mount.with_name("local")
        cache = tfpipe.ShardCache(beside, max_bytes=10**7, shared_directory=folder)
    elif kind == "disk":
        stages.append(tfpipe.Cache("disk", folder))
    source = tfpipe.TFRecordSource(
        made.folder, "train", window_size=16, block_length=4, shard_cache=cache
    )
    source.cache_statistics()  # opens the cache
    return tfpipe.Pipeline(source, stages)


def _records(dataset: tf.data.Dataset) -> list[bytes]:
    return [element["record"] for element in dataset.as_numpy_iterator()]


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts disks")
@pytest.mark.parametrize("kind", ["shard cache", "shared folder", "disk"])
@pytest.mark.parametrize(
    ("fail", "remedy"), [(_make_read_only, READ_ONLY), (_fill, FULL)]
)
@pytest.mark.parametrize("is_later", [False, True])
def test_a_disk_is_named_with_the_remedy(
    kind: str,
    fail: Failure,
    remedy: str,
    is_later: bool,
    made: MadeShards,
    mount: pathlib.Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    right = _records(_pipeline(made, "none", mount).build(num_epochs=2))

    def read() -> list[bytes]:
        if not is_later:
            fail(mount)
        dataset = _pipeline(made, kind, mount).build(num_epochs=2)
        if is_later:
            fail(mount)
        return _records(dataset)

    if is_later and kind != "disk":
        assert read() == right
        told = capfd.readouterr().err
        assert told.count(remedy) == 1
    else:
        with pytest.raises((OSError, ValueError, tf.errors.OpError)) as caught:
            read()
        told = str(caught.value)

    assert str(mount / "cache") in told
    assert remedy in told
