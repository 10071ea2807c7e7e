"""How fast is converters.imagenet against a bare loop over TFRecordWriter?

  python -m benchmarks.conversion --raw_dir=RAW --num_repeats=3

Question: what do inspecting, hashing, checksumming and cataloguing cost? Three ways
convert the same images of RAW/train, in turns: converters.imagenet without fsync, as it
is by default with fsync, and a loop that only reads files and hands `tf.train.Example`s
to `tf.io.TFRecordWriter`, split over as many processes. Files are read once before, so
that all come from the page cache. Times of the loop start when TensorFlow is imported
and its processes stand; those of the converter are what it reports, listing and
starting its workers included, and its CPU-seconds those of the whole command. Last,
`converters.verify --level=crc` against `sha256sum` over the shards, with one process.

Read the ratios; absolute figures hold for this machine only. The last line on stdout is
one JSON object.
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
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags

from benchmarks import environment

_RAW_DIR = flags.DEFINE_string(
    "raw_dir", None, "An ImageNet-style tree; its train/ is converted.", required=True
)
_NUM_PROCESSES = flags.DEFINE_integer(
    "num_processes", 2, "Processes of each way.", lower_bound=1
)
_NUM_TURNS = flags.DEFINE_integer(
    "num_turns", 3, "Turns; each figure is the median over them.", lower_bound=1
)
_CONVERSION_RESULT = flags.DEFINE_string(
    "conversion_result", None, "File to write the JSON object to as well."
)

_BARE_LOOP = """
import glob, json, multiprocessing, os, resource, sys, time

def write(task):
    import tensorflow as tf
    number, paths = task
    start = time.perf_counter(), sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
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
    cpu = sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - start[1]
    return start[0], time.perf_counter(), cpu

def stand(_):
    import tensorflow
    time.sleep(1)

if __name__ == "__main__":
    paths = sorted(glob.glob(sys.argv[1] + "/train/*/*"))
    count = int(sys.argv[3])
    tasks = [(n, paths[n::count]) for n in range(count)]
    with multiprocessing.get_context("spawn").Pool(int(sys.argv[4])) as pool:
        pool.map(stand, range(int(sys.argv[4])), chunksize=1)
        spans = pool.map(write, tasks, chunksize=1)
    seconds = max(s[1] for s in spans) - min(s[0] for s in spans)
    print(json.dumps({"seconds": seconds, "cpu_seconds": sum(s[2] for s in spans)}))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """What one run of one way took."""

    seconds: float
    cpu_seconds: float
    num_images: int


def compare(raw_dir: str, num_processes: int, num_turns: int) -> dict[str, Any]:
    """Runs all ways in turns and returns their medians and ratios.

    Raises:
        OSError: If a command fails; carries what it printed.
    """
    num_images = _read_all(pathlib.Path(raw_dir) / "train")
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "bare_loop.py"
        script.write_text(_BARE_LOOP)
        ways: dict[str, Callable[[str], Turn]] = {
            "bare_loop": lambda out: _bare(script, raw_dir, out, num_processes),
            "converter": lambda out: _convert(raw_dir, out, num_processes, "--nofsync"),
            "converter_fsync": lambda out: _convert(raw_dir, out, num_processes),
        }
        turns: dict[str, list[Turn]] = {name: [] for name in ways}
        for _ in range(num_turns):
            for name, run in ways.items():
                out = os.path.join(folder, "out")
                turns[name].append(run(out))
                shutil.rmtree(out)
        _convert(raw_dir, os.path.join(folder, "out"), num_processes)
        verify = [_verify(os.path.join(folder, "out")) for _ in range(num_turns)]
    figures = {name: _medians(runs, num_images) for name, runs in turns.items()}
    bare, ours = figures["bare_loop"], figures["converter"]
    return {
        "num_images": num_images,
        **figures,
        "images_per_second_ratio": ours["images_per_second"]
        / bare["images_per_second"],
        "verify_to_sha256sum_speed_ratio": statistics.median(verify),
    }


def _read_all(folder: pathlib.Path) -> int:
    paths = list(folder.glob("*/*"))
    for path in paths:
        path.read_bytes()
    return len(paths)


def _bare(script: pathlib.Path, raw_dir: str, out: str, num_processes: int) -> Turn:
    os.mkdir(out)
    shards = 4 * num_processes
    result, _ = _run([script, raw_dir, out, shards, num_processes])
    fields = json.loads(result)
    return Turn(num_images=0, **fields)


def _convert(raw_dir: str, out: str, num_processes: int, *more: str) -> Turn:
    arguments = [f"--input_dir={raw_dir}", f"--output_dir={out}"]
    workers = [f"--num_workers={num_processes}"]
    result, cpu = _run(["-m", "converters.imagenet", *arguments, *workers, *more])
    summary = json.loads(result.splitlines()[-1])
    return Turn(
        seconds=summary["seconds"],
        cpu_seconds=cpu,
        num_images=summary["num_records"],
    )


def _verify(out: str) -> float:
    """Speed of one process checking all CRCs over that of sha256sum."""
    paths = sorted(str(path) for path in pathlib.Path(out).glob("*-of-*"))
    start = time.perf_counter()
    subprocess.run(["sha256sum", *paths], check=True, stdout=subprocess.DEVNULL)
    sha256sum = time.perf_counter() - start
    command = ["-m", "converters.verify", out, "--level=crc", "--num_workers=1"]
    result, _ = _run(command)
    return sha256sum / float(json.loads(result.splitlines()[-1])["seconds"])


def _run(arguments: Sequence[object]) -> tuple[str, float]:
    """What a Python command printed, and the CPU-seconds of all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OSError(f"{arguments} ended with {done.returncode}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, cpu


def _medians(turns: Sequence[Turn], num_images: int) -> dict[str, float]:
    seconds = [turn.seconds for turn in turns]
    cpu = statistics.median(turn.cpu_seconds for turn in turns)
    return {
        "images_per_second": num_images / statistics.median(seconds),
        "images_per_second_min": num_images / max(seconds),
        "images_per_second_max": num_images / min(seconds),
        "cpu_seconds_per_1000_images": cpu / num_images * 1000,
    }


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected argument: {argv[1]}. Flags start with --.")
    processes, turns = _NUM_PROCESSES.value, _NUM_TURNS.value
    try:
        figures = compare(_RAW_DIR.value, processes, turns)
    except OSError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    result = {
        "command": "benchmarks.conversion",
        "schema_version": 1,
        "config": {"num_processes": processes, "num_turns": turns},
        **figures,
        "environment": environment.describe(),
    }
    for name in ("bare_loop", "converter", "converter_fsync"):
        row = figures[name]
        print(
            f"{name:<16} {row['images_per_second']:9,.0f} images/s  "
            f"{row['cpu_seconds_per_1000_images']:.3f} CPU-seconds per 1000"
        )
    if _CONVERSION_RESULT.value:
        text = json.dumps(result, indent=1) + "\n"
        pathlib.Path(_CONVERSION_RESULT.value).write_text(text, encoding="utf-8")
    print(json.dumps(result, separators=(",", ":")))
    return 0


if __name__ == "__main__":
    app.run(main)
