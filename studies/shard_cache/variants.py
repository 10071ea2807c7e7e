"""Variants of the study: reading, downloading, and the hits of a small cache.

In: the name of a variant and a `Job`. Out: its figures. `studies.shard_cache` measures
a variant in a process of its own.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import tfpipe
from studies import harness
from studies.shard_cache import belady, server

_PIECE_BYTES = 4 << 20  # as the shard cache fetches
_SPLIT = "train"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(harness.Job):
    """The work of a variant.

    Attributes:
        url: URL of the same data set.
        cache_dir: Folder of the shard cache, or of the downloaded files.
        num_connections: Requests at once, for downloads.
        max_bytes: Limit of the shard cache; None is no limit.
        num_epochs: Epochs to read, for hit rates.
        window_size: Records of a window, for hit rates.
    """

    url: str
    cache_dir: str
    num_connections: int = 16
    max_bytes: int | None = None
    num_epochs: int = 3
    window_size: int = 1024

    @property
    def cache(self) -> tfpipe.ShardCache:
        """The shard cache."""
        return tfpipe.ShardCache(
            self.cache_dir,
            max_bytes=self.max_bytes,
            num_connections=self.num_connections,
        )


def _batches(source: tfpipe.TFRecordSource, job: Job, *, decode: bool) -> Iterator:
    pipeline = tfpipe.imagenet_train(
        source,
        recipe=tfpipe.recipes.resnet if decode else None,
        image_size=job.image_size,
    )
    return iter(pipeline.build(num_epochs=None))


def _cost(job: Job, *, cached: bool, decode: bool) -> Mapping[str, float]:
    """Measures CPU-seconds and seconds of batches, from memory."""
    if cached:
        source = tfpipe.TFRecordSource(
            job.url, _SPLIT, batch_size=job.batch_size, shard_cache=job.cache
        )
    else:
        source = tfpipe.TFRecordSource(job.data_dir, _SPLIT, batch_size=job.batch_size)
    batches = _batches(source, job, decode=decode)
    run = harness.time_batches(batches, job, time.process_time)
    statistics = source.cache_statistics()
    if statistics is not None and statistics.bytes_from_server:
        raise OSError("the shard cache was not warm")
    return run


def _download(job: Job, get: Callable[[Job], None]) -> Mapping[str, float]:
    """Measures the download of all shards of the split to an empty folder.

    The files are on the disk at the end, like the files of the shard cache.
    """
    folder = pathlib.Path(job.cache_dir)
    shutil.rmtree(folder, ignore_errors=True)
    shards = tfpipe.TFRecordSource(job.data_dir, _SPLIT).shards
    start, cpu = time.perf_counter(), _cpu_seconds()
    get(job)
    for path in folder.rglob(f"{_SPLIT}-*"):
        _sync(path)
    run = {
        "seconds": time.perf_counter() - start,
        "process_cpu_seconds": _cpu_seconds() - cpu,
        "num_bytes": float(sum(shard.num_bytes for shard in shards)),
    }
    shutil.rmtree(folder, ignore_errors=True)
    return run


def _sync(path: pathlib.Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _cpu_seconds() -> float:
    return sum(os.times()[:4])  # with the children that have ended


def _fill(job: Job) -> None:
    filled = job.cache.fill(job.url, _SPLIT)
    if filled.num_bytes_present != filled.num_bytes_total:
        raise OSError("the data set does not fit in the shard cache")


def _obstore(job: Job) -> None:
    """Downloads with obstore alone: ranges of 4 MiB, written to their offsets."""
    import obstore

    store = server.store_of(job.url)
    folder = pathlib.Path(job.cache_dir)
    folder.mkdir(parents=True)
    with concurrent.futures.ThreadPoolExecutor(job.num_connections) as threads:
        files = {}
        asked = []

        def fetch(name: str, start: int, stop: int) -> None:
            content = obstore.get_range(store, name, start=start, end=stop)
            os.pwrite(files[name], content, start)

        for shard in tfpipe.TFRecordSource(job.data_dir, _SPLIT).shards:
            name, size = shard.name, shard.num_bytes
            files[name] = os.open(folder / name, os.O_WRONLY | os.O_CREAT)
            for start in range(0, size, _PIECE_BYTES):
                stop = min(start + _PIECE_BYTES, size)
                asked.append(threads.submit(fetch, name, start, stop))
        for request in asked:
            request.result()
    for descriptor in files.values():
        os.close(descriptor)


def rclone_program() -> str | None:
    """Returns the path of rclone, beside Python or on the PATH; or None."""
    beside = pathlib.Path(sys.executable).with_name("rclone")
    return str(beside) if beside.exists() else shutil.which("rclone")


def _rclone(job: Job) -> None:
    settings = {
        "RCLONE_CONFIG_STUDY_TYPE": "s3",
        "RCLONE_CONFIG_STUDY_PROVIDER": "SeaweedFS",
        "RCLONE_CONFIG_STUDY_ENV_AUTH": "true",
        "RCLONE_CONFIG_STUDY_ENDPOINT": os.environ["AWS_ENDPOINT_URL"],
    }
    command = [
        *(str(rclone_program()), "copy", f"study:{job.url.removeprefix('s3://')}"),
        *(job.cache_dir, "--include", f"{_SPLIT}-*", "--multi-thread-streams=0"),
        *(f"--transfers={job.num_connections}", f"--checkers={job.num_connections}"),
    ]
    environment = {**os.environ, **settings}
    subprocess.run(command, check=True, env=environment, capture_output=True)


def _hits(job: Job) -> Mapping[str, float]:
    """Reads epochs through a small cache; compares its hits with the best possible."""
    source = tfpipe.TFRecordSource(
        job.url,
        _SPLIT,
        batch_size=job.batch_size,
        window_size=job.window_size,
        shard_cache=job.cache,
    )
    pipeline = tfpipe.imagenet_train(source, recipe=None)
    collections.deque(pipeline.build(num_epochs=job.num_epochs), maxlen=0)
    statistics = source.cache_statistics()
    assert statistics is not None
    return {
        "hit_rate": statistics.num_pieces_from_cache / statistics.num_pieces_wanted,
        "optimal_hit_rate": belady.hit_rate(
            belady.windows(source, job.num_epochs),
            belady.piece_bytes(source),
            job.max_bytes or 0,
        ),
        "num_pieces_wanted": float(statistics.num_pieces_wanted),
        "bytes_from_server": float(statistics.bytes_from_server),
    }


VARIANTS: Mapping[str, Callable[[Job], Mapping[str, float]]] = {
    "local files": lambda job: _cost(job, cached=False, decode=True),
    "warm cache": lambda job: _cost(job, cached=True, decode=True),
    "local files, not decoded": lambda job: _cost(job, cached=False, decode=False),
    "warm cache, not decoded": lambda job: _cost(job, cached=True, decode=False),
    "shard cache": lambda job: _download(job, _fill),
    "obstore": lambda job: _download(job, _obstore),
    "rclone": lambda job: _download(job, _rclone),
    "hits": _hits,
}

# Pairs of variants with the same work, without a cache and with a cache.
PAIRS = (
    ("local files", "warm cache"),
    ("local files, not decoded", "warm cache, not decoded"),
)


def measure(name: str, job: Job) -> Mapping[str, float]:
    """Measures a variant in the current process."""
    return VARIANTS[name](job)
