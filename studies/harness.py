"""The harness of all studies: variants in turns, spreads, and the stored result.

In: the variants of a study by name, and the shared flags of studies. Out: the runs of
all variants by round, a table, a JSON object as the last line on stdout, and the same
object in --save_result.

A variant runs in a process of its own: `run` starts `studies.child` to call the
function `measure` of the variant's module.
"""

import dataclasses
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from absl import flags

import tfpipe
from benchmarks.options import (
    command,
    shared_flags,  # noqa: F401  # defines --data_dir, --image_size, --batch_size
)
from benchmarks.reporting import output
from studies.figures import Run, cost, rate

_SAVE_RESULT = flags.DEFINE_string(
    "save_result", None, "File to write the JSON object to as well."
)
NUM_ROUNDS = flags.DEFINE_integer(
    "num_rounds",
    3,
    "Times that each variant is run; figures are medians over the rounds.",
    lower_bound=1,
)
NUM_TIMED_IMAGES = flags.DEFINE_integer(
    "num_timed_images",
    4000,
    "Images of a run that are timed; a quarter as many are read before as warm-up.",
    lower_bound=1,
)
NUM_PROCESSES = flags.DEFINE_integer(
    "num_processes", 2, "Processes of each conversion.", lower_bound=1
)

# Every variant is faster on every machine: a run that takes longer has hung.
_MIN_IMAGES_PER_SECOND = 5


def uses(*names: str, rounds: int = 3) -> None:
    """Makes shared flags flags of the calling study, for its --help.

    Args:
        names: Shared flags beside --num_rounds and --save_result.
        rounds: Default of --num_rounds.
    """
    for name in (*names, "num_rounds", "save_result"):
        flags.declare_key_flag(name)
    flags.set_default(NUM_ROUNDS, rounds)


flags.disclaim_key_flags()  # `uses` declares flags of its caller


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """Work of every variant of a study: batches of the shuffled train split.

    Attributes:
        data_dir: Folder of the data set.
        image_size: Height and width of the images in pixels.
        batch_size: Images in a batch.
        num_warmup_images: Warm-up images, read before the timed images.
        num_timed_images: Images that are timed.
    """

    data_dir: str
    image_size: int = 224
    batch_size: int = 64
    num_warmup_images: int = 1000
    num_timed_images: int = 4000

    @property
    def time_limit(self) -> float:
        """Seconds until a run over the images of the job has hung."""
        num_images = self.num_warmup_images + self.num_timed_images
        return 120 + num_images / _MIN_IMAGES_PER_SECOND


def job_options(*, batch_size: int = 64) -> dict[str, Any]:
    """Returns the fields of `Job` from the flags; `batch_size` is the default.

    Raises:
        ValueError: If --data_dir is not set.
    """
    values = flags.FLAGS
    if not values.data_dir:
        raise ValueError("--data_dir must be the folder of a converted data set.")
    return {
        "data_dir": str(values.data_dir),
        "image_size": values.image_size or 224,
        "batch_size": values.batch_size or batch_size,
        "num_warmup_images": NUM_TIMED_IMAGES.value // 4,
        "num_timed_images": NUM_TIMED_IMAGES.value,
    }


def config_of(job: Job, **more: Any) -> dict[str, Any]:
    """Returns the fields of a job for the result, and more fields.

    Folders come without their paths: paths differ between machines.
    """
    fields = dataclasses.asdict(job)
    for key, value in fields.items():
        if value and key.endswith("_dir"):
            fields[key] = pathlib.Path(value).resolve().name
    return fields | more


def turns(
    names: Sequence[str],
    measure: Callable[[str, int], Run],
    rounds: int,
    *,
    num_warm_ups: int = 0,
    alternating: bool = False,
) -> dict[str, list[Run]]:
    """Runs variants in turns, so a slow spell of the host affects all of them.

    The figures of a run are printed on stderr at once: an interrupted study shows
    the figures of its runs.

    Args:
        names: Names of the variants.
        measure: Name and number of the round, from 0 -> figures of a run.
        rounds: Rounds, with a run of every variant.
        num_warm_ups: Rounds before, whose runs are not kept.
        alternating: Whether every second round has the reverse order.

    Returns:
        Name -> its runs by round.
    """
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for step in range(num_warm_ups + rounds):
        for name in reversed(names) if alternating and step % 2 else names:
            figures = measure(name, step)
            if step >= num_warm_ups:
                runs[name].append(figures)
            print(f"{name}: {_said(figures)}", file=sys.stderr, flush=True)
    return runs


def _said(run: Run) -> str:
    if {"cpu_seconds", "seconds", "num_images"} <= run.keys():
        return f"{cost(run):.3f} CPU-s / 1000 images, {rate(run):.0f} images/s"
    return ", ".join(f"{k} {value:.4g}" for k, value in run.items()) or "skipped"


def run(
    module: str, name: str, job: Any, *, time_limit: float | None
) -> dict[str, float]:
    """Runs `module.measure(name, job)` in a process of its own; returns its figures.

    Args:
        module: Module of `measure` and of the dataclass `Job`.
        name: Name of the variant.
        job: A `Job` of the module.
        time_limit: Seconds until the process, with all that it started, is killed;
            None for no limit.

    Raises:
        OSError: If the process fails or reaches the time limit; the message holds its
            stderr.
    """
    fields = json.dumps(dataclasses.asdict(job))
    words = ("-m", "studies.child", module, name, fields)
    out: dict[str, float] = _last_line(words, name, time_limit)
    return out


def run_command(*words: object) -> tuple[dict[str, Any], dict[str, float]]:
    """Runs `python WORDS`; returns its last line, and its seconds and cpu_seconds.

    Raises:
        OSError: If the command fails; the message holds its stderr.
    """
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    line = _last_line(words, " ".join(map(str, words)), None)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return line, {"seconds": seconds, "cpu_seconds": cpu}


def _last_line(words: Sequence[object], name: str, time_limit: float | None) -> Any:
    """Runs `python WORDS` and returns the JSON object of its last line."""
    with subprocess.Popen(
        [sys.executable, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # killpg reaches its children only
    ) as process:
        try:
            out, errors = process.communicate(timeout=time_limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise OSError(f"{name} took longer than {time_limit:.0f} s") from None
    if process.returncode:
        raise OSError(f"{name} ended with {process.returncode}: {errors.strip()}")
    return json.loads(out.splitlines()[-1])


def time_batches(
    batches: Iterator[object], job: Job, cpu_seconds: Callable[[], float]
) -> dict[str, float]:
    """Times the batches of a variant in the current process, after its warm-up.

    Both counts of images are rounded up to whole batches.

    Args:
        batches: Batches of the variant, without end.
        job: The numbers of images.
        cpu_seconds: Clock of the CPU time of the variant, in seconds.

    Returns:
        cpu_seconds and seconds of the timed images, and num_images, their number.
    """
    warmup, timed = (
        -(-count // job.batch_size)
        for count in (job.num_warmup_images, job.num_timed_images)
    )
    for _ in range(warmup):
        next(batches)
    wall_start, cpu_start = time.perf_counter(), cpu_seconds()
    for _ in range(timed):
        next(batches)
    return {
        "cpu_seconds": cpu_seconds() - cpu_start,
        "seconds": time.perf_counter() - wall_start,
        "num_images": timed * job.batch_size,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a study.

    Attributes:
        figures: Keys of the JSON object, config first.
        table: The figures for people.
        schema_version: Version of the keys.
        misses: Missed targets, in words; exit code 2 if there are any.
    """

    figures: Mapping[str, Any]
    table: str
    schema_version: int = 1
    misses: Sequence[str] = ()


def conclude(name: str, argv: Sequence[str], study: Callable[[], Outcome]) -> int:
    """Carries out a study: prints its table and its JSON object, and saves the object.

    The file comes last, so no figure is lost if the file cannot be written.

    Args:
        name: Module of the study.
        argv: Command line without the flags; no words are allowed.
        study: Measures, as the flags say.

    Returns:
        The exit code: 0 done, 1 an error, 2 a target is missed.

    Raises:
        OSError: If the file cannot be written.
    """
    command.refuse_arguments(argv)
    try:
        outcome = study()
    except (OSError, ValueError, tfpipe.TfpipeError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    # The import takes seconds, for TensorFlow.
    from benchmarks.reporting import environment

    result = {
        "command": name,
        "schema_version": outcome.schema_version,
        **outcome.figures,
        "environment": environment.describe(),
    }
    print(outcome.table, flush=True)
    output.print_line(result)
    if _SAVE_RESULT.value:
        output.write(result, _SAVE_RESULT.value)
    if outcome.misses:
        print("\n".join(outcome.misses), file=sys.stderr)
    return 2 if outcome.misses else 0
