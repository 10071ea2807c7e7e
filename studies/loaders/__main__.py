"""How much CPU time do other loaders take for the same images and the same work?

  python -m studies.loaders --data_dir=DIR --peer_dir=COPY --num_rounds=3

Question: how do CPU-seconds and images/s of `imagenet_train` compare with other
loaders: tf.data tuned by hand and as in TensorFlow Model Garden, DALI on the CPU, FFCV,
PyTorch's DataLoader, WebDataset, Grain and SPDL? All loaders crop, resize, flip and
batch the train split of DIR at random, as uint8 or as normalized float32. A run is a
process of its own with a warm-up before the timing. The loaders run in turns, so a slow
spell of the machine affects all of them.

tf.data and DALI read the TFRecords. The others read the same JPEG bytes from COPY,
written once: files, tars, or a .beton. The loaders written in Python run with two
decoders, `_pil` and `_cv`. `pip install 'tfpipe[peers]'` installs most loaders. A
loader whose packages do not fit those of tfpipe runs in its own virtual environment of
--environments_dir. A loader without its packages, or with an error, is skipped; the
table and the JSON say why.

CPU-seconds are user and system time of a process and of all its children. Compare the
ratios: `cpu_ratio` is CPU-seconds over the CPU-seconds of the pipeline by hand in the
same round, the median of the rounds. Absolute figures hold for the machine, and
images/s only where nothing else runs on it. The last line on stdout is a JSON object.
"""

import dataclasses
import importlib.metadata
import importlib.util
import os
import pathlib
import sys
import sysconfig
from collections.abc import Sequence

from studies import figures, harness
from studies.loaders.images import Job
from studies.loaders.peers import PEERS
from tfpipe import cli

# The base of all ratios.
_BASE = "hand"

# Import name -> name for pip, where the two differ.
_DISTRIBUTIONS = {"cv2": "opencv-python-headless", "nvidia.dali": "nvidia-dali-cuda120"}

# The environment of the study.
_ENVIRONMENT = pathlib.Path(sys.prefix)

# dtype -> peer -> figures.
Figures = dict[str, dict[str, dict[str, float]]]


@cli.options
class Options(harness.ReadingOptions):
    """Options of the study."""

    peers: tuple[str, ...] = cli.flag(
        tuple(PEERS),
        "Loaders to measure, of studies.loaders.peers; the pipeline by hand, their "
        "base, is added.",
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
    entries_data_dir: str = cli.flag(
        "",
        "Folder of the same data set after converters.verify --write_entry_points, for "
        "tfpipe_entries.",
    )
    environments_dir: str = cli.flag(
        "",
        "Folder of virtual environments: the loaders dali and grain_cv run in its dali "
        "and grain, where these exist, and others in the environment of the study.",
    )
    peer_workers: int | None = cli.flag(
        None,
        "Threads or worker processes of each loader; tf.data chooses its own. Default: "
        "the number of cores.",
        least=1,
    )


def chosen(names: Sequence[str]) -> list[str]:
    """Returns the loaders of some names and their base, in the order of `PEERS`."""
    return [name for name in PEERS if name in {_BASE, *names}]


def environment_of(name: str, folder: str) -> pathlib.Path:
    """Returns the virtual environment of a loader.

    Args:
        name: Name of the loader; its first word is the name of its environment.
        folder: Folder of environments, or "".
    """
    own = pathlib.Path(folder, name.split("_")[0])
    return own if folder and (own / "bin" / "python").exists() else _ENVIRONMENT


def missing(name: str, *, environment: pathlib.Path = _ENVIRONMENT) -> str | None:
    """Returns why a loader cannot run in an environment: its missing modules, or None.

    The import in a run decides about another environment than that of the study.
    """
    if environment != _ENVIRONMENT:
        return None
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
    jobs: list[Job], names: list[str], rounds: int, *, environments_dir: str = ""
) -> tuple[Figures, dict[str, str]]:
    """Runs the loaders in turns.

    Args:
        jobs: A job for every dtype; the jobs must be equal otherwise.
        names: Loaders, as `chosen` returns them.
        rounds: Runs of a loader and dtype.
        environments_dir: Folder of environments, or "".

    Returns:
        The figures of all loaders, and loader -> reason for the skipped loaders.

    Raises:
        OSError: If a run of the base fails; the message holds its stderr.
    """
    environments = {name: environment_of(name, environments_dir) for name in names}
    skipped = {
        name: reason
        for name, environment in environments.items()
        if (reason := missing(name, environment=environment))
    }
    left = [name for name in names if name not in skipped]
    skipped |= without_data(left, jobs[0])
    variants = {f"{name}, {j.dtype}": (name, j) for j in jobs for name in names}

    def measure(variant: str, _: int) -> figures.Run:
        name, job = variants[variant]
        if name in skipped:
            return {}
        try:
            return harness.run(
                "studies.loaders.peers",
                name,
                job,
                time_limit=job.time_limit,
                python=str(environments[name] / "bin" / "python"),
            )
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


def versions(names: list[str], *, environments_dir: str = "") -> dict[str, str]:
    """Returns package -> installed version, for the packages of some loaders."""
    installed = {"pillow": importlib.metadata.version("pillow")}
    for name in names:
        base = str(environment_of(name, environments_dir))
        site = sysconfig.get_path("purelib", vars={"base": base})
        for module in PEERS[name].modules:
            package = _DISTRIBUTIONS.get(module, module)
            path = [site, *sys.path]
            packages = importlib.metadata.distributions(name=package, path=path)
            # A module may come from another package, such as opencv-python.
            installed[package] = next((each.version for each in packages), "unknown")
    return dict(sorted(installed.items()))


def _study(options: Options) -> harness.Outcome:
    job = Job(
        peer_dir=options.peer_dir,
        entries_data_dir=options.entries_data_dir,
        num_workers=options.peer_workers or len(os.sched_getaffinity(0)),
        **options.job_fields(),
    )
    jobs = [dataclasses.replace(job, dtype=dtype) for dtype in options.dtype]
    rounds = options.num_rounds
    environments = options.environments_dir
    rows, skipped = compare(
        jobs, chosen(options.peers), rounds, environments_dir=environments
    )
    measured = [name for name in PEERS if any(name in each for each in rows.values())]
    config = harness.config_of(job, dtype=options.dtype, num_rounds=rounds)
    del config["peer_dir"]
    return harness.Outcome(
        figures={
            "config": config,
            "peers": rows,
            "notes": {name: PEERS[name].note for name in measured},
            "skipped": skipped,
            "versions": versions(measured, environments_dir=environments),
        },
        table=table(rows, skipped),
    )


def main(options: Options) -> int:
    """Carries out the study; returns the exit code."""
    return harness.conclude("studies.loaders", options, _study(options))


COMMANDS = (cli.Command(Options, main),)

if __name__ == "__main__":
    cli.run(*COMMANDS)
