"""How fast is converters.imagenet against a bare loop over TFRecordWriter?

  python -m studies.conversion --raw_dir=RAW --num_rounds=5

Question: how much do inspecting, hashing, checksumming, cataloging and entry points
cost? Four variants convert the same images of RAW/train, in turns: converters.imagenet
without fsync, the same with --entry_points, converters.imagenet with fsync (its
default), and a loop to read files and passes `tf.train.Example`s to
`tf.io.TFRecordWriter`, in as many processes. All files are read once before, and come
from the page cache.

A run is measured in two ways. "whole" is the command from start to exit, with the CPU
time of all its processes: for the loop mostly the import of TensorFlow, for the
converter also listing, planning, the catalog and the index. "writing" is the time from
the first shard, when all processes have started, to the end of the last shard, with the
CPU time of all processes meanwhile. Figures are medians over the rounds, with minimum
and maximum; a ratio is taken within a round. Last, a process of `converters.verify
--level=crc` is compared with `sha256sum` over the same shards.

Compare the ratios; absolute figures hold for the machine only. The last line on stdout
is a JSON object.
"""

import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from studies import harness
from studies.figures import Run, ratios, summary
from tfpipe import cli

# Part of a run -> the begin of the keys of its figures.
_PARTS = {"whole": "", "writing": "write_"}

_OPTIONS = {
    "converter": ["--nofsync"],
    "entry_points": ["--nofsync", "--entry_points"],
    "converter_fsync": [],
}


@cli.options
class Options(harness.ConversionOptions):
    """Options of the study."""

    raw_dir: str = cli.required("An ImageNet-style tree; its train/ is converted.")


def compare(raw_dir: str, num_processes: int, rounds: int) -> dict[str, Any]:
    """Runs all variants in turns and returns their medians and ratios.

    Args:
        raw_dir: An ImageNet-style tree; its train/ is converted.
        num_processes: Processes of a variant.
        rounds: Runs of a variant.

    Raises:
        OSError: If a command fails; the message holds its stderr.
    """
    sizes = [len(p.read_bytes()) for p in pathlib.Path(raw_dir, "train").glob("*/*")]
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")

        def measure(name: str, _: int) -> Run:
            run = _run(name, raw_dir, out, num_processes)
            shutil.rmtree(out)
            return run | {"num_images": len(sizes)}

        runs = harness.turns(["bare_loop", *_OPTIONS], measure, rounds)
        _run("converter_fsync", raw_dir, out, num_processes)
        verify = [_verify(out) for _ in range(rounds)]
    bare = runs["bare_loop"]
    return {
        "num_images": len(sizes),
        "num_bytes": sum(sizes),
        "load_average_before": load,
        **{name: _figures(own) for name, own in runs.items()},
        "images_per_second_ratio_to_bare_loop": {
            name: {
                part: summary(ratios(bare, runs[name], itemgetter(f"{key}seconds")))
                for part, key in _PARTS.items()
            }
            for name in _OPTIONS
        },
        "entry_points_cpu_seconds_per_1000_images": summary(
            _write_cost(run) - _write_cost(base)
            for run, base in zip(runs["entry_points"], runs["converter"], strict=True)
        ),
        "verify_to_sha256sum_speed_ratio": statistics.median(verify),
    }


def _run(name: str, raw_dir: str, out: str, num_processes: int) -> dict[str, float]:
    if name == "bare_loop":
        os.mkdir(out)
        sizes = (str(4 * num_processes), str(num_processes))
        words = ["studies.bare_loop", raw_dir, out, *sizes]
    else:
        words = ["converters.imagenet", f"--input_dir={raw_dir}", f"--output_dir={out}"]
        words += [f"--num_workers={num_processes}", *_OPTIONS[name]]
    line, whole = harness.run_command("-m", *words)
    return whole | {key: line[key] for key in ("write_seconds", "write_cpu_seconds")}


def _verify(out: str) -> float:
    """Returns the speed of checking all CRCs over the speed of sha256sum."""
    paths = sorted(str(path) for path in pathlib.Path(out).glob("*-of-*"))
    start = time.perf_counter()
    subprocess.run(["sha256sum", *paths], check=True, stdout=subprocess.DEVNULL)
    sha256sum = time.perf_counter() - start
    words = ["converters.verify", out, "--level=crc", "--num_workers=1"]
    line, _ = harness.run_command("-m", *words)
    return sha256sum / float(line["seconds"])


def _figures(runs: Sequence[Run]) -> dict[str, dict[str, dict[str, float]]]:
    return {
        part: {
            "images_per_second": summary(
                run["num_images"] / run[f"{key}seconds"] for run in runs
            ),
            "cpu_seconds_per_1000_images": summary(
                run[f"{key}cpu_seconds"] / run["num_images"] * 1000 for run in runs
            ),
        }
        for part, key in _PARTS.items()
    }


def _write_cost(run: Run) -> float:
    return run["write_cpu_seconds"] / run["num_images"] * 1000


def table(rows: Mapping[str, Any]) -> str:
    """Returns a table with a line for a variant and part."""
    lines = [
        f"{name:<16} {part:<8} {row['images_per_second']['median']:9,.0f} images/s  "
        f"{row['cpu_seconds_per_1000_images']['median']:.3f} CPU-seconds per 1000"
        for name in ("bare_loop", *_OPTIONS)
        for part, row in rows[name].items()
    ]
    more = rows["entry_points_cpu_seconds_per_1000_images"]["median"]
    return "\n".join([*lines, f"entry points add {more:.3f} CPU-seconds per 1000"])


def _study(options: Options) -> harness.Outcome:
    processes, rounds = options.num_processes, options.num_rounds
    rows = compare(options.raw_dir, processes, rounds)
    config = {"num_processes": processes, "num_turns": rounds}
    return harness.Outcome(
        figures={"config": config, **rows}, table=table(rows), schema_version=2
    )


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.conversion", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
