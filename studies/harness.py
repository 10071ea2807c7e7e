"""The harness of all studies: variants in turns, spreads, and the stored result.

In: the variants of a study by name, and its options. Out: the runs of
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

from benchmarks.reporting import output
from studies.figures import Run, cost, rate
from tfpipe import cli

# Every variant is faster on every machine: a run that takes longer has hung.
_MIN_IMAGES_PER_SECOND = 5


@cli.options
class StudyOptions:
    """Options of every study."""

    num_rounds: int = cli.flag(
        3,
        "Times that each variant is run; figures are medians over the rounds.",
        least=1,
    )
    save_result: str | None = cli.flag(
        None, "File to write the JSON object to as well.", shown="FILE"
    )


@cli.options
class ConversionOptions(StudyOptions):
    """Options of a study of conversions."""

    num_rounds: int = 5
    num_processes: int = cli.flag(2, "Processes of each conversion.", least=1)


@cli.options
class ReadingOptions(StudyOptions):
    """Options of a study that reads the images of a data set."""

    data_dir: str = cli.required("Folder of a converted data set.")
    image_size: int = cli.flag(
        224, "Height and width of the images in pixels.", least=32
    )
    batch_size: int = cli.flag(64, "Images in a batch.", least=1)
    num_timed_images: int = cli.flag(
        4000,
        "Images of a run that are timed; a quarter as many are read before as warm-up.",
        least=1,
    )

    def job_fields(self) -> dict[str, Any]:
        """Returns the fields of a `Job`."""
        return {
            "data_dir": self.data_dir,
            "image_size": self.image_size,
            "batch_size": self.batch_size,
            "num_warmup_images": self.num_timed_images // 4,
            "num_timed_images": self.num_timed_images,
        }


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
    module: str,
    name: str,
    job: Any,
    *,
    time_limit: float | None,
    python: str = sys.executable,
) -> dict[str, float]:
    """Runs `module.measure(name, job)` in a process of its own; returns its figures.

    Args:
        module: Module of `measure` and of the dataclass `Job`.
        name: Name of the variant.
        job: A `Job` of the module.
        time_limit: Seconds until the process, with all that it started, is killed;
            None for no limit.
        python: The interpreter of the process.

    Raises:
        OSError: If the process fails or reaches the time limit; the message holds its
            stderr.
    """
    fields = json.dumps(dataclasses.asdict(job))
    words = ("-m", "studies.child", module, name, fields)
    out: dict[str, float] = _last_line(words, name, time_limit, python)
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


def _last_line(
    words: Sequence[object],
    name: str,
    time_limit: float | None,
    python: str = sys.executable,
) -> Any:
    """Runs `python WORDS` and returns the JSON object of its last line."""
    with subprocess.Popen(
        [python, *map(str, words)],
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


def conclude(name: str, options: StudyOptions, outcome: Outcome) -> int:
    """Prints the table and the JSON object of a study, and saves the object.

    The file comes last, so no figure is lost if the file cannot be written.

    Args:
        name: Module of the study.
        options: Options of the study.
        outcome: The result.

    Returns:
        The exit code: 0 done, 2 a target is missed.

    Raises:
        OSError: If the file cannot be written.
    """
    # The import takes seconds, for TensorFlow.
    from benchmarks.results import environment

    result = {
        "command": name,
        "schema_version": outcome.schema_version,
        **outcome.figures,
        "environment": environment.describe(),
    }
    print(outcome.table, flush=True)
    output.show(result)
    if options.save_result:
        output.write(result, options.save_result)
    if outcome.misses:
        print("\n".join(outcome.misses), file=sys.stderr)
    return 2 if outcome.misses else 0
