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
import sys
from collections.abc import Sequence
from typing import Any

import tqdm
from absl import app, flags

import tfpipe
from benchmarks.models import catalog, publications, published
from benchmarks.options import command, input_flags, shared_flags
from benchmarks.reporting import output
from benchmarks.reporting.progress import Progress
from benchmarks.system.storage import feeds, probe, probe_files, summary
from benchmarks.system.storage.workers import Workers

GROUPS = {
    "What to measure": ("seconds", "max_parallel", "for_model", "report_dir"),
    "For warm": ("cache_dir", "cache_max_gb"),
}

for _name in ("seconds", "report_dir", "cache_dir"):
    flags.declare_key_flag(_name)
_FOR_MODEL = flags.DEFINE_list(
    "for_model",
    ["resnet50", "inception_v4"],
    "Models whose training the storage shall feed: names of benchmarks.train --model.",
)
_MAX_PARALLEL = flags.DEFINE_integer(
    "max_parallel",
    16,
    "Largest number of threads, and of processes, that read at the same time.",
    lower_bound=1,
    upper_bound=256,
)
_CACHE_MAX_GB = flags.DEFINE_float(
    "cache_max_gb",
    None,
    "Room that the shards of all data sets in --cache_dir may take at most, in GB. "
    "Default: 80 % of the room that is free.",
    lower_bound=0.001,
)

_WARM = "warm"
_LEAST_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class StorageConfig:
    """The options of the probe.

    Attributes:
        place: Folder, or URL of a data set.
        seconds: Longest time of each measurement.
        max_parallel: Largest number of threads, and of processes.
        for_model: Models whose training the storage shall feed.
        report_dir: Folder for the result, or None.

    Raises:
        ValueError: If a model is not known.
    """

    place: str
    seconds: float = 3.0
    max_parallel: int = 16
    for_model: Sequence[str] = ("resnet50", "inception_v4")
    report_dir: str | None = None

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.for_model) - set(catalog.MODELS)):
            raise ValueError(
                f"--for_model must name models of {', '.join(sorted(catalog.MODELS))}, "
                f"got {unknown[0]}."
            )


def run(config: StorageConfig) -> dict[str, Any]:
    """Measures, prints and stores the figures of a storage.

    Args:
        config: Settings of the command.

    Returns:
        The result, for JSON.

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
    print(summary.table(measured), *result["sentences"], sep="\n", flush=True)
    output.print_line(result)
    if config.report_dir:
        output.write(result, output.path_in(config.report_dir, "storage", now))
    return result


def _feeds(
    config: StorageConfig,
    files: probe_files.ProbeFiles,
    measured: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Returns the best rate, the accelerators that it feeds, and both as sentences."""
    best = feeds.best(measured)
    if best is None:
        return {"feeds": [], "sentences": []}
    rate = best["megabytes_per_second"]
    sizes = (
        files.mean_record_bytes or publications.IMAGENET_RECORD_BYTES,
        publications.LARGE_RECORD_BYTES,
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
    from benchmarks.reporting import environment

    return environment.of_run(Ranks(), None)


def warm(location: str, cache_dir: str, max_bytes: int | None) -> dict[str, Any]:
    """Brings the shards of a data set into a shard cache, and prints what was done.

    Args:
        location: Folder or URL of the data set.
        cache_dir: Folder of the cache.
        max_bytes: Most bytes in it; None: 80 % of the room that is free.

    Returns:
        The result, for JSON.

    Raises:
        ValueError: If the cache cannot be made.
        TfpipeError: If the data set is not complete, or its store does not answer.
    """
    cache = tfpipe.ShardCache(cache_dir, max_bytes=max_bytes)
    progress = Progress()
    with (
        progress.shown(is_first=True),
        # disable=None: only on a terminal; elsewhere `progress` prints lines.
        tqdm.tqdm(unit="B", unit_scale=True, file=sys.stderr, disable=None) as bar,
    ):

        def show(done: int, total: int) -> None:
            progress.begin(f"{done / 1e9:.2f} of {total / 1e9:.2f} GB in the cache")
            bar.total = total
            bar.update(done - bar.n)

        filled = cache.fill(location, on_progress=show)
    result = {
        "command": "benchmarks.storage",
        "schema_version": 1,
        "config": {
            "do": _WARM,
            "place": location.partition("?")[0],
            "cache_dir": cache_dir,
            "cache_max_bytes": max_bytes,
        },
        **dataclasses.asdict(filled),
    }
    present, total, fetched = (
        f"{getattr(filled, f'num_bytes_{part}') / 1e6:,.1f}"
        for part in ("present", "total", "fetched")
    )
    print(
        f"{present} of {total} MB are in {cache_dir}; {fetched} MB were fetched in "
        f"{filled.seconds:.0f} s."
    )
    output.print_line(result)
    return result


def _refuse_other_flags(do: str | None) -> None:
    """Checks that no flag is given that the command does not use."""
    command.refuse_others(GROUPS, (input_flags, shared_flags), "benchmarks.storage")
    if do == _WARM:
        command.refuse(GROUPS["What to measure"], "benchmarks.storage warm")
        if not flags.FLAGS["cache_dir"].value:
            raise ValueError("benchmarks.storage warm needs --cache_dir=FOLDER.")
    else:
        command.refuse(GROUPS["For warm"], "benchmarks.storage without warm")


def main(argv: Sequence[str]) -> int:
    """Measures or fills what the command line names."""
    words = list(argv[1:])
    do = words.pop(0) if words[:1] == [_WARM] else None
    if len(words) != 1:
        raise app.UsageError(
            f"One folder or URL must be given, got {' '.join(words) or 'none'}"
        )
    values = flags.FLAGS
    try:
        _refuse_other_flags(do)
        # Its files are then removed.
        with command.terminated_as_interrupted():
            if do == _WARM:
                gb = _CACHE_MAX_GB.value
                warm(words[0], values.cache_dir, None if gb is None else int(gb * 1e9))
            else:
                run(
                    StorageConfig(
                        place=words[0],
                        seconds=values.seconds,
                        max_parallel=_MAX_PARALLEL.value,
                        for_model=tuple(dict.fromkeys(_FOR_MODEL.value)),
                        report_dir=values.report_dir,
                    )
                )
    except (ValueError, OSError, tfpipe.TfpipeError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        kept = "the cache keeps what it has" if do else "own files are removed"
        print(f"Error: Stopped before the end; {kept}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    command.run(main, GROUPS)
