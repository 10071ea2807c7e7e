"""What do other loaders cost for the same images and the same work?

  python -m benchmarks.studies.loaders --data_dir=DIR --peer_dir=COPY --num_rounds=3

Question: how do CPU-seconds and images/s of `imagenet_train` compare with what others
use: tf.data as TensorFlow Model Garden reads it, DALI on the CPU, FFCV, PyTorch's
DataLoader, WebDataset, Grain and SPDL? All crop, resize, flip and batch the train split
of DIR at random, as uint8 or as normalized float32. Each run is its own process; all
take turns, so that a slow spell of the machine meets all; a first part is not timed.

tf.data and DALI read the TFRecords; the others read the same JPEG bytes from COPY,
which is written once: files, tars, or a .beton. The loaders written in Python come with
two decoders, `_pil` and `_cv`. `pip install 'tfpipe[peers]'` brings most of them; one
that is not installed, or fails, is skipped, and its reason is in the table and the
JSON.

CPU-seconds are those of a process and all that it starts, in user and system mode.
Read the ratios: `cpu_ratio` is CPU-seconds over those of tfpipe in the same round, the
median of the rounds. Absolute figures hold for this machine, and images/s only where
nothing else runs on it. The last line on stdout is one JSON object.
"""

import dataclasses
import importlib.metadata
import importlib.util
import os
import pathlib
import sys
from typing import Any

from absl import app, flags as absl_flags

from benchmarks.options import train_flags
from benchmarks.reporting import environment, output
from benchmarks.studies import interleaved, interleaved_flags
from benchmarks.studies.loaders.images import Job
from benchmarks.studies.loaders.peers import PEERS

_PEERS = absl_flags.DEFINE_list(
    "peers",
    list(PEERS),
    "Which loaders to measure, of benchmarks.studies.loaders.peers; tfpipe is always added.",
)
_DTYPE = absl_flags.DEFINE_list(
    "dtype", ["uint8", "float32"], "Of the batches: uint8, float32 or both."
)
_PEER_DIR = absl_flags.DEFINE_string(
    "peer_dir",
    None,
    "Folder for copies of the images in the forms that other loaders read; kept for "
    "the next time. Without it, those loaders are skipped.",
)
_PEER_WORKERS = absl_flags.DEFINE_integer(
    "peer_workers",
    None,
    "Threads or worker processes of each loader but those of tf.data. Default: the "
    "cores.",
    lower_bound=1,
)
_PEERS_RESULT = absl_flags.DEFINE_string(
    "peers_result", None, "File to write the JSON object to as well."
)

# What the others are compared with.
_BASE = "tfpipe"

# Import name -> what is installed by, where they differ.
_DISTRIBUTIONS = {"cv2": "opencv-python-headless", "nvidia.dali": "nvidia-dali-cuda120"}

# dtype -> peer -> figures.
Figures = dict[str, dict[str, dict[str, float]]]


def chosen(names: list[str]) -> list[str]:
    """The loaders of those names, in the order of `PEERS`, tfpipe among them.

    Raises:
        ValueError: If one is not known.
    """
    unknown = set(names) - PEERS.keys()
    if unknown:
        raise ValueError(
            f"--peers must be of {', '.join(PEERS)}; got {', '.join(sorted(unknown))}."
        )
    return [name for name in PEERS if name in {_BASE, *names}]


def missing(name: str) -> str | None:
    """Why a loader cannot run here, as far as its modules say; None if it can."""
    lacks = [module for module in PEERS[name].modules if not _is_installed(module)]
    if not lacks:
        return None
    packages = " ".join(_DISTRIBUTIONS.get(module, module) for module in lacks)
    return f"not installed: {', '.join(lacks)} (pip install {packages})"


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        # The package above it is not there.
        return False


def without_data(names: list[str], job: Job) -> dict[str, str]:
    """Makes the copies that loaders read; why not, for those whose copy cannot be."""
    reasons: dict[str, str] = {}
    for kind in sorted({PEERS[name].data or "" for name in names} - {""}):
        try:
            interleaved.run(
                "benchmarks.studies.loaders.data", kind, job, time_limit=None
            )
        except OSError as error:
            readers = [name for name in names if PEERS[name].data == kind]
            reason = f"its data cannot be made: {_last_line(error)}"
            reasons |= dict.fromkeys(readers, reason)
    return reasons


def compare(
    jobs: list[Job], names: list[str], num_rounds: int
) -> tuple[Figures, dict[str, str]]:
    """RecordRanges the loaders in turns: the figures of each, and why others have none.

    Args:
        jobs: One a dtype; otherwise they must be the same.
        names: As `chosen` gives them.
        num_rounds: Turns of each.

    Raises:
        OSError: If a run of tfpipe itself fails; carries what it said.
    """
    skipped = {name: reason for name in names if (reason := missing(name))}
    left = [name for name in names if name not in skipped]
    skipped |= without_data(left, jobs[0])
    runs: dict[tuple[str, str], list[interleaved.Run]] = {}
    for _ in range(num_rounds):
        for job in jobs:
            for name in names:
                if name in skipped:
                    continue
                try:
                    run = interleaved.run(
                        "benchmarks.studies.loaders.run",
                        name,
                        job,
                        time_limit=interleaved.time_limit(job),
                    )
                except OSError as error:
                    if name == _BASE:
                        raise
                    skipped[name] = f"its run failed: {_last_line(error)}"
                else:
                    runs.setdefault((job.dtype, name), []).append(run)
    figures = {
        job.dtype: {
            name: interleaved.figures(runs[job.dtype, name], runs[job.dtype, _BASE])
            for name in names
            if name not in skipped
        }
        for job in jobs
    }
    return figures, {name: skipped[name] for name in names if name in skipped}


def _last_line(error: OSError) -> str:
    """A traceback ends with what was wrong."""
    return str(error).strip().splitlines()[-1]


def table(figures: Figures, skipped: dict[str, str]) -> str:
    """A table a dtype, what each loader does, and why others were skipped."""
    parts = [
        interleaved.table(rows, f"peer, {dtype}") for dtype, rows in figures.items()
    ]
    measured = next(iter(figures.values()))
    notes = [f"{name}: {PEERS[name].note}" for name in measured]
    reasons = [f"{name} was skipped: {reason}" for name, reason in skipped.items()]
    return "\n\n".join([*parts, "\n".join([*notes, *reasons])])


def versions(names: list[str]) -> dict[str, str]:
    """What the loaders of those names are installed as, by package."""
    modules = {module for name in names for module in PEERS[name].modules}
    packages = {_DISTRIBUTIONS.get(module, module) for module in modules} | {"pillow"}
    found = {}
    for package in sorted(packages):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            # Installed under another name, such as opencv-python.
            found[package] = "unknown"
    return found


def _jobs() -> list[Job]:
    config = train_flags.config_from_flags()
    job = Job(
        data_dir=str(config.data_dir),
        peer_dir=_PEER_DIR.value or "",
        image_size=config.image_size or 224,
        batch_size=config.batch_size or 64,
        num_workers=_PEER_WORKERS.value or len(os.sched_getaffinity(0)),
        **interleaved_flags.image_counts(),
    )
    return [dataclasses.replace(job, dtype=dtype) for dtype in _DTYPE.value]


def _report(
    jobs: list[Job], figures: Figures, skipped: dict[str, str]
) -> dict[str, Any]:
    measured = [
        name for name in PEERS if any(name in rows for rows in figures.values())
    ]
    config = dataclasses.asdict(jobs[0])
    del config["peer_dir"]
    return {
        "command": "benchmarks.studies.loaders",
        "schema_version": 1,
        # The folder by name: paths differ by machine.
        "config": config
        | {
            "data_dir": pathlib.Path(jobs[0].data_dir).resolve().name,
            "dtype": [job.dtype for job in jobs],
            "num_rounds": interleaved_flags.num_rounds(),
        },
        "peers": figures,
        "notes": {name: PEERS[name].note for name in measured},
        "skipped": skipped,
        "versions": versions(measured),
        "environment": environment.describe(),
    }


def main(argv: list[str]) -> int:
    """Prints the comparison that the flags describe."""
    if len(argv) > 1:
        raise app.UsageError(f"Expected flags only, got {argv[1]!r}.")
    try:
        jobs, names = _jobs(), chosen(_PEERS.value)
        figures, skipped = compare(jobs, names, interleaved_flags.num_rounds())
    except (OSError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    report = _report(jobs, figures, skipped)
    if _PEERS_RESULT.value:
        output.write(report, _PEERS_RESULT.value)
    print(table(figures, skipped))
    output.print_line(report)
    return 0


if __name__ == "__main__":
    app.run(main)
