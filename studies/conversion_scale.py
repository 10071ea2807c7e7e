"""How much memory and waiting does a conversion of ImageNet's size take?

  python -m studies.conversion_scale --scale_dir=/dev/shm/scale

Questions: does the memory of converters.imagenet and of its workers stay small at 1.3
million images? How long is the wait for the first shard, and for a job that has nothing
left to do? The study watches real commands from outside, through /proc and the files
that appear. It makes trees of tiny, distinct JPEG files in --scale_dir, in 1000 class
folders, because memory depends on the number of images and not on their size; a file
takes 4 kB of the disk. Workers are also watched on images of ImageNet's size, each
decoded in full. `bytes_per_planned_image` is the growth of a separate process, per
image, while it lists and plans.

Peaks are VmHWM and depend on the allocator of this machine. Exit code 2 if a target is
not met. The last line on stdout is one JSON object.
"""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import PIL.Image
from absl import flags

from benchmarks.options import command
from benchmarks.reporting import output

_SCALE_DIR = flags.DEFINE_string(
    "scale_dir", None, "Folder to create for the trees and to remove.", required=True
)
_NUM_SCALE_IMAGES = flags.DEFINE_integer(
    "num_scale_images", 1_300_000, "Images of the large tree.", lower_bound=100_000
)
_NUM_SCALE_WORKERS = flags.DEFINE_integer(
    "num_scale_workers", 2, "Worker processes of each command.", lower_bound=2
)
_SCALE_RESULT = flags.DEFINE_string(
    "scale_result", None, "File to write the JSON object to as well."
)

_NUM_CLASSES = 1000
_NUM_FEW_IMAGES = 1000
_NUM_SOME_IMAGES = 50_000
_NUM_PHOTOS = 200
_NUM_TURNS = 3
_POLL_SECONDS = 0.005

# Each figure must be at most this.
TARGETS = {
    "parent_peak_rss_mb": 400,
    "bytes_per_planned_image": 300,
    "worker_peak_rss_mb": 150,
    "seconds_to_first_shard": 3.0,
    "seconds_to_resume_complete": 2.0,
    "seconds_to_refuse_finished": 2.0,
}

# Prints bytes an image and seconds of listing and planning, in a process of its own.
_PLAN = """
import pathlib, sys, time
import psutil
from converters.inputs import classes, ilsvrc
from converters.jobs import plan

def rss():
    return psutil.Process().memory_info().rss

folder = pathlib.Path(sys.argv[1])
found, before, start = classes.read_classes(folder), rss(), time.perf_counter()
plans = plan.make_plan(ilsvrc.read_tree(folder, found).splits, {}, seed=0)
seconds = time.perf_counter() - start
print((rss() - before) / sum(len(item.images) for item in plans), seconds)
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watched:
    """Figures of one command that was watched.

    Attributes:
        returncode: Exit code; negative if the command was killed.
        seconds: Seconds from start to end.
        first_shard: Seconds from start to the first shard's file; None without one.
        parent_planned: Peak RSS of the parent when the first shard began, in bytes.
        parent_peak: Peak RSS of the parent, in bytes.
        worker_peak: Peak RSS of the largest worker, in bytes; 0 without workers.
        output: Text that the command printed on stdout.
    """

    returncode: int
    seconds: float
    first_shard: float | None
    parent_planned: int
    parent_peak: int
    worker_peak: int
    output: str


def watch(
    raw_dir: pathlib.Path, out: pathlib.Path, *more: str, kill_at: int | None = None
) -> Watched:
    """Runs converters.imagenet and looks at its processes every few milliseconds.

    Args:
        raw_dir: The tree to convert.
        out: Folder of the data set.
        *more: More flags of converters.imagenet.
        kill_at: Number of complete shards at which the command is killed by SIGKILL;
            None to let it end.

    Raises:
        OSError: If the command fails although nobody killed it.
    """
    flags_ = [f"--input_dir={raw_dir}", f"--output_dir={out}", "--nofsync", *more]
    command = [sys.executable, "-m", "converters.imagenet", *flags_]
    work_dir = out / ".converting"
    start, first, planned = time.perf_counter(), None, 0
    parent, worker = 0, 0
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None:
        parent = max(parent, _peak_rss(process.pid))
        if first is None and any(work_dir.glob("*/*.part")):
            first, planned = time.perf_counter() - start, parent
        if kill_at is not None and len(list(work_dir.glob("*/*.done"))) == kill_at:
            process.kill()
        worker = max([worker, *map(_peak_rss, _workers(process.pid))])
        # A large run is long, and frequent looks would slow it down.
        time.sleep(_POLL_SECONDS if first is None or kill_at else 0.05)
    seconds = time.perf_counter() - start
    output, errors = process.communicate()
    if process.returncode > 0 and "already holds a data set" not in errors:
        raise OSError(f"{command} ended with {process.returncode}: {errors}")
    return Watched(
        returncode=process.returncode,
        seconds=seconds,
        first_shard=first,
        parent_planned=planned,
        parent_peak=parent,
        worker_peak=worker,
        output=output,
    )


def _peak_rss(pid: int) -> int:
    """Returns VmHWM in bytes, which psutil lacks; 0 if the process has ended."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _workers(pid: int) -> list[int]:
    """Returns the children of a process, without multiprocessing's resource tracker."""
    found = []
    # psutil would read /proc of every process of the host, hundreds of times a second.
    with contextlib.suppress(OSError):
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
        for child in map(int, children.split()):
            with contextlib.suppress(OSError):
                line = pathlib.Path(f"/proc/{child}/cmdline").read_bytes()
                if b"resource_tracker" not in line:
                    found.append(child)
    return found


def make_tree(folder: pathlib.Path, num_images: int) -> pathlib.Path:
    """Writes a tree of tiny, distinct JPEG files in 1000 class folders."""
    encoded = io.BytesIO()
    PIL.Image.new("RGB", (8, 8), (90, 120, 60)).save(encoded, "JPEG")
    start, rest = b"\xff\xd8", encoded.getvalue()[2:]
    synsets = [f"n{number:08d}" for number in range(_NUM_CLASSES)]
    for synset in synsets:
        (folder / "train" / synset).mkdir(parents=True)
    (folder / "synsets.txt").write_text("".join(f"{name}\n" for name in synsets))
    for number in range(num_images):
        synset = synsets[number % _NUM_CLASSES]
        # A JPEG comment of four bytes makes each file distinct.
        comment = b"\xff\xfe\x00\x06" + number.to_bytes(4, "big")
        path = f"{folder}/train/{synset}/{synset}_{number}.JPEG"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(descriptor, start + comment + rest)
        os.close(descriptor)
    return folder


@contextlib.contextmanager
def _scratch(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def measure(folder: pathlib.Path, num_images: int, num_workers: int) -> dict[str, Any]:
    """Returns all figures: memory in MB (10**6 bytes) or bytes, times in seconds.

    Args:
        folder: Folder to create for the trees; it is removed at the end.
        num_images: Images of the large tree.
        num_workers: Workers of each command.

    Raises:
        OSError: If a command fails, or the folder exists.
    """
    workers = f"--num_workers={num_workers}"
    with _scratch(folder):
        few = _few(make_tree(folder / "few", _NUM_FEW_IMAGES), folder / "out", workers)
        some = make_tree(folder / "some", _NUM_SOME_IMAGES)
        some_peak = watch(some, folder / "out-some", workers).worker_peak
        photos_peak = _photos(folder / "photos", folder / "out-photos", workers)
        many = make_tree(folder / "many", num_images)
        planned, plan_seconds = map(float, _python("-c", _PLAN, many).split())
        large = watch(many, folder / "out-many", workers, "--num_train_shards=1024")
    peaks = {
        f"{_NUM_SOME_IMAGES}_tiny_images": some_peak / 1e6,
        f"{num_images}_tiny_images": large.worker_peak / 1e6,
        f"{_NUM_PHOTOS}_images_of_imagenets_size_decoded": photos_peak / 1e6,
    }
    return {
        **few,
        "num_images": num_images,
        "bytes_per_planned_image": planned,
        "seconds_to_list_and_plan": plan_seconds,
        "parent_rss_at_first_shard_mb": large.parent_planned / 1e6,
        "parent_peak_rss_mb": large.parent_peak / 1e6,
        "seconds_to_first_shard_of_all": large.first_shard,
        "worker_peak_rss_mb": max(peaks.values()),
        "worker_peaks_rss_mb": peaks,
        "seconds_of_all": json.loads(large.output.splitlines()[-1])["seconds"],
    }


def _few(raw_dir: pathlib.Path, out: pathlib.Path, *more: str) -> dict[str, float]:
    """Returns the waits for a small job, as medians over a few turns."""
    num_shards = 8
    more = (*more, f"--num_train_shards={num_shards}")
    first, resumed, refused = [], [], []
    while len(resumed) < _NUM_TURNS:
        cut_off = watch(raw_dir, out, *more, kill_at=num_shards)
        # Without an index the kill came in time; otherwise the turn is repeated.
        if not (out / "index.json").exists():
            resumed.append(watch(raw_dir, out, *more).seconds)
            refused.append(watch(raw_dir, out, *more).seconds)
            first.append(cut_off.first_shard or 0.0)
        shutil.rmtree(out)
    return {
        "num_few_images": _NUM_FEW_IMAGES,
        "seconds_to_first_shard": sorted(first)[_NUM_TURNS // 2],
        "seconds_to_resume_complete": sorted(resumed)[_NUM_TURNS // 2],
        "seconds_to_refuse_finished": sorted(refused)[_NUM_TURNS // 2],
    }


def _photos(raw_dir: pathlib.Path, out: pathlib.Path, *more: str) -> int:
    """Returns the peak RSS of a worker that decodes images of ImageNet's size."""
    numbers = (f"--num_images={_NUM_PHOTOS}", "--num_classes=20")
    _python("-m", "converters.synthesize", f"--output_dir={raw_dir}", *numbers)
    return watch(raw_dir, out, "--decode=full", *more).worker_peak


def _python(*arguments: object) -> str:
    """Runs a Python command and returns its stdout."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{command[:3]} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def missed(figures: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each target that is not met."""
    return [
        f"{name} must be at most {target}, got {figures[name]:.1f}"
        for name, target in TARGETS.items()
        if figures[name] > target
    ]


def table(figures: Mapping[str, Any]) -> str:
    """Returns a table with a line for each target."""
    return "\n".join(
        f"{name:<28} {figures[name]:9.2f}  target {target:g}"
        for name, target in TARGETS.items()
    )


def main(argv: Sequence[str]) -> int:
    """Prints the figures beside their targets."""
    command.refuse_arguments(argv)
    num_images, num_workers = _NUM_SCALE_IMAGES.value, _NUM_SCALE_WORKERS.value
    try:
        figures = measure(pathlib.Path(_SCALE_DIR.value), num_images, num_workers)
    except OSError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    from benchmarks.reporting import environment

    result = {
        "command": "studies.conversion_scale",
        "schema_version": 1,
        "config": {"num_images": num_images, "num_workers": num_workers},
        **figures,
        "targets": TARGETS,
        "missed": missed(figures),
        "environment": environment.describe(),
    }
    output.finish(result, table(figures), path=_SCALE_RESULT.value)
    return 2 if result["missed"] else 0


if __name__ == "__main__":
    command.run(main, {})
