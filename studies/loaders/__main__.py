"""How much CPU time do other loaders take for the same images and the same work?

  python -m studies.loaders --data_dir=DIR --peer_dir=COPY --num_rounds=3

Question: how do CPU-seconds and images/s of `imagenet_train` compare with other
loaders: tf.data as in TensorFlow Model Garden, DALI on the CPU, FFCV, PyTorch's
DataLoader, WebDataset, Grain and SPDL? All loaders crop, resize, flip and batch the
train split of DIR at random, as uint8 or as normalized float32. A run is a process of
its own with a warm-up before the timing. The loaders run in turns, so a slow spell of
the machine affects all of them.

tf.data and DALI read the TFRecords. The others read the same JPEG bytes from COPY,
written once: files, tars, or a .beton. The loaders written in Python run with two
decoders, `_pil` and `_cv`. `pip install 'tfpipe[peers]'` installs most loaders. A
loader without its packages, or with an error, is skipped; the table and the JSON say
why.

CPU-seconds are user and system time of a process and of all its children. Compare the
ratios: `cpu_ratio` is CPU-seconds over the CPU-seconds of tfpipe in the same round, the
median of the rounds. Absolute figures hold for the machine, and images/s only where
nothing else runs on it. The last line on stdout is a JSON object.
"""

import dataclasses
import importlib.metadata
import importlib.util
import os
from collections.abc import Sequence

from studies import figures, harness
from studies.loaders.images import Job
from studies.loaders.peers import PEERS
from tfpipe import cli

# The base of all ratios.
_BASE = "tfpipe"

# Import name -> name for pip, where the two differ.
_DISTRIBUTIONS = {"cv2": "opencv-python-headless", "nvidia.dali": "nvidia-dali-cuda120"}

# dtype -> peer -> figures.
Figures = dict[str, dict[str, dict[str, float]]]


@cli.options
class Options(harness.ReadingOptions):
    """Options of the study."""

    peers: tuple[str, ...] = cli.flag(
        tuple(PEERS),
        "Loaders to measure, of studies.loaders.peers; tfpipe is always added.",
        choices=tuple(PEERS),
    )
    dtype: tuple[str, ...] = cli.flag(
        ("uint8", "float32"),
        "Types of the batches: uint8, float32 or both.",
        choices=("uint8", "float32"),
    )
    peer_dir: str = cli.flag(
        "",
        "Folder for copies of the images in the forms that other loaders read; the "
        "copies are kept for the next run. Without it, those loaders are skipped.",
    )
    peer_workers: int | None = cli.flag(
        None,
        "Threads or worker processes of each loader; tf.data chooses its own. Default: "
        "the number of cores.",
        least=1,
    )


def chosen(names: Sequence[str]) -> list[str]:
    """Returns the loaders of some names and tfpipe, in the order of `PEERS`."""
    return [name for name in PEERS if name in {_BASE, *names}]


def missing(name: str) -> str | None:
    """Returns why a loader cannot run here: its missing modules, or None."""
    lacks = [module for module in PEERS[name].modules if not _is_installed(module)]
    if not lacks:
        return None
    packages = " ".join(_DISTRIBUTIONS.get(module, module) for module in lacks)
    return f"not installed: {', '.join(lacks)} (pip install {packages})"


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        # find_spec raises the error where the parent package is missing.
        return False


def without_data(names: list[str], job: Job) -> dict[str, str]:
    """Makes the copies for the loaders.

    Returns:
        Loader -> reason, for the loaders whose copy could not be made.
    """
    reasons: dict[str, str] = {}
    for kind in sorted({PEERS[name].data or "" for name in names} - {""}):
        try:
            harness.run("studies.loaders.data", kind, job, time_limit=None)
        except OSError as error:
            readers = [name for name in names if PEERS[name].data == kind]
            reason = f"its data cannot be made: {_last_line(error)}"
            reasons |= dict.fromkeys(readers, reason)
    return reasons


def compare(
    jobs: list[Job], names: list[str], rounds: int
) -> tuple[Figures, dict[str, str]]:
    """Runs the loaders in turns.

    Args:
        jobs: A job for every dtype; the jobs must be equal otherwise.
        names: Loaders, as `chosen` returns them.
        rounds: Runs of a loader and dtype.

    Returns:
        The figures of all loaders, and loader -> reason for the skipped loaders.

    Raises:
        OSError: If a run of tfpipe itself fails; the message holds its stderr.
    """
    skipped = {name: reason for name in names if (reason := missing(name))}
    left = [name for name in names if name not in skipped]
    skipped |= without_data(left, jobs[0])
    variants = {f"{name}, {j.dtype}": (name, j) for j in jobs for name in names}

    def measure(variant: str, _: int) -> figures.Run:
        name, job = variants[variant]
        if name in skipped:
            return {}
        try:
            limit = job.time_limit
            return harness.run("studies.loaders.peers", name, job, time_limit=limit)
        except OSError as error:
            if name == _BASE:
                raise
            skipped[name] = f"its run failed: {_last_line(error)}"
            return {}

    runs = harness.turns(list(variants), measure, rounds)
    rows: Figures = {job.dtype: {} for job in jobs}
    for variant, (name, job) in variants.items():
        if name not in skipped:
            base = runs[f"{_BASE}, {job.dtype}"]
            row = figures.costs_and_rates(runs[variant], base)
            rows[job.dtype][name] = row
    return rows, {name: skipped[name] for name in names if name in skipped}


def _last_line(error: OSError) -> str:
    """Returns the last line of an error: a traceback ends with its message."""
    return str(error).strip().splitlines()[-1]


def table(rows: Figures, skipped: dict[str, str]) -> str:
    """Returns the tables of all dtypes, notes, and reasons of skipped loaders."""
    parts = [figures.table(each, f"peer, {dtype}") for dtype, each in rows.items()]
    measured = next(iter(rows.values()))
    notes = [f"{name}: {PEERS[name].note}" for name in measured]
    reasons = [f"{name} was skipped: {reason}" for name, reason in skipped.items()]
    return "\n\n".join([*parts, "\n".join([*notes, *reasons])])


def versions(names: list[str]) -> dict[str, str]:
    """Returns package -> installed version, for the packages of some loaders."""
    modules = {module for name in names for module in PEERS[name].modules}
    packages = {_DISTRIBUTIONS.get(module, module) for module in modules} | {"pillow"}
    installed = {}
    for package in sorted(packages):
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            # The module comes from another package, such as opencv-python.
            installed[package] = "unknown"
    return installed


def _study(options: Options) -> harness.Outcome:
    job = Job(
        peer_dir=options.peer_dir,
        num_workers=options.peer_workers or len(os.sched_getaffinity(0)),
        **options.job_fields(),
    )
    jobs = [dataclasses.replace(job, dtype=dtype) for dtype in options.dtype]
    rounds = options.num_rounds
    rows, skipped = compare(jobs, chosen(options.peers), rounds)
    measured = [name for name in PEERS if any(name in each for each in rows.values())]
    config = harness.config_of(job, dtype=options.dtype, num_rounds=rounds)
    del config["peer_dir"]
    return harness.Outcome(
        figures={
            "config": config,
            "peers": rows,
            "notes": {name: PEERS[name].note for name in measured},
            "skipped": skipped,
            "versions": versions(measured),
        },
        table=table(rows, skipped),
    )


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.loaders", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
