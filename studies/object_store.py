"""Does the probe of benchmarks.storage read a store as fast as obstore itself?

  python -m studies.object_store --url=s3://BUCKET/FOLDER

Question: how much do the probe and `tfpipe.Files` cost on top of obstore, the package
for the requests? Both read the shards of a data set in turns, in the process of the
study, with the same threads and the same ranges of 4 MiB. A shard cache fetches the
same ranges. The order changes with the round, so a slower server favors nobody.

Read `ratio`, the median over the rounds of the probe's rate over obstore's, and
`cpu_ratio`, the same for the CPU-seconds of a byte. Needs a data set in a store, and
its credentials. The last line on stdout is a JSON object. Exit code 2 if the ratio is
below 0.9.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

from benchmarks.results.other_results import StorageReading
from benchmarks.storage_probe import probe, probe_files, reads
from benchmarks.storage_probe.reads import Piece
from studies import harness
from studies.figures import Run, ratios
from tfpipe import cli

_LEAST_RATIO = 0.9


@cli.options
class Options(harness.StudyOptions):
    """Options of the study."""

    num_rounds: int = 11
    url: str = cli.required("URL of a data set in a store.", url=True)
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
    measurement = StorageReading(what=probe.SHARDS, state=probe.REMOTE)
    job = reads.Job(
        kind=reads.SEQUENTIAL,
        pieces=pieces,
        seconds=3600.0,
        block_bytes=probe.block_bytes(measurement),
        num_threads=num_threads,
        url=url,
    )
    reading = reads.TimedReads(job)
    return _timed(lambda: int(reading.run()["num_bytes"]))


def by_obstore(url: str, pieces: Sequence[Piece], num_threads: int) -> dict[str, float]:
    """Reads the same ranges with obstore alone.

    Args:
        url: The store.
        pieces: The pieces.
        num_threads: Threads; each takes piece after piece.
    """
    import obstore

    store = obstore.store.from_url(url, client_options={"allow_http": True})
    size = probe.block_bytes(StorageReading(what=probe.SHARDS, state=probe.REMOTE))
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


def _study(options: Options) -> harness.Outcome:
    with probe_files.opened(options.url) as files:
        pieces = files.pieces

    def run(program: str, _: int) -> Run:
        read = by_probe if program == "probe" else by_obstore
        return read(options.url, pieces, options.num_threads)

    runs = harness.turns(
        ["obstore", "probe"], run, options.num_rounds, alternating=True
    )
    pairs = [
        ratios(runs["probe"], runs["obstore"], itemgetter(name))
        for name in ("bytes_per_second", "cpu_seconds_per_byte")
    ]
    ratio, cpu_ratio = map(statistics.median, pairs)
    return harness.Outcome(
        figures={
            "config": {"turns": options.num_rounds, "threads": options.num_threads},
            "num_bytes": sum(stop - start for _, start, stop in pieces),
            "ratio": ratio,
            "cpu_ratio": cpu_ratio,
            "turns": [
                {"obstore": plain, "probe": own}
                for plain, own in zip(runs["obstore"], runs["probe"], strict=True)
            ],
        },
        table=(
            f"probe over obstore: rate {ratio:.3f} ({min(pairs[0]):.3f} to "
            f"{max(pairs[0]):.3f} over {options.num_rounds} turns), CPU time of a byte "
            f"{cpu_ratio:.3f}"
        ),
        misses=[f"The ratio is {ratio:.3f}, must be at least {_LEAST_RATIO}."]
        if ratio < _LEAST_RATIO
        else [],
    )


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.object_store", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
