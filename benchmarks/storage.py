"""How fast is a storage, and how many accelerators does it feed?

  python -m benchmarks.storage DIR_OR_URL
  python -m benchmarks.storage DIR_OR_URL --for_model=vgg16 --report_dir=REPORTS
  python -m benchmarks.storage warm DIR_OR_URL --cache_dir=C --cache_max_gb=G

The first form measures. In a folder without a data set it makes files of its own, up to
1 GB and a tenth of the free space, and removes them at the end, also after Ctrl-C. In a
folder or a store with an index.json it reads the shards, at most 4 GB of them, and
writes nothing; shards in the page cache are evicted. It reads 1 MB at a time in order,
4 kB at random, and whole shards with more and more threads and processes; it opens
files and asks for their size. It reads around the page cache (O_DIRECT) or with a cold
one, and with a warm one; each figure says how much of the files was in memory before.
Only the caches of this host are emptied: a file server or a store keeps its own.

The second form brings the shards of a data set into a shard cache before a run.

On stdout: a table, the number of accelerators that the storage feeds, and one JSON
object as the last line. With --report_dir the object is stored for python -m
benchmarks.report. On stderr: progress. Exit code: 0 done, 1 an error.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import tfpipe
from benchmarks.models import catalog
from benchmarks.options import data_access
from benchmarks.planning import published
from benchmarks.reporting import answers, output
from benchmarks.reporting.progress import Progress
from benchmarks.storage_probe import feeds, probe, probe_files, summary
from benchmarks.storage_probe.workers import Workers
from tfpipe import cli
from tfpipe.cli import progress as bars

_LEAST_SECONDS = 0.1
_PLACE = "DIR_OR_URL"


@cli.options
class StorageOptions:
    """Options of the measurement."""

    place: str = cli.argument("Folder, or URL of a data set.", shown=_PLACE, url=True)
    seconds: float = cli.flag(3.0, "Most seconds of each measurement.", least=0.1)
    max_parallel: int = cli.flag(
        16,
        "Most threads, and most processes, that read at the same time.",
        least=1,
        most=256,
    )
    for_model: tuple[str, ...] = cli.flag(
        ("resnet50", "inception_v4"),
        "Models of benchmarks.train that the storage shall feed.",
        choices=sorted(catalog.MODELS),
    )
    report_dir: str | None = data_access.report_dir()


@cli.options
class WarmOptions:
    """Options of filling a shard cache."""

    location: str = cli.argument("Folder or URL of a data set.", shown=_PLACE, url=True)
    cache_dir: str = cli.required("Folder of the shard cache.")
    cache_max_bytes: int | None = cli.flag(
        None,
        "Most GB that the shards of all data sets in --cache_dir may take. Default: "
        "80 % of the free room.",
        name="cache_max_gb",
        parse=cli.gigabytes,
    )


def run(config: StorageOptions) -> None:
    """Measures, prints and stores the figures of a storage.

    Args:
        config: Settings of the command.

    Raises:
        ValueError: If the storage cannot be measured.
        OSError: If its files cannot be read or written, or a read does not come back.
        TfpipeError: If a store does not answer.
    """
    if config.report_dir:
        # First, so that an unusable folder is known before the work.
        pathlib.Path(config.report_dir).mkdir(parents=True, exist_ok=True)
    now = output.now()
    progress = Progress()
    progress.begin("finding or making the files")
    with (
        progress.shown(is_first=True),
        probe_files.opened(config.place) as files,
        Workers() as workers,
    ):
        measured = list(
            probe.run(
                files,
                workers,
                seconds=config.seconds,
                max_parallel=config.max_parallel,
                begin=progress.begin,
            )
        )
    result = {
        "command": "benchmarks.storage",
        "schema_version": 1,
        "started_at": now.isoformat(timespec="seconds"),
        "config": dataclasses.asdict(config),
        "num_ranks": 1,
        "place": files.as_json(),
        "measurements": measured,
        **_feeds(config, files, measured),
        "storage_bytes_read": sum(m.get("storage_bytes") or 0 for m in measured),
        "environment": _environment(),
    }
    details = [summary.table(measured), *result["sentences"]]
    output.show(result, *answers.storage(result), details=details)
    if config.report_dir:
        output.write(result, output.path_in(config.report_dir, "storage", now))


def _feeds(
    config: StorageOptions,
    files: probe_files.ProbeFiles,
    measured: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Returns the best rate, the accelerators that it feeds, and both as sentences."""
    best = feeds.best(measured)
    if best is None:
        return {"feeds": [], "sentences": []}
    rate = best["megabytes_per_second"]
    sizes = (
        files.mean_record_bytes or published.IMAGENET_RECORD_BYTES,
        published.LARGE_RECORD_BYTES,
    )
    rows = feeds.table(rate * 1e6, sizes, config.for_model, published.ACCELERATORS)
    sentences = [
        f"The fastest: {rate:,.0f} MB/s with {summary.name(best)}, {best['state']}."
    ]
    if best["seconds"] < _LEAST_SECONDS:
        sentences.append(
            f"It took {best['seconds'] * 1e3:.1f} ms, which is too short to trust: "
            "measure a larger data set, or a folder without one."
        )
    return {
        "megabytes_per_second": rate,
        "feeds": rows,
        "sentences": [*sentences, *feeds.sentences(rows)],
    }


def _environment() -> dict[str, Any]:
    # After the measurements, because TensorFlow takes seconds to import.
    from benchmarks.distributed.ranks import Ranks
    from benchmarks.results import environment

    return environment.of_run(Ranks(), None)


def warm(config: WarmOptions) -> None:
    """Brings the shards of a data set into a shard cache, and prints what was done.

    Raises:
        ValueError: If the cache cannot be made.
        TfpipeError: If the data set is not complete, or its store does not answer.
    """
    cache = tfpipe.ShardCache(config.cache_dir, max_bytes=config.cache_max_bytes)
    progress = Progress()
    with (
        progress.shown(is_first=True),
        bars.bar(None, "B") as bar,  # elsewhere `progress` prints lines
    ):

        def show(done: int, total: int) -> None:
            progress.begin(f"{done / 1e9:.2f} of {total / 1e9:.2f} GB in the cache")
            bar.total = total
            bar.update(done - bar.n)

        filled = cache.fill(config.location, on_progress=show)
    result = {
        "command": "benchmarks.storage",
        "schema_version": 1,
        "config": {
            "do": "warm",
            "place": config.location.partition("?")[0],
            "cache_dir": config.cache_dir,
            "cache_max_bytes": config.cache_max_bytes,
        },
        **dataclasses.asdict(filled),
    }
    present, total, fetched = (
        f"{getattr(filled, f'num_bytes_{part}') / 1e6:,.1f}"
        for part in ("present", "total", "fetched")
    )
    answer = (
        f"{present} of {total} MB are in {config.cache_dir}; {fetched} MB were fetched "
        f"in {filled.seconds:.0f} s."
    )
    output.show(result, answer)


def _hint(config: StorageOptions | WarmOptions, error: BaseException) -> str:
    if not isinstance(error, KeyboardInterrupt):
        return ""
    is_warm = isinstance(config, WarmOptions)
    return "The cache keeps its shards." if is_warm else "Own files are removed."


COMMANDS = (
    cli.Command(StorageOptions, run, arguments=("place",), hint=_hint),
    cli.Command(WarmOptions, warm, form="warm", arguments=("location",), hint=_hint),
)

if __name__ == "__main__":
    cli.run(*COMMANDS)
