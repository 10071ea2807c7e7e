"""benchmarks.training.cache_state: what storage really gave, epoch by epoch.

It measures the page cache of this host.
"""

import os
import pathlib
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.page_cache import states
from benchmarks.system import mounts
from benchmarks.training import run
from tests.support.processes.rank_pool import RankPool

OTHER_BYTES = 50_000_000


@pytest.fixture(autouse=True)
def _on_disk(records_dir: pathlib.Path) -> None:
    if mounts.beneath(records_dir).is_memory:
        pytest.skip("a file system in memory cannot be emptied")


def _run(ranks: Ranks, data_dir: pathlib.Path, **fields: Any) -> dict[str, Any]:
    """Returns the result of a run whose model takes 2 ms a step."""
    values = {"image_size": 32, "batch_size": 20, "step_time_ms": 2.0} | fields
    config = Config(data_dir=str(data_dir), model="tiny", num_warmup_steps=3, **values)
    # Root would empty the caches of the whole host, under tests that run beside it.
    with mock.patch.object(os, "geteuid", return_value=1):
        return run.run(config, ranks)


def _files(data_dir: pathlib.Path) -> list[str]:
    return [str(path) for path in sorted(data_dir.glob("train-*"))]


def _labels(result: dict[str, Any]) -> list[tuple[int, str]]:
    epochs = result["cache"]["epochs"]
    return [(epoch["epoch"], epoch["label"]) for epoch in epochs]


def test_steps_fed_from_memory_are_warm_although_the_run_began_cold(
    records_dir: pathlib.Path,
) -> None:
    """All 500 records are one window, which the pipeline reads before step 1."""
    states.evict(_files(records_dir))

    result = _run(Ranks(), records_dir, num_steps=60)

    cache = result["cache"]
    assert cache["before"][0]["resident_fraction"] == 0
    assert result["run_storage_bytes_read"] >= cache["before"][0]["num_bytes"]
    assert _labels(result) == [(0, "warm"), (1, "warm"), (2, "warm")]
    assert cache["label"] == "warm"
    assert sum(epoch["consumed_bytes"] for epoch in cache["epochs"]) == pytest.approx(
        result["consumed_bytes"]
    )


def test_two_ranks_find_every_epoch_cold_if_the_run_claims_it(
    rank_pool: RankPool, records_dir: pathlib.Path
) -> None:
    result, other = rank_pool.run(
        _run, records_dir, batch_size=25, num_epochs=2, cache="cold"
    )

    assert _labels(result) == [(0, "cold"), (1, "cold")]
    (host,) = result["cache"]["before"]
    # Nothing of epoch 1 was read ahead before the files left memory.
    given = [epoch["storage_bytes"] for epoch in result["cache"]["epochs"]]
    assert given == [pytest.approx(host["num_bytes"], rel=0.01)] * 2
    assert result["cache"]["epochs"] == other["cache"]["epochs"]
    records = result["records"]
    assert (records["times_used_min"], records["times_used_max"]) == (2, 2)


def test_two_ranks_begin_each_cold_epoch_with_one_empty_shard_cache(
    rank_pool: RankPool, records_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    result, _ = rank_pool.run(
        _run,
        records_dir,
        num_epochs=2,
        cache="cold",
        shard_cache_dir=str(tmp_path),
    )

    assert _labels(result) == [(0, "cold"), (1, "cold")]
    # Each byte was fetched once a host: the ranks shared the cache.
    num_bytes = result["cache"]["size_rule"]["data_bytes"]
    fetched = [epoch["server_bytes"] for epoch in result["cache"]["epochs"]]
    assert fetched == [pytest.approx(num_bytes, rel=0.01)] * 2
    assert result["storage"]["bytes_from_server"] == sum(fetched)
    # Only the newest cache is kept, until the ranks end.
    (folder,) = tmp_path.glob("cold-*")
    assert len(list(folder.iterdir())) == 1


def test_warm_shard_cache_is_filled_before(
    records_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    fields = {"num_epochs": 2, "cache": "warm", "shard_cache_dir": str(tmp_path)}

    result = _run(Ranks(), records_dir, **fields)

    assert _labels(result) == [(0, "warm"), (1, "warm")]
    assert result["storage"]["tier"] == "shard_cache"
    assert result["storage"]["bytes_from_server"] == 0


def test_the_page_cache_before_and_after_is_told(data_dir: pathlib.Path) -> None:
    fields = {"batch_size": 4, "num_steps": 20, "step_time_ms": 0.0}

    result = _run(Ranks(), data_dir, cache="warm", **fields)

    (before,), (after,) = result["cache"]["before"], result["cache"]["after"]
    assert before["resident_fraction"] == after["resident_fraction"] == 1
    text = result["cache"]["text"]
    assert text.startswith("warm in the timed steps: storage gave 0.0% of the")
    assert text.endswith("100.0% of the files were in memory before.")


@pytest.fixture
def _other_reads(tmp_path: pathlib.Path) -> Iterator[None]:
    """Reads another file from storage again and again, as for a library."""
    path = tmp_path / "library"
    path.write_bytes(os.urandom(OTHER_BYTES))
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            states.evict([str(path)])
            states.fill([str(path)])

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join()


@pytest.mark.usefixtures("_other_reads")
def test_reads_of_other_files_do_not_count(records_dir: pathlib.Path) -> None:
    result = _run(Ranks(), records_dir, num_steps=100, cache="warm")

    assert result["run_storage_bytes_read"] > result["consumed_bytes"]
    assert (result["storage_bytes_read"], result["cache"]["label"]) == (0, "warm")
    assert [epoch["storage_bytes"] for epoch in result["cache"]["epochs"]] == [0] * 5
