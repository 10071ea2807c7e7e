"""Two ranks, one of which has slow storage: it is named, and its rate is not inflated.

The storage of rank 1 takes 0.2 s for 16 records.
"""

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import PIL.Image
import pytest

from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import Config
from benchmarks.results import gates, tree
from benchmarks.results.train_result import TrainResult
from benchmarks.training import loop, run
from benchmarks.training.setting import make_setting
from tests.support.data.trees import SYNSETS, convert
from tests.support.faults import slow_storage
from tests.support.processes.rank_pool import RankPool
from tfpipe.reading import building

NUM_RECORDS = 64  # 32 for each rank, a whole shard: one shuffle window
SECONDS_PER_RECORD = 0.2 / 16


@pytest.fixture(scope="module")
def noise_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Images of noise, 20 kB each: `both` in 2 shards, and half of them in `one`."""
    folder = tmp_path_factory.mktemp("noise")
    random = np.random.default_rng(0)
    for number in range(NUM_RECORDS):
        pixels = random.integers(0, 256, (88, 88, 3), dtype=np.uint8)
        synset = SYNSETS[number % len(SYNSETS)]
        path = folder / "raw" / "train" / synset / f"{synset}_{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(pixels).save(path, quality=95, subsampling=0)
        if number == NUM_RECORDS // 2 - 1:
            convert(folder / "raw", folder / "one", num_train_shards=1)
    convert(folder / "raw", folder / "both", num_train_shards=2)
    return folder


@pytest.fixture(scope="module")
def uneven_ranks(
    noise_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RankPool]:
    """Two ranks; rank 1 reads slowly."""
    num_bytes = sum(path.stat().st_size for path in noise_dir.glob("both/train-*"))
    rate = num_bytes / NUM_RECORDS / SECONDS_PER_RECORD
    slow = slow_storage.environment(noise_dir, bytes_per_second=rate)
    pool = RankPool(tmp_path_factory.mktemp("uneven"), last_rank=slow)
    yield pool
    pool.close()


def _run(ranks: Ranks, folder: pathlib.Path | None, **fields: Any) -> dict[str, Any]:
    fields = {"model": "tiny", "image_size": 32, **fields}
    return run.run(Config(data_dir=folder and str(folder), **fields), ranks)


def _mean_step(result: dict[str, Any]) -> float:
    return float(result["timed_seconds"] / result["num_timed_steps"])


def _seconds_per_step(result: dict[str, Any]) -> float:
    """Returns the time of a step of 16 records: that of the storage, by the clock.

    A busy host adds to the time that the storage takes, and nothing shortens it.
    """
    seconds = _mean_step(result)
    assert 0.9 < seconds / (16 * SECONDS_PER_RECORD) < 1.4
    return seconds


def _slowed(
    ranks: RankPool,
    folder: pathlib.Path,
    *,
    tolerance: float,
    most: float = 1.0,
    **fields: Any,
) -> tuple[dict[str, Any], float]:
    """Checks that rank 1 is named; returns the result and how much slower a step is.

    The ratio that is named may be up to `most` times the one of the clock.
    Without slow storage both ranks take as long as rank 0, which waits for nothing.
    """
    # Two windows of two steps are read before the first step.
    fields |= {"num_warmup_steps": 6, "num_steps": 14}
    alone, _ = ranks.run(_run, None, synthetic=True, **fields)
    result, _ = ranks.run(_run, folder, **fields)
    found = result["critical_path"]["slowest"]
    ratio = _seconds_per_step(result) / _mean_step(alone)
    assert (found["rank"], found["cause"]) == (1, "input")
    named = found["over_others"] / ratio
    assert 1 - tolerance < named < most * (1 + tolerance)
    return result, ratio


def test_emulated_slow_rank_is_named_with_its_ratio(
    uneven_ranks: RankPool, noise_dir: pathlib.Path
) -> None:
    fields = {"batch_size": 16, "step_time_ms": 80.0}

    result, ratio = _slowed(uneven_ranks, noise_dir / "both", tolerance=0.15, **fields)

    seconds = _seconds_per_step(result)
    # Both ranks take 0.2 s for a step: one waits for input, the other for its peer.
    assert result["stall_fraction"] == pytest.approx(1 - 1 / ratio, abs=0.15)
    assert result["accelerator_utilization"] == pytest.approx(0.08 / seconds, abs=0.05)
    assert result["stall_fraction_per_rank"][0] < 0.1


def test_slow_rank_of_a_real_training_is_named_with_its_ratio(
    uneven_ranks: RankPool, noise_dir: pathlib.Path
) -> None:
    fields = {"batch_size": 16, "image_size": 96}

    # Without slow storage both ranks compute at the same time. Here rank 1 computes
    # later, so that a step of each may have both cores and take half of the time.
    result, _ = _slowed(
        uneven_ranks, noise_dir / "both", tolerance=0.2, most=2, **fields
    )

    found, seconds = result["critical_path"]["slowest"], _seconds_per_step(result)
    _, slow = found["own_seconds_per_step_per_rank"]
    assert slow == pytest.approx(seconds, rel=0.1)
    assert "Rank 1 holds the others back: its steps take " in found["text"]
    assert result["stall_fraction"] > 0.5
    assert result["accelerator_utilization"] < 0.5


def _train_alone(
    ranks: Ranks, folder: pathlib.Path, **fields: Any
) -> dict[str, Any] | None:
    """Feeds an emulated accelerator on rank 1, as if there were no other rank."""
    if ranks.is_first:
        return None
    fields = {"model": "tiny", "image_size": 32, "batch_size": 1, **fields}
    config = Config(data_dir=str(folder), step_time_ms=1.0, **fields)
    setting = make_setting(config, Ranks())
    # The native op reads a batch when it is wanted, and holds no window.
    stages = building.interleaved(setting.pipeline.stages)
    pipeline = dataclasses.replace(setting.pipeline, stages=stages)
    return loop.train(dataclasses.replace(setting, pipeline=pipeline), Ranks())


def test_what_was_read_ahead_is_not_the_rate_of_the_storage(
    uneven_ranks: RankPool, noise_dir: pathlib.Path
) -> None:
    """Two windows of 32 records are read before the first step of one record."""
    fields = {"num_warmup_steps": 10, "num_steps": 50}

    _, short = uneven_ranks.run(_train_alone, noise_dir / "one", **fields)
    _, long = uneven_ranks.run(_train_alone, noise_dir / "one", num_steps=320)

    gate = gates.Gate.parse("au>=0")
    typed = [tree.decode(TrainResult, result)[0] for result in (short, long)]
    rate = 1 / SECONDS_PER_RECORD
    assert short["examples_per_second"] > 1.2 * rate
    assert not short["steady_state"]["reached"]
    assert 0.7 * rate < long["examples_per_second"] < 1.1 * rate  # less if busy
    assert long["steady_state"]["reached"]
    assert [gate.check(result).passed for result in typed] == [False, True]
    assert long["num_warmup_steps"] == 64
    wait = [long[f"{kind}_steps"]["wait_seconds_p50"] for kind in ("window", "other")]
    assert wait[0] > 10 * wait[1]
