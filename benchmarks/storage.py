"""How fast is a storage, and how many accelerators does it feed?

  python -m benchmarks.storage DIR_OR_URL
  python -m benchmarks.storage DIR --write --report_dir=REPORTS
  horovodrun -np 2 -H host1:1,host2:1 python -m benchmarks.storage DIR_OR_URL
  python -m benchmarks.storage warm DIR_OR_URL --cache_dir=C --cache_max_gb=G
  horovodrun -np 2 -H host1:1,host2:1 python -m benchmarks.storage warm URL ...

The command reads the shards of a data set, at most 4 GB, and evicts them from the page
cache. Elsewhere the command makes own files, up to 1 GB and a tenth of the free space,
and removes them at the end, also after kill -9. It reads 1 MB at a time in order, 4 kB
at random, and whole shards with more and more threads and processes; it opens files and
asks for their size: around the page cache (O_DIRECT) or with a cold page cache, and
with a warm page cache. --write also writes files as checkpoints are written. Under
horovodrun, with a single process a host, all hosts measure at the same time.

The last forms bring the shards of a data set into shard caches before a run. Of several
hosts every host brings its part: the shards of its reads in a run with affinity and the
same seed.

On stdout: a table, the number of accelerators that the storage feeds, and a JSON
object as the last line. With --report_dir the object is stored for python -m
benchmarks.report. On stderr: progress. Exit code: 0 done, 1 an error.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tfpipe
from benchmarks.models import catalog
from benchmarks.options import config as shared
from benchmarks.planning import published
from benchmarks.reporting import answers, output
from benchmarks.results import checks
from benchmarks.results.other_results import StorageReading
from benchmarks.storage_probe import probe, probe_files
from benchmarks.storage_probe.reads import Workers
from benchmarks.system.machine import Host
from tfpipe import cli, errors
from tfpipe.cli import progress as bars, text_table
from tfpipe.cli.progress import Progress
from tfpipe.errors import count_of

if TYPE_CHECKING:  # imports TensorFlow
    from benchmarks.distributed.ranks import Ranks

_LEAST_SECONDS = 0.1
_PLACE = "DIR_OR_URL"
# Figures of a fill that add up.
_SUMMED = (*("num_bytes_fetched", "num_bytes_present", "num_bytes_total", "seconds"),)


@cli.options
class StorageOptions(cli.StoreOptions):
    """Options of the measurement."""

    place: str = cli.argument("Folder, or URL of a data set.", shown=_PLACE, url=True)
    seconds: float = cli.flag(3.0, "Most seconds of each measurement.", least=0.1)
    max_parallel: int = cli.flag(
        16,
        "Most threads, and most processes, that read at the same time.",
        least=1,
        most=256,
    )
    write: bool = cli.flag(
        False,
        "Also write files as checkpoints are: up to 64 MiB each, fsync, rename. Takes "
        "at most a tenth of the free space.",
    )
    for_model: tuple[str, ...] = cli.flag(
        ("resnet50", "inception_v4"),
        "Models of benchmarks.train that the storage shall feed.",
        choices=sorted(catalog.MODELS),
    )
    report_dir: str | None = shared.report_dir()


@cli.options
class WarmOptions(cli.StoreOptions):
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
    shared_cache_dir: str | None = shared.shared_cache_dir("--cache_dir")
    shared_cache_max_gb: float | None = shared.shared_cache_max_gb()
    num_tasks: int | None = cli.flag(
        None,
        "Number of hosts that share the work: each runs the command. Default: those of "
        "horovodrun, or one.",
        least=1,
    )
    task_index: int = cli.flag(
        0,
        "Number of this host, from 0 to --num_tasks - 1.",
        least=0,
        needs="--num_tasks",
    )
    seed: int = cli.flag(
        0, "Seed of the run, by which affinity gives each host its part.", least=0
    )

    def __post_init__(self) -> None:
        if self.num_tasks is not None and self.task_index >= self.num_tasks:
            raise ValueError(
                f"--task_index must be from 0 to --num_tasks - 1 = {self.num_tasks - 1}"
                f", got {self.task_index}."
            )

    def cache(self) -> tfpipe.ShardCache:
        """Returns the shard cache to fill."""
        most = self.shared_cache_max_gb
        return tfpipe.ShardCache(
            self.cache_dir,
            max_bytes=self.cache_max_bytes,
            shared_directory=self.shared_cache_dir,
            shared_max_bytes=None if most is None else int(most * 1e9),
        )


def run(config: StorageOptions) -> None:
    """Measures, prints and stores the figures of a storage."""
    if config.report_dir:
        # First, so that an unusable folder is known before the work.
        pathlib.Path(config.report_dir).mkdir(parents=True, exist_ok=True)
    from benchmarks.results import environment

    now, hosts = output.now(), _hosts()
    progress = Progress()
    progress.begin("finding or making the files")
    with (
        progress.shown(is_first=hosts.is_first),
        probe_files.opened(config.place, writes=config.write) as files,
        Workers() as workers,
    ):
        measure = probe.StorageProbe(
            files=files.part(hosts.rank, hosts.num_ranks),
            workers=workers,
            seconds=config.seconds,
            max_parallel=config.max_parallel,
            begin=progress.begin,
            gather=hosts.gather,
        )
        measured = list(measure.run())
    result = {
        **checks.head(checks.STORAGE),
        "started_at": now.isoformat(timespec="seconds"),
        "config": dataclasses.asdict(config),
        "num_ranks": hosts.num_ranks,
        "place": files.as_json(),
        "measurements": [dataclasses.asdict(row) for row in measured],
        **_feeds(config, files, measured),
        "storage_bytes_read": sum(row.storage_bytes or 0 for row in measured),
        "environment": environment.of_run(hosts, None),
    }
    if not hosts.is_first:
        return
    table = text_table.lines(probe.READINGS, measured)
    details = ["\n".join(table), *result["sentences"]]
    output.show(result, *answers.storage(result), details=details)
    if config.report_dir:
        output.write(result, output.path_in(config.report_dir, "storage", now))


def _feeds(
    config: StorageOptions,
    files: probe_files.ProbeFiles,
    measured: Sequence[StorageReading],
) -> dict[str, Any]:
    best, write = probe.best(measured), probe.fastest_write(measured)
    if best is None or not best.megabytes_per_second:
        return {"feeds": [], "sentences": []}
    usual = files.mean_record_bytes or published.IMAGENET_RECORD_BYTES
    rows, fed = probe.fed(
        best.megabytes_per_second * 1e6,
        (usual, published.LARGE_RECORD_BYTES),
        config.for_model,
        published.ACCELERATORS,
    )
    sentences = [probe.fastest(measured, best), files.beneath.caveat]
    if best.seconds is not None and best.seconds < _LEAST_SECONDS:
        sentences.append(
            f"It took {best.seconds * 1e3:.1f} ms, which is too short to trust: "
            "measure a larger data set, or a folder without one."
        )
    if write:
        sentences.append(
            f"It writes {write.megabytes_per_second:,.0f} MB/s with "
            f"{count_of(write.num_threads, 'thread')}; a file counts when it is on "
            "the disk under its name."
        )
    return {
        "megabytes_per_second": best.megabytes_per_second,
        "write_megabytes_per_second": write and write.megabytes_per_second,
        "feeds": rows,
        "sentences": [*filter(None, sentences), *fed],
    }


def _hosts() -> Ranks:
    """Returns the hosts of the measurement: the host, or those of horovodrun."""
    from benchmarks.distributed import ranks

    world = ranks.connect()
    num_hosts = len({*world.gather(Host.here())})
    if num_hosts < world.num_ranks:
        raise ValueError(
            f"benchmarks.storage must have one process a host, got {world.num_ranks} "
            f"processes on {num_hosts}: horovodrun -np 2 -H host1:1,host2:1. "
            "--max_parallel is the processes of a host."
        )
    return world


def warm(config: WarmOptions) -> None:
    """Brings the shards of a data set into a shard cache, and prints the figures."""
    index, count, is_first = config.task_index, config.num_tasks, True
    world = _hosts() if count is None and "HOROVOD_RANK" in os.environ else None
    if world is not None:
        index, count, is_first = world.rank, world.num_ranks, world.is_first
    progress = Progress()
    with (
        progress.shown(is_first=is_first),
        bars.bar(None, "B") as bar,  # elsewhere `progress` prints lines
    ):

        def show(done: int, total: int) -> None:
            progress.begin(f"{done / 1e9:.2f} of {total / 1e9:.2f} GB in the cache")
            bar.total = total
            bar.update(done - bar.n)

        own = _filled(config, index, count or 1, show)
        filled = [own] if world is None else world.gather(own)
    _require_same_data(filled)
    if not is_first:
        return
    url, options = config.location.partition("?")[0], dataclasses.asdict(config)
    del options["location"]
    result = {
        **checks.head(checks.STORAGE),
        "config": {"do": "warm", "place": url, **options},
        "num_hosts": len(filled),
        **_sum(filled),
        "seconds": max(part["seconds"] for part in filled),
    }
    fetched, present, total = (f"{result[name] / 1e6:,.1f}" for name in _SUMMED[:3])
    answer = f"{present} of {total} MB are in {config.cache_dir}; {fetched} MB were "
    output.show(result, f"{answer}fetched in {result['seconds']:.0f} s.")


def _filled(
    config: WarmOptions, index: int, count: int, show: Callable[[int, int], object]
) -> dict[str, Any]:
    """Fills the cache of the host with its part; returns the figures."""
    if count == 1:
        filled_cache = config.cache().fill(config.location, on_progress=show)
        return dataclasses.asdict(filled_cache)
    content = tfpipe.Files(config.location).read("index.json")
    filled = []
    for split in errors.from_json(content)["splits"]:
        source = tfpipe.TFRecordSource(
            *(config.location, split),
            shard_cache=config.cache(),
            seed=config.seed,
            rank=index,
            num_ranks=count,
            remainder="pad",
            affinity=1,  # the part of the first epoch is that of every affinity
            hosts=range(count),
        )
        filled.append(dataclasses.asdict(source.fill_cache(show)))
        source.close_cache()
    return _sum(filled)


def _sum(filled: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the figures of several fills together."""
    sums = {name: sum(part[name] for part in filled) for name in _SUMMED}
    tags = {split: tag for part in filled for split, tag in part["tags"].items()}
    return {**sums, "index_digest": filled[0]["index_digest"], "tags": tags}


def _require_same_data(filled: Sequence[dict[str, Any]]) -> None:
    """Checks that all hosts filled their caches from the same version of the data."""
    versions = {repr((part["index_digest"], part["tags"])) for part in filled}
    if len(versions) > 1:
        raise ValueError(
            "All hosts must fill their caches from the same data set, but it was "
            "replaced or copied again meanwhile. Run the command again."
        )


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
