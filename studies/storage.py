"""Does the probe of benchmarks.storage agree with fio?

  python -m studies.storage --probe_dir=DIR

Question: does a probe in Python measure the disk? fio, the usual program for this, and
the probe read the same file in turns: 1 MB in order and 4 kB at random, with O_DIRECT,
in one thread that waits for each read (fio: psync). The order of the two programs
changes with the round, so a disk that gets slower favors neither program. Many short
rounds are better than few long rounds, as a pair then sees the same disk.

Both read into a huge page. With small pages the rate of large reads depends on how many
pieces the buffer has in memory, by chance. fio takes huge pages only from the pool of
the system: the study reserves four there while it runs, as root. Without huge pages fio
reads into small pages, and the ratio of large reads is not judged.

Read `ratio`, the median over the rounds of the probe's rate over fio's. Needs fio
(apt-get install fio) and a disk with O_DIRECT. The file has 1 GB and is removed. The
last line on stdout is a JSON object. Exit code 2 if a ratio is not within 10 % of 1.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from benchmarks.storage_probe import probe, probe_files, reads
from benchmarks.storage_probe.reads import Workers
from studies import harness
from studies.figures import Run, ratios
from tfpipe import cli

SMALL_PAGES, HUGE_PAGES = "malloc", "shmhuge"
_NUM_HUGE_PAGES = 4  # one is enough for 1 MB; others may use some
_KEPT_APART = pathlib.Path("/proc/sys/vm/nr_hugepages")

_FILE_BYTES = 1 << 30
_LIMIT = 0.10
_READS = {
    reads.SEQUENTIAL: (probe.LARGE, "read"),
    reads.RANDOM: (probe.SMALL, "randread"),
}


@cli.options
class Options(harness.StudyOptions):
    """Options of the study."""

    num_rounds: int = 21
    probe_dir: str = cli.required("Folder on a disk, for the file that is read.")
    probe_seconds: float = cli.flag(1.0, "Seconds of a run.", least=0.1)


def by_fio(
    path: str, kind: str, seconds: float, *, memory: str = SMALL_PAGES
) -> dict[str, float]:
    """Reads a file with fio; returns bytes a second and the median latency in seconds.

    Args:
        path: The file.
        kind: "sequential" or "random".
        seconds: Time of the run.
        memory: fio's --iomem, the memory that it reads into.

    Raises:
        OSError: If fio fails.
    """
    block_bytes, name = _READS[kind]
    # fio takes whole seconds, or a unit below.
    command_line = [
        *("fio", "--name=turn", f"--filename={path}", f"--rw={name}", "--readonly"),
        *(f"--bs={block_bytes}", "--direct=1", "--ioengine=psync", "--time_based"),
        *(f"--runtime={seconds * 1e3:.0f}ms", "--randrepeat=0"),
        *(f"--iomem={memory}", "--output-format=json"),
    ]
    done = subprocess.run(command_line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"fio ended with {done.returncode}: {done.stderr.strip()}")
    read = json.loads(done.stdout)["jobs"][0]["read"]
    return {
        "bytes_per_second": float(read["bw_bytes"]),
        "median_seconds": read["clat_ns"]["percentile"]["50.000000"] / 1e9,
    }


@contextlib.contextmanager
def huge_pages() -> Iterator[str]:
    """Keeps huge pages apart for fio while the block runs; yields its --iomem.

    Pages reserved before are taken as they are.
    """
    try:
        before = int(_KEPT_APART.read_text())
        _KEPT_APART.write_text(str(max(before, _NUM_HUGE_PAGES)))
    except OSError:  # not root, or a kernel without them
        yield SMALL_PAGES
        return
    try:
        enough = int(_KEPT_APART.read_text()) >= _NUM_HUGE_PAGES
        yield HUGE_PAGES if enough else SMALL_PAGES
    finally:
        _KEPT_APART.write_text(str(before))


def by_probe(
    path: str, kind: str, seconds: float, *, workers: Workers, seed: int
) -> dict[str, float]:
    """Reads a file as the probe does; returns the same figures as `by_fio`.

    Args:
        path: The file.
        kind: "sequential" or "random".
        seconds: Time of the run.
        workers: The process to read in.
        seed: Seed of the order of random reads.
    """
    measurement = probe.way(kind, probe.DIRECT)
    pieces = probe_files.cut([(path, os.path.getsize(path))])
    outcomes = workers.run(probe.jobs(measurement, pieces, None, seconds, seed=seed))
    row = probe.with_figures(measurement, [outcomes], [None])
    return {
        "bytes_per_second": (row.megabytes_per_second or 0.0) * 1e6,
        "median_seconds": row.latency_seconds.p50 or 0.0,
    }


def measure(folder: str, *, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Reads in turns; returns a row for every kind of reading.

    Args:
        folder: Where the file is made, and removed.
        rounds: Runs of a program.
        seconds: Time of a run.

    Raises:
        OSError: If the file cannot be made or read.
    """
    rows = []
    with (
        tempfile.TemporaryDirectory(dir=folder) as name,
        Workers() as workers,
        huge_pages() as memory,
    ):
        path = _make_file(pathlib.Path(name))
        for kind in _READS:

            def run(program: str, step: int, kind: str = kind) -> Run:
                if program == "fio":
                    return by_fio(path, kind, seconds, memory=memory)
                return by_probe(path, kind, seconds, workers=workers, seed=step)

            runs = harness.turns(["fio", "probe"], run, rounds, alternating=True)
            rows.append(
                {
                    "what": kind,
                    "fio_memory": memory,
                    **_ratios(runs["probe"], runs["fio"]),
                    "is_judged": memory == HUGE_PAGES or kind == reads.RANDOM,
                    "turns": [
                        {"fio": fio, "probe": own}
                        for fio, own in zip(runs["fio"], runs["probe"], strict=True)
                    ],
                }
            )
    return rows


def _make_file(folder: pathlib.Path) -> str:
    path = folder / "file"
    random = np.random.default_rng()
    with open(path, "wb") as file:
        for _ in range(_FILE_BYTES // probe_files.PIECE_BYTES):
            file.write(random.bytes(probe_files.PIECE_BYTES))
        file.flush()
        os.fsync(file.fileno())
    if not reads.can_read_direct(str(path), probe.SMALL):
        raise OSError(f"{folder.parent} must be on a disk that can read with O_DIRECT.")
    return str(path)


def _ratios(runs: Sequence[Run], fio: Sequence[Run]) -> dict[str, float]:
    rates = ratios(runs, fio, itemgetter("bytes_per_second"))
    times = ratios(runs, fio, itemgetter("median_seconds"))
    return {
        "ratio": statistics.median(rates),
        "lowest_ratio": min(rates),
        "highest_ratio": max(rates),
        "median_latency_ratio": statistics.median(times),
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Returns a line for every kind of reading."""
    return "\n".join(
        f"{row['what']:10}  probe over fio: {row['ratio']:.3f} "
        f"({row['lowest_ratio']:.3f} to {row['highest_ratio']:.3f} over "
        f"{len(row['turns'])} turns), median latency {row['median_latency_ratio']:.3f}"
        + ("" if row["is_judged"] else f"; not judged: write 4 to {_KEPT_APART} first")
        for row in rows
    )


def _study(options: Options) -> harness.Outcome:
    if shutil.which("fio") is None:
        raise OSError("fio must be installed: apt-get install fio.")
    rounds, seconds = options.num_rounds, options.probe_seconds
    rows = measure(options.probe_dir, rounds=rounds, seconds=seconds)
    version = subprocess.run(
        ["fio", "--version"], capture_output=True, text=True, check=True
    )
    return harness.Outcome(
        figures={
            "config": {"turns": rounds, "seconds": seconds},
            "fio": version.stdout.strip(),
            "readings": rows,
        },
        table=table(rows),
        misses=[
            f"The ratio of {row['what']} reads is {row['ratio']:.3f}, must be within "
            f"{_LIMIT:.0%} of 1."
            for row in rows
            if row["is_judged"] and abs(row["ratio"] - 1) > _LIMIT
        ],
    )


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.storage", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
