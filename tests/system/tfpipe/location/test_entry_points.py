"""Entry points of a data set on a real S3 server: written, fetched and used."""

import hashlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any
from unittest import mock

import pytest

import tfpipe
from benchmarks.distributed.ranks import Ranks
from converters import verify
from converters.images.policy import Policy
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.trees import convert
from tests.support.faults.bad_proxy import BadProxy, Fault
from tests.support.processes.rank_pool import RankPool
from tests.support.servers import web_server
from tests.support.servers.s3_server import environment
from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.native import entry_file, entry_points

pytestmark = needs_native

NAME = "entry_points-train"


def read(
    ranks: Ranks, place: str, variables: Mapping[str, str], **options: Any
) -> tuple[str, int, str]:
    """A rank that reads an epoch.

    Returns:
        Digest of its images, the number of records whose table is the one of their
        JPEG, and the printed pipeline.
    """
    errors.say_once.cache_clear()
    with mock.patch.dict(os.environ, variables):
        source = tfpipe.TFRecordSource(
            place,
            rank=ranks.rank,
            num_ranks=ranks.num_ranks,
            **{"batch_size": 3, "window_size": 9, "block_length": 3} | options,
        )
        pipeline = tfpipe.imagenet_train(source, image_size=16, crop_op="native")
        images = hashlib.sha256()
        for batch in pipeline.build(epoch=1):
            images.update(batch["image"].numpy().tobytes())
        return images.hexdigest(), num_right_tables(source), str(pipeline)


def num_right_tables(source: tfpipe.TFRecordSource) -> int:
    """Returns the number of records that come with the table of their JPEG."""
    points = tfpipe.EntryPoints.of(source)
    if points is None:
        return 0
    parsed = tfpipe.Map(tfpipe.Parse().for_source(source), points)
    dataset = tfpipe.Pipeline(source, stages=[tfpipe.Interleave(), parsed]).build()
    return sum(
        example["entry_points"] == entry_points.find(example["encoded"]).table != b""
        for example in dataset.as_numpy_iterator()
    )


def test_they_are_written_fetched_once_checked_and_used(
    raw_dir: pathlib.Path,
    s3_folder: str,
    bad_proxy: BadProxy,
    rank_pool: RankPool,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here, variables = tmp_path / "here", environment(bad_proxy.address)
    for place in (str(here), s3_folder):
        convert(raw_dir, place, policy=Policy(entry_points=True), num_train_shards=4)
    # They are also made for a data set that is there, and mended.
    files = Files(s3_folder)
    files.write(NAME, b"damaged")
    faults = verify.verify(
        verify.VerifyOptions(data_dir=s3_folder, level="quick")
    ).faults
    assert [entry_file.REMEDY in fault.fault for fault in faults] == [True]
    mended = verify.VerifyOptions(
        data_dir=s3_folder, write_entry_points=True, num_workers=2
    )
    assert verify.verify(mended).num_faults == 0
    assert files.read(NAME) == (here / NAME).read_bytes()
    assert files.read("index.json") == (here / "index.json").read_bytes()
    size = (here / NAME).stat().st_size
    expected = rank_pool.run(read, str(here), variables)
    assert all(num_right > 3 for _, num_right, _ in expected)

    # The level crc compares the digest at the URL.
    checked = verify.verify(verify.VerifyOptions(data_dir=s3_folder, num_workers=1))
    assert checked.num_faults == 0

    # Two ranks at once fetch the file once, through the cache and directly.
    monkeypatch.setenv("TFPIPE_SHARD_CACHE", str(tmp_path / "direct"))
    cache = tfpipe.ShardCache(tmp_path / "cache")
    variables |= {"TFPIPE_SHARD_CACHE": str(tmp_path / "direct")}
    for choice, num_times in ((cache, 2), ("direct", 1)):
        # Slowly, so that both ranks want the file before it is there.
        slow = Fault(kind="delay", names=f"*/{NAME}", times=1, seconds=2)
        bad_proxy.faults[:] = [slow]
        bad_proxy.requests.clear()
        for _ in range(num_times):
            found = rank_pool.run(read, s3_folder, variables, shard_cache=choice)
            assert [each[:2] for each in found] == [each[:2] for each in expected]
        assert bad_proxy.num_bytes(f"*/{NAME}") == size
    bad_proxy.faults.clear()
    with web_server.serve(here) as url:
        alone = Ranks(rank=0, num_ranks=2, local_rank=0, num_local_ranks=1)
        served = tfpipe.ShardCache(tmp_path / "web")
        assert read(alone, url, {}, shard_cache=served)[:2] == expected[0][:2]

    # Bytes that are altered on the way are fetched again; else there are none.
    bad_proxy.faults += [Fault(kind="alter", names=f"*/{NAME}", after=90, times=1)]
    again = tfpipe.ShardCache(tmp_path / "again")
    capsys.readouterr()
    assert read(alone, s3_folder, {}, shard_cache=again)[:2] == expected[0][:2]
    assert f"{NAME} must have the digest" in capsys.readouterr().err
    bad_proxy.faults += [Fault(kind="alter", names=f"*/{NAME}", after=90)]
    never = tfpipe.ShardCache(tmp_path / "never")
    images, num_right, shown = read(alone, s3_folder, {}, shard_cache=never)
    assert (images, num_right) == (expected[0][0], 0)
    assert "EntryPoints(" not in shown
    assert "images are decoded without entry points" in capsys.readouterr().err
