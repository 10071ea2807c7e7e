"""One process of a host that reads epochs through a shard cache, as a rank does.

Its one argument is a JSON object. folder: of `make_shards`. cache: its folder.
max_bytes, num_connections: of the cache. rank, num_ranks, num_epochs, num_windows: what
is read. log: a file that gets a line a request. pause: seconds that a request takes.
stall_after: requests before the store stalls. piece_bytes: most bytes of a piece.
shared_directory: of the cache. stale_seconds: after which a lease counts as stale.
begin_with: the number of processes that must have opened the cache before one reads.
It prints {"digest", "statistics"} of what it read.
"""

import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import sys
import threading
import time
from typing import Any

import tfpipe
from tests.support.data.shards import ScriptedFiles, load_shards, read_records
from tfpipe.reading.order import EpochPosition, Order
from tfpipe.shard_cache import leases, pieces as cuts


def main(job: dict[str, Any]) -> None:
    cuts._MOST_BYTES = job["piece_bytes"]
    if "stale_seconds" in job:
        leases.STALE_SECONDS = job["stale_seconds"]
        leases.RAISE_SECONDS = job["stale_seconds"] / 6
    made = load_shards(job["folder"])
    num_asked = itertools.count()
    log = os.open(job["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def change(name: str, start: int, content: bytes) -> bytes:
        os.write(log, f"{job['rank']} {name} {start}\n".encode())
        if next(num_asked) >= job.get("stall_after", 1 << 30):
            threading.Event().wait()
        time.sleep(job.get("pause", 0))
        return content

    order = Order(
        shard_sizes=made.sizes,
        window_size=16,
        block_length=8,
        num_ranks=job["num_ranks"],
    )
    rank = job["rank"]
    places = [EpochPosition(epoch) for epoch in range(job["num_epochs"])]
    windows = [
        order.window(rank, place, number).ranges
        for place in places
        for number in order.windows(rank, place)
    ]
    cache = tfpipe.ShardCache(
        job["cache"],
        max_bytes=job.get("max_bytes"),
        shared_directory=job.get("shared_directory"),
        num_connections=job.get("num_connections", 16),
    )
    opened = cache.open(
        ScriptedFiles(str(made.folder), change=change),
        made.folder,
        made.split,
        made.shards,
        made.byte_offsets,
    )
    reader = opened.reader(lambda: iter(windows))
    if "begin_with" in job:
        begin_together(pathlib.Path(job["log"]).with_name("opened"), job["begin_with"])
    digest = hashlib.sha256()
    for ranges in windows[: job.get("num_windows")]:
        paths = reader.next_window(ranges)
        for data in read_records(made, ranges, paths):
            digest.update(data)
    statistics = dataclasses.asdict(opened.statistics())
    print(json.dumps({"digest": digest.hexdigest(), "statistics": statistics}))


def begin_together(path: pathlib.Path, num_processes: int) -> None:
    """Returns as soon as as many processes have called it."""
    with open(path, "ab") as file:
        file.write(b"x")
    end = time.monotonic() + 60
    while path.stat().st_size < num_processes:
        assert time.monotonic() < end, "another process has not begun"
        time.sleep(0.0005)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
