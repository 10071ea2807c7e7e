"""Runs of the study: the data, the calibration, and one run of a setting.

In: a converted data set and settings. Out: figures of `benchmarks.input` and
`benchmarks.train`, each started as a process of its own.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import tfpipe
from benchmarks.system import page_cache
from studies.advice import limits
from studies.advice.settings import (
    CACHED_WINDOWS,
    WINDOW,
    Calibration,
    Setting,
)

# The kernel reads up to some megabytes ahead within a file (read_ahead_kb of the disk):
# more than an extent, and records of other windows. A shard of one extent leaves
# nothing to read ahead, so that the storage gives what is used and no more.
_SHARD_RECORDS = 32
_SPLIT = "train"
_TIME_LIMIT = 400.0
_CALIBRATION_BATCH = 48
_CALIBRATION_STEP_MS = 200.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """The data of all runs.

    Attributes:
        large: Folder of a data set that no run reads twice.
        small: Folder of a data set that is read through a cache, epoch after epoch.
        cache_dir: Folder in memory, for shard caches.
        num_timed_windows: Shuffle windows of a run that are timed.
    """

    large: pathlib.Path
    small: pathlib.Path
    cache_dir: pathlib.Path
    num_timed_windows: int

    @property
    def num_large(self) -> int:
        """Records of the large data set: read ahead, timed and read ahead again."""
        return (self.num_timed_windows + 6) * WINDOW

    @property
    def num_small(self) -> int:
        """Records of the small data set."""
        return CACHED_WINDOWS * WINDOW

    def of(self, setting: Setting) -> pathlib.Path:
        """Returns the folder that a setting reads."""
        return self.large if setting.cache_share is None else self.small

    def num_images(self, setting: Setting) -> int:
        """Returns the records of an epoch of a setting."""
        return self.num_large if setting.cache_share is None else self.num_small


def shards(folder: pathlib.Path) -> Sequence[Any]:
    """Returns the shards of a data set, each with num_records and num_bytes."""
    return tfpipe.TFRecordSource(folder, _SPLIT).index.splits[_SPLIT]


def write_data(data_dir: str, folder: pathlib.Path, num_records: int) -> None:
    """Writes the records of a data set, repeated, into small shards.

    Args:
        data_dir: Folder of a converted data set.
        folder: Folder of the new one; used as it is if it has as many records.
        num_records: Records to write, a multiple of 32.

    Raises:
        OSError: If the files cannot be written or indexed.
        ValueError: If the folder has another data set.
    """
    if (folder / "index.json").exists():
        found = sum(shard.num_records for shard in shards(folder))
        if found != num_records:
            raise ValueError(
                f"{folder} must hold {num_records} records, got {found}. Remove it, or "
                "give another --advice_dir."
            )
        return
    import tensorflow as tf

    source = [str(pathlib.Path(data_dir, shard.name)) for shard in shards(data_dir)]  # type: ignore[arg-type]
    endless = itertools.cycle(
        record.numpy() for record in tf.data.TFRecordDataset(source)
    )
    folder.mkdir(parents=True, exist_ok=True)
    num_shards = num_records // _SHARD_RECORDS
    for number in range(num_shards):
        name = f"{_SPLIT}-{number:05d}-of-{num_shards:05d}"
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for record in itertools.islice(endless, _SHARD_RECORDS):
                writer.write(record)
    os.sync()  # pages that are not on disk yet cannot be evicted
    indexed = subprocess.run(
        [sys.executable, "-m", "converters.verify", str(folder), "--write_index"],
        capture_output=True,
        text=True,
        check=False,
    )
    if indexed.returncode:
        raise OSError(f"{folder} cannot be indexed: {indexed.stderr[-500:]}")


def train(place: Place, setting: Setting, *flags: str) -> dict[str, Any]:
    """Runs `benchmarks.train` with a setting; returns its result.

    The records of a limited storage are not in memory when the run begins. Timing
    begins and ends with whole shuffle windows, or with whole epochs of a cached run.

    Args:
        place: The data.
        setting: The run.
        flags: More flags of the command.

    Raises:
        OSError: If the run fails.
    """
    folder = place.of(setting)
    files = [str(folder / shard.name) for shard in shards(folder)]
    warmup, timed = setting.num_windows, place.num_timed_windows
    with contextlib.ExitStack() as stack:
        more = list(flags)
        if setting.cache_share is not None:
            cache = tempfile.TemporaryDirectory(dir=place.cache_dir)
            num_bytes = sum(shard.num_bytes for shard in shards(folder))
            gigabytes = setting.cache_share * num_bytes / 1e9
            more.append(f"--shard_cache_dir={stack.enter_context(cache)}")
            more.append(f"--shard_cache_max_gb={gigabytes:.6f}")
            timed = 2 * CACHED_WINDOWS  # whole epochs
        limit = setting.storage_bytes_per_second
        if limit is not None:
            page_cache.evict(files)
        group = stack.enter_context(limits.limited(folder, limit))
        if setting.cache_share is not None:
            stack.enter_context(limits.kept_cold(files))
        printed = limits.run(
            [
                *(sys.executable, "-m", "benchmarks.train", f"--data_dir={folder}"),
                f"--batch_size={setting.batch_size}",
                f"--step_time_ms={setting.step_time_ms}",
                f"--num_warmup_steps={warmup * WINDOW // setting.batch_size}",
                f"--num_steps={timed * WINDOW // setting.batch_size}",
                *more,
            ],
            cores=_cores(setting.num_cores),
            group=group,
            time_limit=_TIME_LIMIT,
        )
    result: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return result


def calibrate(place: Place, *, can_limit: bool) -> tuple[Calibration, dict[str, Any]]:
    """Measures this host; returns the figures, and the runs they come from.

    Args:
        place: The data.
        can_limit: Whether the storage can be limited.

    Raises:
        OSError: If a run fails.
    """
    num_cores = len(os.sched_getaffinity(0))
    printed = limits.run(
        [
            *(sys.executable, "-m", "benchmarks.input", f"--data_dir={place.large}"),
            *("--do=throughput", f"--batch_size={_CALIBRATION_BATCH}", "--seconds=10"),
        ],
        cores=_cores(num_cores),
        group=None,
        time_limit=_TIME_LIMIT,
    )
    cpu = json.loads(printed.splitlines()[-1])
    slow = Setting(
        num_cores=num_cores,
        batch_size=_CALIBRATION_BATCH,
        step_time_ms=_CALIBRATION_STEP_MS,
    )
    short = dataclasses.replace(place, num_timed_windows=3)
    step = train(short, slow)
    images = {"input": cpu["examples_per_second"], "step": step["examples_per_second"]}
    records = shards(place.large)
    record_bytes = sum(s.num_bytes for s in records) / sum(
        s.num_records for s in records
    )
    share = 1.0
    if can_limit:
        limit = round(0.3 * images["input"] * record_bytes)
        fast = dataclasses.replace(
            slow, batch_size=64, step_time_ms=1.0, storage_bytes_per_second=limit
        )
        read = train(short, fast, "--read_only")
        images["read_only"] = read["examples_per_second"]
        share = min(1.0, images["read_only"] * record_bytes / limit)
    overhead = _CALIBRATION_BATCH / images["step"] - _CALIBRATION_STEP_MS / 1e3
    return Calibration(
        num_cores=num_cores,
        core_seconds=num_cores / images["input"],
        step_overhead_seconds=max(0.0, overhead) / _CALIBRATION_BATCH,
        storage_share=share,
        record_bytes=record_bytes,
    ), {"images_per_second": images, "cpu_seconds": cpu["cpu_seconds_per_example"]}


def _cores(number: int) -> list[int]:
    return sorted(os.sched_getaffinity(0))[:number]
