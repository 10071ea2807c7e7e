"""A full shard cache at the size of large data sets, without their bytes: its cost.

In: sizes of data sets and a number of ranks. Out: the time to open the cache, the bytes
of its readers, and the time to make room for pieces. The files are sparse, and marks
say a fifth of the pieces is there: no byte is fetched, and all requests evict.
"""

import contextlib
import pathlib
import shutil
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfpipe.location.location import Location
from tfpipe.shard_cache import pieces as cuts, store as stores
from tfpipe.shard_cache.directory import Directory
from tfpipe.shard_cache.users import User
from tfpipe.shards.index import Shard

# A shard of 1 GiB has 512 records of 2 MiB, and so 256 pieces of 4 MiB.
_SHARD_BYTES, _RECORDS = 1 << 30, 512
# Share of the pieces in the cache.
_SHARE = 0.2
# Pieces of a request, as the downloader claims them, and requests that are timed.
_BATCH, _NUM_REQUESTS = 8, 400
# Bytes of a piece for the bound: a piece has 2 to 4 MB.
_LEAST_PIECE_BYTES = 2.1e6
_WINDOW_RECORDS = 1024


def row(terabytes: float, num_ranks: int, folder: pathlib.Path) -> dict[str, Any]:
    """Measures the cache of a data set.

    Args:
        terabytes: Size of the data set.
        num_ranks: Number of readers.
        folder: A new folder for the cache, removed at the end.

    Returns:
        terabytes, pieces, open_seconds, users_megabytes, reserve_milliseconds,
        reserve_cpu_milliseconds, and megabytes_per_second: the rate at which eviction
        lets the host fetch. These times are medians. reserve_p99_milliseconds; and
        worst: the milliseconds, CPU-milliseconds and number of the longest request.
    """
    content = _content(terabytes)
    num_pieces = len(content.pieces)
    start = time.perf_counter()
    directory = Directory(folder, int(terabytes * 1e12))
    store, user = directory.open(content)
    opened = time.perf_counter() - start
    random = np.random.default_rng(0)
    try:
        _fill(store, random)
        directory.max_bytes = store.num_bytes()
        others = [
            User(store.folder / "users", num_pieces) for _ in range(num_ranks - 1)
        ]
        with _reading([user, *others], num_pieces, random):
            requests = _requests(directory, store)
            users = (store.folder / "users").iterdir()
            num_bytes = sum(path.stat().st_blocks * 512 for path in users)
    finally:
        directory.close()
        shutil.rmtree(folder)
    seconds, cpu_seconds = zip(*requests, strict=True)
    median, worst = statistics.median(seconds), max(seconds)
    longest = seconds.index(worst)
    return {
        "terabytes": terabytes,
        "pieces": num_pieces,
        "open_seconds": opened,
        "users_megabytes": num_bytes / 1e6,
        "reserve_milliseconds": median * 1e3,
        "reserve_cpu_milliseconds": statistics.median(cpu_seconds) * 1e3,
        "reserve_p99_milliseconds": float(np.quantile(seconds, 0.99)) * 1e3,
        "worst": {
            "milliseconds": worst * 1e3,
            "cpu_milliseconds": cpu_seconds[longest] * 1e3,
            "request": longest,
        },
        "megabytes_per_second": _BATCH * _LEAST_PIECE_BYTES / median / 1e6,
    }


def _content(terabytes: float) -> stores.SplitContent:
    count = max(int(terabytes * 1e12 / _SHARD_BYTES), 1)
    sizes = np.full(count, _RECORDS, np.int64)
    record_bytes = _SHARD_BYTES // _RECORDS
    offsets = np.tile(np.arange(_RECORDS, dtype=np.int64) * record_bytes, count)
    pieces = cuts.cut(sizes, offsets, np.full(count, _SHARD_BYTES, np.int64))
    shards = [
        Shard(
            name=f"train-{index:05d}-of-{count:05d}",
            num_records=_RECORDS,
            num_bytes=_SHARD_BYTES,
            digest="0" * 32,
        )
        for index in range(count)
    ]
    return stores.SplitContent(
        location=Location("s3://bucket/data"),
        split="train",
        shards=shards,
        pieces=pieces,
    )


def _fill(store: stores.PieceStore, random: np.random.Generator) -> None:
    for shard in range(len(store.shards)):
        store.remake(shard)
    count = len(store.marks)
    there = random.permutation(count)[: int(count * _SHARE)]
    store.marks[there] = stores.PRESENT
    store.recount()


@contextlib.contextmanager
def _reading(
    users: list[User], num_pieces: int, random: np.random.Generator
) -> Iterator[None]:
    """Gives all users a reader with a planned use of every piece."""
    for user in users:
        _, reader = user.take_row()
        reader.plan.use[:] = random.integers(3, 10**5, num_pieces)
        reader.hand_out(1, 2, _WINDOW_RECORDS)
    try:
        yield
    finally:
        for user in users:
            user.close()


def _requests(
    directory: Directory, store: stores.PieceStore
) -> list[tuple[float, float]]:
    """Returns the seconds and CPU-seconds of requests, all of them with evictions."""
    absent = np.flatnonzero(store.marks == stores.ABSENT)
    requests = []
    for begin in range(0, min(_NUM_REQUESTS * _BATCH, len(absent)), _BATCH):
        wanted = absent[begin : begin + _BATCH].tolist()
        start, cpu_start = time.perf_counter(), time.process_time()
        granted = directory.reserve(store, wanted, ahead=False)
        seconds = time.perf_counter() - start
        requests.append((seconds, time.process_time() - cpu_start))
        for piece in granted.pieces:
            store.marks[piece] = stores.PRESENT
            store.unclaim(piece)
    return requests
