"""benchmarks.options.config: which flags say how a data set is read."""

import pathlib

import pytest

import tfpipe
from benchmarks.options.config import DataAccess


@pytest.mark.parametrize(
    ("fields", "has_cache", "in_place", "argument"),
    [
        ({"data_dir": "x"}, False, True, "auto"),
        ({"data_dir": "http://h/x"}, True, False, "auto"),
        ({"data_dir": "http://h/x", "read_from": "direct"}, False, False, "direct"),
        (
            {"data_dir": "http://h/x", "shard_cache_dir": "c"},
            *(True, False, tfpipe.ShardCache("c")),
        ),
        # A shared mount may be read through a cache on a local disk.
        (
            {"data_dir": "x", "shard_cache_dir": "c", "shard_cache_max_gb": 0.5},
            *(True, False, tfpipe.ShardCache("c", max_bytes=500_000_000)),
        ),
        # Hosts may fetch for each other.
        (
            {"data_dir": "http://h/x", "shard_cache_dir": "c", "shared_cache_dir": "s"},
            *(True, False, tfpipe.ShardCache("c", shared_directory="s")),
        ),
        (
            {
                **{"data_dir": "x", "shard_cache_dir": "c", "shared_cache_dir": "s"},
                "shared_cache_max_gb": 2.0,
            },
            True,
            False,
            tfpipe.ShardCache("c", shared_directory="s", shared_max_bytes=2 * 10**9),
        ),
        ({"data_dir": None}, False, False, "auto"),
    ],
)
def test_way_to_the_shards(fields, has_cache, in_place, argument):
    access = DataAccess(**fields)

    assert (access.has_shard_cache, access.is_read_in_place) == (has_cache, in_place)
    assert access.shard_cache() == argument


def test_a_cold_run_has_the_same_cache_in_another_folder():
    access = DataAccess(data_dir="x", shard_cache_dir="c", shard_cache_max_gb=1.0)

    found = access.shard_cache(pathlib.Path("c/cold-1"))

    assert found == tfpipe.ShardCache("c/cold-1", max_bytes=10**9)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"data_dir": "x", "shard_cache_max_gb": 1.0},
            "--shard_cache_max_gb needs --shard_cache_dir",
        ),
        (
            {"data_dir": "x", "shared_cache_dir": "s"},
            "--shared_cache_dir needs --shard_cache_dir",
        ),
        (
            {"data_dir": "x", "shard_cache_dir": "c", "shared_cache_max_gb": 1.0},
            "--shared_cache_max_gb needs --shared_cache_dir",
        ),
        (
            {"data_dir": None, "shard_cache_dir": "c"},
            "--shard_cache_dir needs --data_dir",
        ),
        (
            {"data_dir": "x", "read_from": "direct"},
            "--read_from=direct must have a URL as --data_dir, got x",
        ),
        (
            {"data_dir": "s3://b/x", "read_from": "direct", "shard_cache_dir": "c"},
            "--read_from=direct does not use --shard_cache_dir",
        ),
        ({"data_dir": "ftp://h/x"}, "--data_dir must be .* s3://, .*, got ftp://"),
    ],
)
def test_contradictions_are_errors(fields, message):
    with pytest.raises(ValueError, match=message):
        DataAccess(**fields)
