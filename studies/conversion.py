"""How fast is converters.imagenet against a bare loop over TFRecordWriter?

  python -m studies.conversion --raw_dir=RAW --num_turns=5

Question: what do inspecting, hashing, checksumming, cataloging and entry points cost?
Four variants convert the same images of RAW/train, interleaved: converters.imagenet
without fsync, the same with --entry_points, converters.imagenet with fsync (its
default), and a loop that only reads files and passes `tf.train.Example`s to
`tf.io.TFRecordWriter`, in as many processes. All files are read once before, so that
they come from the page cache.

Each run is measured in two ways. "whole" is the command from start to exit, with the
CPU time of all its processes: for the loop that is mostly the import of TensorFlow, for
the converter it includes listing, planning, the catalog and the index. "writing" is the
time from the first shard, when all processes have started, to the end of the last
shard, with the CPU time that the processes used in it. Figures are medians over the
turns, with minimum and maximum; a ratio is taken within a turn. Last, one process of
`converters.verify --level=crc` is compared with `sha256sum` over the same shards.

Compare the ratios; absolute figures hold for this machine only. The last line on stdout
is one JSON object.
"""

import dataclasses
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from absl import flags

from benchmarks.options import command
from benchmarks.reporting import output

_RAW_DIR = flags.DEFINE_string(
    "raw_dir", None, "An ImageNet-style tree; its train/ is converted.", required=True
)
_NUM_PROCESSES = flags.DEFINE_integer(
    "num_processes", 2, "Processes of each variant.", lower_bound=1
)
_NUM_TURNS = flags.DEFINE_integer(
    "num_turns", 5, "Turns; each figure is the median over them.", lower_bound=1
)
_CONVERSION_RESULT = flags.DEFINE_string(
    "conversion_result", None, "File to write the JSON object to as well."
)

# Parts of a run that are measured.
PARTS = ("whole", "writing")

_BARE_LOOP = """
import glob, json, multiprocessing, os, sys, time

def write(task):
    import tensorflow as tf
    number, paths = task
    start = time.perf_counter(), time.process_time()
    def integer(value):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    def text(value):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    name = f"{sys.argv[2]}/train-{number:05d}-of-{int(sys.argv[3]):05d}"
    with tf.io.TFRecordWriter(name) as writer:
        for path in paths:
            with open(path, "rb") as file:
                features = {
                    "image/encoded": text(file.read()),
                    "image/class/label": integer(1),
                    "image/filename": text(os.path.basename(path).encode()),
                }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return start[0], time.perf_counter(), time.process_time() - start[1]

def stand(barrier):
    import tensorflow as tf
    tf.train.Example().SerializeToString()
    barrier.wait()

if __name__ == "__main__":
    paths = sorted(glob.glob(sys.argv[1] + "/train/*/*"))
    shards, processes = int(sys.argv[3]), int(sys.argv[4])
    tasks = [(n, paths[n::shards]) for n in range(shards)]
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    with context.Pool(processes, initializer=stand, initargs=(barrier,)) as pool:
        spans = pool.map(write, tasks, chunksize=1)
    print(json.dumps({
        "write_seconds": max(s[1] for s in spans) - min(s[0] for s in spans),
        "write_cpu_seconds": sum(s[2] for s in spans),
    }))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """Wall and CPU seconds of a whole command, or of its writing."""

    seconds: float
    cpu_seconds: float


# Part of `PARTS` -> its cost in one run.
Turn = Mapping[str, Cost]


def compare(raw_dir: str, num_processes: int, num_turns: int) -> dict[str, Any]:
    """Runs all variants interleaved and returns their medians and ratios.

    Args:
        raw_dir: An ImageNet-style tree; its train/ is converted.
        num_processes: Processes of each variant.
        num_turns: Runs of each variant.

    Raises:
        OSError: If a command fails; the message holds what it printed.
    """
    num_images, num_bytes = _read_all(pathlib.Path(raw_dir) / "train")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "bare_loop.py"
        script.write_text(_BARE_LOOP)
        out = os.path.join(folder, "out")
        plain = raw_dir, out, num_processes, "--nofsync"
        variants: dict[str, Callable[[], Turn]] = {
            "bare_loop": lambda: _bare(script, raw_dir, out, num_processes),
            "converter": lambda: _convert(*plain),
            "entry_points": lambda: _convert(*plain, "--entry_points"),
            "converter_fsync": lambda: _convert(raw_dir, out, num_processes),
        }
        turns: dict[str, list[Turn]] = {name: [] for name in variants}
        for _ in range(num_turns):
            for name, run in variants.items():
                turns[name].append(run())
                shutil.rmtree(out)
        _convert(raw_dir, out, num_processes)
        verify = [_verify(out) for _ in range(num_turns)]
    figures = {
        name: {part: _figures(runs, part, num_images) for part in PARTS}
        for name, runs in turns.items()
    }
    bare = turns.pop("bare_loop")
    return {
        "num_images": num_images,
        "num_bytes": num_bytes,
        "load_average_before": load,
        **figures,
        "images_per_second_ratio_to_bare_loop": {
            name: {part: _ratios(runs, bare, part) for part in PARTS}
            for name, runs in turns.items()
        },
        "entry_points_cpu_seconds_per_1000_images": _added(
            turns["entry_points"], turns["converter"], num_images
        ),
        "verify_to_sha256sum_speed_ratio": statistics.median(verify),
    }


def _read_all(folder: pathlib.Path) -> tuple[int, int]:
    """Reads every image once; returns their number and their bytes."""
    sizes = [len(path.read_bytes()) for path in folder.glob("*/*")]
    return len(sizes), sum(sizes)


def _bare(script: pathlib.Path, raw_dir: str, out: str, num_processes: int) -> Turn:
    os.mkdir(out)
    return _turn([script, raw_dir, out, 4 * num_processes, num_processes])


def _convert(raw_dir: str, out: str, num_processes: int, *more: str) -> Turn:
    arguments = [f"--input_dir={raw_dir}", f"--output_dir={out}"]
    workers = [f"--num_workers={num_processes}"]
    return _turn(["-m", "converters.imagenet", *arguments, *workers, *more])


def _turn(arguments: Sequence[object]) -> Turn:
    result, whole = _run(arguments)
    fields = json.loads(result.splitlines()[-1])
    writing = Cost(
        seconds=fields["write_seconds"], cpu_seconds=fields["write_cpu_seconds"]
    )
    return {"whole": whole, "writing": writing}


def _verify(out: str) -> float:
    """Returns the speed of checking all CRCs over the speed of sha256sum."""
    paths = sorted(str(path) for path in pathlib.Path(out).glob("*-of-*"))
    start = time.perf_counter()
    subprocess.run(["sha256sum", *paths], check=True, stdout=subprocess.DEVNULL)
    sha256sum = time.perf_counter() - start
    command = ["-m", "converters.verify", out, "--level=crc", "--num_workers=1"]
    result, _ = _run(command)
    return sha256sum / float(json.loads(result.splitlines()[-1])["seconds"])


def _run(arguments: Sequence[object]) -> tuple[str, Cost]:
    """Runs a Python command; returns its stdout and the cost of all its processes."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise OSError(f"{arguments} ended with {done.returncode}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, Cost(seconds=seconds, cpu_seconds=cpu)


def _figures(
    turns: Sequence[Turn], part: str, num_images: int
) -> dict[str, dict[str, float]]:
    costs = [turn[part] for turn in turns]
    return {
        "images_per_second": _spread(num_images / cost.seconds for cost in costs),
        "cpu_seconds_per_1000_images": _spread(
            cost.cpu_seconds / num_images * 1000 for cost in costs
        ),
    }


def _ratios(turns: Sequence[Turn], bare: Sequence[Turn], part: str) -> dict[str, float]:
    pairs = zip(turns, bare, strict=True)
    return _spread(base[part].seconds / turn[part].seconds for turn, base in pairs)


def _added(
    turns: Sequence[Turn], base: Sequence[Turn], num_images: int
) -> dict[str, float]:
    """Returns the CPU-seconds that turns take more to write 1000 images."""
    pairs = zip(turns, base, strict=True)
    costs = [(one["writing"], other["writing"]) for one, other in pairs]
    return _spread(
        (one.cpu_seconds - other.cpu_seconds) / num_images * 1000
        for one, other in costs
    )


def _spread(values: Iterable[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": round(statistics.median(ordered), 4),
        "min": round(ordered[0], 4),
        "max": round(ordered[-1], 4),
    }


def table(figures: Mapping[str, Any]) -> str:
    """Returns a table with a line for each variant and part of it."""
    rows = [
        f"{name:<16} {part:<8} {row['images_per_second']['median']:9,.0f} images/s  "
        f"{row['cpu_seconds_per_1000_images']['median']:.3f} CPU-seconds per 1000"
        for name in ("bare_loop", "converter", "entry_points", "converter_fsync")
        for part, row in figures[name].items()
    ]
    more = figures["entry_points_cpu_seconds_per_1000_images"]["median"]
    return "\n".join([*rows, f"entry points add {more:.3f} CPU-seconds per 1000"])


def main(argv: Sequence[str]) -> int:
    """Prints the comparison that the flags describe."""
    command.refuse_arguments(argv)
    processes, turns = _NUM_PROCESSES.value, _NUM_TURNS.value
    try:
        figures = compare(_RAW_DIR.value, processes, turns)
    except OSError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    from benchmarks.reporting import environment

    result = {
        "command": "studies.conversion",
        "schema_version": 2,
        "config": {"num_processes": processes, "num_turns": turns},
        **figures,
        "environment": environment.describe(),
    }
    output.finish(result, table(figures), path=_CONVERSION_RESULT.value)
    return 0


if __name__ == "__main__":
    command.run(main, {})
