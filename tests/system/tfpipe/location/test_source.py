"""Sources by URL on a real S3 server: the same elements as from the folder."""

import hashlib
import json
import os
import pathlib
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Ranks
from tests.support.data.trees import convert
from tests.support.faults.bad_proxy import BadProxy, Fault
from tests.support.processes.rank_pool import RankPool
from tests.support.servers.s3_server import BUCKET, S3Server, environment
from tfpipe.location.files import Files

NUM_SHARDS = 12


@pytest.fixture(scope="module")
def shards_dir(
    raw_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """24 records in 12 shards: the least that is fetched at once is a shard."""
    folder = tmp_path_factory.mktemp("shards") / "records"
    convert(raw_dir, folder, num_train_shards=NUM_SHARDS, num_validation_shards=1)
    return folder


def upload(folder: pathlib.Path, url: str) -> None:
    """Copies a data set to a URL."""
    files = Files(url)
    for path in folder.iterdir():
        if path.is_file():
            files.upload(path.name, path)


@pytest.fixture
def shards_url(shards_dir: pathlib.Path, s3_folder: str) -> str:
    """The data set of `shards_dir` on the S3 server."""
    upload(shards_dir, s3_folder)
    return s3_folder


def make(place: object, **source: Any) -> tfpipe.Pipeline:
    source = {"seed": 3, "block_length": 2, "window_size": 4, "batch_size": 2} | source
    return tfpipe.imagenet_train(
        tfpipe.TFRecordSource(place, "train", **source),
        image_size=8,
        with_record_id=True,
    )


def digest(dataset: tf.data.Dataset) -> str:
    """A digest of all values of all batches."""
    found = hashlib.sha256()
    for batch in dataset:
        for name in sorted(batch):
            found.update(name.encode() + batch[name].numpy().tobytes())
    return found.hexdigest()


def read(
    ranks: Ranks, place: str, variables: Mapping[str, str], **source: Any
) -> tuple[str, str | None, float]:
    """A rank that reads an epoch.

    Returns:
        Digest of what came, the error that ended it, and the seconds that it took.
    """
    share = {"rank": ranks.rank, "num_ranks": ranks.num_ranks}
    error, found = None, ""
    with mock.patch.dict(os.environ, variables):
        pipeline = make(place, **share, **source)
        start = time.monotonic()
        try:
            found = digest(pipeline.build(epoch=1))
        except tf.errors.OpError as caught:
            error = str(caught)
    return found, error, time.monotonic() - start


def plain(folder: pathlib.Path) -> list[str]:
    """Returns the digest of each rank's elements, read by TensorFlow from a folder."""
    pipelines = [
        make(folder, rank=rank, num_ranks=2, reading="tensorflow") for rank in range(2)
    ]
    return [digest(pipeline.build(epoch=1)) for pipeline in pipelines]


def test_ranks_read_through_the_cache_what_is_in_the_folder_and_each_byte_once(
    rank_pool: RankPool,
    shards_dir: pathlib.Path,
    shards_url: str,
    bad_proxy: BadProxy,
    tmp_path: pathlib.Path,
) -> None:
    cache = tfpipe.ShardCache(tmp_path)
    variables = environment(bad_proxy.address)
    expected = plain(shards_dir)
    sizes = {p.name: p.stat().st_size for p in shards_dir.glob("train-*")}

    for reading in ("auto", "tensorflow"):  # "auto" is the native op, if it is built
        answers = rank_pool.run(
            read, shards_url, variables, shard_cache=cache, reading=reading
        )

        assert [found for found, _, _ in answers] == expected, answers
        got = {name: bad_proxy.num_bytes(f"*{name}") for name in sizes}
        assert got == sizes


def test_ranks_read_directly_what_is_in_the_folder(
    rank_pool: RankPool, shards_dir: pathlib.Path, shards_url: str, s3_address: str
) -> None:
    variables = environment(s3_address)

    answers = rank_pool.run(read, shards_url, variables, shard_cache="direct")

    assert [found for found, _, _ in answers] == plain(shards_dir), answers


@pytest.fixture
def own_server(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[S3Server]:
    """A server that a test may kill."""
    server = S3Server(tmp_path / "server")
    for name, value in environment(server.address).items():
        monkeypatch.setenv(name, value)
    server.start()
    yield server
    server.kill()


def test_a_server_that_ends_in_an_epoch_is_waited_for_and_then_named(
    rank_pool: RankPool,
    shards_dir: pathlib.Path,
    own_server: S3Server,
    tmp_path: pathlib.Path,
) -> None:
    url = f"s3://{BUCKET}/shards"
    upload(shards_dir, url)
    for comes_back, time_limit in ((True, 60.0), (False, 5.0)):
        cache = tfpipe.ShardCache(
            tmp_path / f"{comes_back}", num_connections=1, time_limit=time_limit
        )
        # The server ends with the thread that starts it: the ranks have the other one.
        with BadProxy(own_server.address) as proxy, ThreadPoolExecutor(1) as pool:
            # The epoch then takes a second and more.
            proxy.faults = [Fault(kind="delay", names="*train-*", seconds=0.2)]
            variables = environment(proxy.address)
            ended = pool.submit(rank_pool.run, read, url, variables, shard_cache=cache)
            while proxy.num_requests("*train-*") < 4 and not ended.done():
                time.sleep(0.01)
            own_server.kill()
            if comes_back:
                own_server.start()
            answers = ended.result()
        if comes_back:
            assert [found for found, _, _ in answers] == plain(shards_dir), answers
            continue
        for _, error, seconds in answers:
            assert error is not None
            assert "RemoteError: Reading bytes 0 to" in error
            assert url in error
            assert seconds < 10 * time_limit


def test_a_pipeline_by_url_does_what_one_of_a_folder_does(
    shards_dir: pathlib.Path, shards_url: str, tmp_path: pathlib.Path
) -> None:
    here = make(shards_dir)
    there = make(shards_url, shard_cache=tfpipe.ShardCache(tmp_path))

    assert there.source.digest == here.source.digest
    assert there.fingerprint == here.fingerprint
    assert there.class_names == here.class_names
    assert there.class_counts == here.class_counts
    assert there.record_names(epoch=1) == here.record_names(epoch=1)
    assert there.source.locate(3)[0].startswith(f"{shards_url}/train-")
    sheets = [
        tfpipe.view.before_and_after(each, num_images=4) for each in (here, there)
    ]
    assert np.array_equal(*map(np.asarray, sheets))
    for state in (tfpipe.State(epoch=2, step=5), tfpipe.State(step=7, batch_size=1)):
        assert digest(there.build(state=state)) == digest(here.build(state=state))
    with pytest.raises(ValueError, match=f"first record, {shards_url}/train-00000"):
        tfpipe.imagenet_train(there.source, parse=tfpipe.Parse(label_key="label"))
    statistics = there.source.cache_statistics()
    assert statistics is not None
    assert statistics.bytes_from_server == sum(s.num_bytes for s in here.source.shards)
    assert here.source.cache_statistics() is None


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_data_set_that_is_replaced_after_it_was_opened_is_named_as_such(
    on_error: str, shards_url: str, tmp_path: pathlib.Path
) -> None:
    cache = tfpipe.ShardCache(tmp_path)
    pipeline = make(shards_url, shard_cache=cache, on_error=on_error)
    files = Files(shards_url)
    for name in files.names("train-"):
        content = bytearray(files.read(name))
        content[len(content) // 2] ^= 1
        files.write(name, bytes(content))

    with pytest.raises(tf.errors.OpError, match="replaced or copied again"):
        digest(pipeline.build(epoch=1))

    assert pipeline.faults is None or pipeline.faults.faults == []


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_data_set_that_is_replaced_while_it_is_read_directly_is_named_as_such(
    on_error: str, shards_url: str, tmp_path: pathlib.Path
) -> None:
    """Its shards may have the same sizes and right CRCs: only the index tells."""
    pipeline = make(shards_url, shard_cache="direct", on_error=on_error)
    digest(pipeline.build(epoch=1))
    files = Files(shards_url)
    changed = json.loads(files.read("index.json")) | {"name": "other"}
    files.write("index.json", json.dumps(changed).encode())

    with pytest.raises(tf.errors.OpError, match="was replaced while it was read"):
        digest(pipeline.build(epoch=2))

    assert pipeline.faults is None or pipeline.faults.faults == []


def _copy_again(raw_dir: pathlib.Path, url: str, folder: pathlib.Path) -> None:
    files = Files(url)
    for name in files.names("train-"):
        files.write(name, files.read(name) + b"")


def _harm(raw_dir: pathlib.Path, url: str, folder: pathlib.Path) -> None:
    files = Files(url)
    name = min(files.names("train-"))
    content = bytearray(files.read(name))
    content[20] ^= 1
    files.write(name, bytes(content))


def _convert_again(raw_dir: pathlib.Path, url: str, folder: pathlib.Path) -> None:
    convert(raw_dir, folder, num_train_shards=NUM_SHARDS - 1, num_validation_shards=1)
    files = Files(url)
    for name in files.names():
        files.delete(name)
    upload(folder, url)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_copy_again, ""),  # an ETag of SeaweedFS is a digest of the bytes
        (_harm, "{url} were replaced or copied again since the cache was filled"),
        (_convert_again, "{url} was replaced since {cache}/"),
    ],
)
def test_a_data_set_that_is_replaced_between_a_fill_and_a_run_is_named_as_that(
    change: Any,
    said: str,
    raw_dir: pathlib.Path,
    shards_url: str,
    tmp_path: pathlib.Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    cache = tfpipe.ShardCache(tmp_path / "cache")
    filled = cache.fill(shards_url)
    source = tfpipe.TFRecordSource(shards_url, "train", shard_cache=cache)
    before = digest(make(shards_url, shard_cache=cache).build())
    source.close_cache()
    assert (source.index_digest, source.tags) == (
        filled.index_digest,
        filled.tags["train"],
    )
    assert "replaced" not in capfd.readouterr().err

    change(raw_dir, shards_url, tmp_path / "again")
    pipeline = make(shards_url, shard_cache=cache)
    after = digest(pipeline.build())

    told = capfd.readouterr().err
    assert said.format(url=shards_url, cache=cache.directory) in told
    assert ("replaced" in told) == bool(said)
    now = pipeline.source
    assert (now.tags != filled.tags["train"]) == bool(said)
    is_same_index = now.index_digest == filled.index_digest
    assert is_same_index == (change is not _convert_again)
    assert (before == after) == is_same_index  # what was filled has its digest
    fetched = now.cache_statistics().bytes_from_server
    assert (fetched == 0) == is_same_index


def test_shards_that_are_copied_again_between_two_runs_are_named(
    shards_dir: pathlib.Path,
    shards_url: str,
    tmp_path: pathlib.Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The index is the same: only the ETags of the shards tell."""
    first = tfpipe.TFRecordSource(shards_url, "train", shard_cache="direct")
    saved = tfpipe.State.from_json(first.advance(tfpipe.State()).to_json())
    assert saved.tags
    local = tfpipe.TFRecordSource(shards_dir, "train").advance(saved)
    assert (local.tags, "copied again" in capfd.readouterr().err) == ("", False)

    files = Files(shards_url)
    name = min(files.names("train-"))
    content = bytearray(files.read(name))
    content[20] ^= 1
    files.write(name, bytes(content))
    first.advance(saved)
    assert "copied again" not in capfd.readouterr().err  # the run has its own tags
    tfpipe.TFRecordSource(shards_url, "train", shard_cache="direct").advance(saved)

    said = capfd.readouterr().err
    assert f"The shards of {shards_url} were replaced or copied again" in said
    assert f"python -m converters.verify {shards_url} --level=crc" in said
