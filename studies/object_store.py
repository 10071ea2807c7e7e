"""Are a store's probe and its epochs as fast as obstore itself?

  python -m studies.object_store --url=s3://BUCKET/FOLDER --work_dir=WORK

Question: how much do the probe of benchmarks.storage and the epochs of a pipeline cost
on top of obstore, the package for the requests? All read the shards of a data set in
turns, in the process of the study, with the same threads. The order changes with the
round, so a slower server favors nobody.

  obstore  ranges of 4 MiB, whose bytes are dropped
  probe    the same ranges by `tfpipe.Files`, as benchmarks.storage reads
  cold     the train split in the order of training through an empty shard cache in
           --work_dir, records checked and kept
  warm     the next epoch, from the cache

The graph of a pipeline, the client of obstore and the index come before the clock
starts.

Read `ratio`, the median over the rounds of the probe's rate over obstore's,
`cpu_ratio`, the same for the CPU-seconds of a byte, and `cold` and `warm`. Needs a data
set in a store, and its credentials. The last line on stdout is a JSON object. Exit code
2 if the ratio is below 0.9, or the ratio of a cold epoch below 0.8.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

import tfpipe
from benchmarks.storage_probe import probe, probe_files, reads
from benchmarks.storage_probe.reads import Piece
from studies import harness
from studies.figures import Run, ratios, spread
from tfpipe import cli

_LEAST_RATIO, _LEAST_COLD = 0.9, 0.8
_EPOCHS = ("cold", "warm")


@cli.options
class Options(harness.StudyOptions):
    """Options of the study."""

    num_rounds: int = 11
    url: str = cli.required("URL of a data set in a store.", url=True)
    work_dir: str = cli.required("Folder on a local disk, for the shard cache.")
    num_threads: int = cli.flag(4, "Threads, reading at the same time.", least=1)


def _timed(read: Callable[[], int]) -> dict[str, float]:
    """Returns rate and CPU time of a function; the function returns its bytes."""
    cpu, start = time.process_time(), time.perf_counter()
    num_bytes = read()
    seconds = time.perf_counter() - start
    return {
        "bytes_per_second": num_bytes / seconds,
        "cpu_seconds_per_byte": (time.process_time() - cpu) / num_bytes,
    }


def by_probe(url: str, pieces: Sequence[Piece], num_threads: int) -> dict[str, float]:
    """Reads pieces once as the probe does.

    Args:
        url: The store.
        pieces: The pieces.
        num_threads: Threads; each takes piece after piece.
    """
    job = reads.Job(
        kind=reads.SEQUENTIAL,
        pieces=pieces,
        seconds=3600.0,
        block_bytes=probe.REMOTE_BYTES,
        num_threads=num_threads,
        url=url,
    )
    outcomes = reads.timed(job)
    next(outcomes)  # the job is ready
    return _timed(lambda: int(next(outcomes)["num_bytes"]))


def by_obstore(url: str, pieces: Sequence[Piece], num_threads: int) -> dict[str, float]:
    """Reads the same ranges with obstore alone.

    Args:
        url: The store.
        pieces: The pieces.
        num_threads: Threads; each takes piece after piece.
    """
    import obstore

    store = obstore.store.from_url(url, client_options={"allow_http": True})
    size = probe.REMOTE_BYTES
    shared, lock = iter(pieces), threading.Lock()
    num_bytes = [0] * num_threads

    def own() -> Iterator[Piece]:
        while True:
            with lock:
                piece = next(shared, None)
            if piece is None:
                return
            yield piece

    def work(thread: int) -> None:
        for name, start, stop in own():
            for offset in range(start, stop, size):
                end = min(offset + size, stop)
                content = obstore.get_range(store, name, start=offset, end=end)
                num_bytes[thread] += len(content)

    def read() -> int:
        threads = [
            threading.Thread(target=work, args=(index,)) for index in range(num_threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(num_bytes)

    return _timed(read)


class Epochs:
    """Epochs through a shard cache, which the cold ones empty first.

    Args:
        url: The store.
        folder: Folder of the cache, which does not exist.
        num_threads: Connections of the cache.
    """

    def __init__(self, url: str, folder: pathlib.Path, num_threads: int) -> None:
        self._url, self._folder = url, folder
        self._num_threads, self._number = num_threads, 0

    def read(self, program: str) -> dict[str, float]:
        """Reads an epoch from a cold or a warm cache; its records are dropped."""
        if program == "cold":
            shutil.rmtree(self._folder, ignore_errors=True)
        cache = tfpipe.ShardCache(self._folder, num_connections=self._num_threads)
        if program == "warm":
            cache.fill(self._url, "train")
        source = tfpipe.TFRecordSource(self._url, "train", shard_cache=cache)
        self._number += 1
        pipeline = tfpipe.Pipeline(source, [tfpipe.Interleave()])
        # TensorFlow drops the records itself: no time goes into handing them out.
        dropped = pipeline.build(epoch=self._number).skip(source.steps_per_epoch)

        def epoch() -> int:
            list(dropped)
            return sum(shard.num_bytes for shard in source.shards)

        timed = _timed(epoch)
        source.close_cache()
        return timed


def _study(options: Options) -> harness.Outcome:
    with probe_files.opened(options.url) as files:
        pieces = files.pieces

    folder = pathlib.Path(options.work_dir, "epochs")
    epochs = Epochs(options.url, folder, options.num_threads)

    def run(program: str, _: int) -> Run:
        if program in _EPOCHS:
            return epochs.read(program)
        read = by_probe if program == "probe" else by_obstore
        return read(options.url, pieces, options.num_threads)

    # The order of the first round: the cold epoch leaves the cache of the warm one.
    names = ["obstore", "probe", *_EPOCHS]
    runs = harness.turns(names, run, options.num_rounds, alternating=True)
    shutil.rmtree(folder, ignore_errors=True)
    return _outcome(options, runs, sum(stop - start for _, start, stop in pieces))


def _outcome(
    options: Options, runs: dict[str, list[Run]], num_bytes: int
) -> harness.Outcome:
    pairs = [
        ratios(runs["probe"], runs["obstore"], itemgetter(name))
        for name in ("bytes_per_second", "cpu_seconds_per_byte")
    ]
    ratio, cpu_ratio = map(statistics.median, pairs)
    rate = itemgetter("bytes_per_second")
    cold, warm = (
        spread("ratio", ratios(runs[name], runs["obstore"], rate)) for name in _EPOCHS
    )
    misses = [
        f"The ratio of {name} is {got:.3f}, must be at least {least}."
        for name, got, least in (
            ("the probe", ratio, _LEAST_RATIO),
            ("a cold epoch", cold["ratio"], _LEAST_COLD),
        )
        if got < least
    ]
    return harness.Outcome(
        figures={
            "config": {"turns": options.num_rounds, "threads": options.num_threads},
            "num_bytes": num_bytes,
            "ratio": ratio,
            "cpu_ratio": cpu_ratio,
            "cold": cold,
            "warm": warm,
            "load": os.getloadavg()[0],
            "turns": [
                dict(zip(runs, turn, strict=True))
                for turn in zip(*runs.values(), strict=True)
            ],
        },
        table=(
            f"probe over obstore: rate {ratio:.3f} ({min(pairs[0]):.3f} to "
            f"{max(pairs[0]):.3f} over {options.num_rounds} turns), CPU time of a byte "
            f"{cpu_ratio:.3f}\n"
            f"epochs over obstore: cold {cold['ratio']:.3f} ({cold['ratio_min']:.3f} "
            f"to {cold['ratio_max']:.3f}), warm {warm['ratio']:.3f}"
        ),
        misses=misses,
    )


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.object_store", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
