"""Caches that stand before the store: a CDN, and a file system with a cache of its own.

nginx stands for a CDN; JuiceFS is a distributed file system. A second reader gets the
same batches, and the store behind the cache sends each byte once.
"""

import os
import pathlib
import re

import pytest

import tfpipe
from tests.support.faults.torture import IS_LONG
from tests.support.servers import shared_mount, stores
from tests.system.tfpipe.location.test_source import digest

pytestmark = pytest.mark.skipif(not IS_LONG, reason="TORTURE=1 runs them: 20 seconds")


def read(place: object, **source: object) -> str:
    """Returns the digest of an epoch."""
    options = {"seed": 3, "block_length": 2, "window_size": 8, "batch_size": 2}
    return digest(
        tfpipe.imagenet_train(
            tfpipe.TFRecordSource(place, "train", **options | source),
            image_size=8,
            with_record_id=True,
        ).build()
    )


def size(data_dir: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in data_dir.glob("train-*"))


@pytest.mark.skipif(not stores.is_installed("nginx"), reason="nginx is not installed")
def test_a_cdn_gets_each_byte_once(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    expected = read(data_dir)
    with stores.cdn(data_dir) as (url, num_sent):
        counts = []
        for host in range(3):
            cache = tfpipe.ShardCache(tmp_path / f"host{host}")
            assert read(url, shard_cache=cache) == expected
            counts.append(num_sent())

    assert counts[0] >= size(data_dir)
    assert counts == [counts[0]] * 3


@pytest.mark.skipif(not shared_mount.can_mount(), reason="no FUSE on this host")
def test_a_distributed_file_system_fetches_each_byte_once(
    data_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    expected, mount = read(data_dir), tmp_path / "mount"
    mount.mkdir()
    with shared_mount.volume(tmp_path) as meta:
        with shared_mount.client(meta, mount):
            for path in filter(pathlib.Path.is_file, data_dir.iterdir()):
                (mount / path.name).write_bytes(path.read_bytes())
        with shared_mount.client(meta, mount, options=["--cache-size=1000"]):
            counts = []
            for _ in range(3):
                assert read(mount) == expected
                _forget_pages(mount)
                counts.append(_fetched_bytes(mount))

    assert counts[0] >= size(data_dir)
    assert counts == [counts[0]] * 3


def _forget_pages(folder: pathlib.Path) -> None:
    """Drops the files from the page cache, so that the next read asks JuiceFS."""
    for path in folder.glob("train-*"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _fetched_bytes(mount: pathlib.Path) -> int:
    """Returns the bytes that JuiceFS got from its object storage."""
    text = (mount / ".stats").read_text()
    return int(
        re.findall(r"^juicefs_object_request_data_bytes_GET (\d+)", text, re.M)[0]
    )
