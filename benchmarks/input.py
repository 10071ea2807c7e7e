"""How fast does the pipeline deliver data, and where is its bottleneck?

  python -m benchmarks.input --data_dir=DIR
  python -m benchmarks.input --data_dir=DIR --do=tune --tuning=tuning.json
  python -m benchmarks.input --pipeline=my_module:make_pipeline --do=profile

There are four parts; --do chooses some of them:
  throughput  images/s and CPU-seconds an image, without a training step; ten shuffle
              windows are timed after the records that were read ahead
  profile     the cost and the possible rate of each stage, the bottleneck, a remedy
  tune        the best setting within the budgets, compared with AUTOTUNE; --tuning
              stores it for benchmarks.train --tuning and tfpipe.load_tuned. With
              --demand it says whether a tf.data service would pay
  headspace   the training step of --model with a cached batch, compared with the
              pipeline, and how many cores can be taken away before the input matters
Reading, decoding and batching are always measured; the copy to a device only in
headspace.

Under horovodrun all ranks measure at the same time, each with its share of the records
and of the budgets of its host. The answer sums their rates; tables are of rank 0. On
stdout: tables, and one JSON object as the last line, before a file is written. With
--report_dir the object is stored for python -m benchmarks.report. On stderr: a line
every 10 s. With --time_limit the command ends in time, and `cut_off` in the object
lists the parts without a result. Exit code: 0 done, 1 an error.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import importlib
import inspect
import math
import os
import pathlib
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import tfpipe
from benchmarks.models import accelerators, catalog
from benchmarks.options.config import OF_CACHES, RUN, UNUSED_STORE, DataOptions, unused
from benchmarks.planning import published
from benchmarks.reporting import answers, output
from tfpipe import cli
from tfpipe.cli import output as cli_output
from tfpipe.cli.progress import Progress

# TensorFlow takes seconds to import: functions import what imports it.
if TYPE_CHECKING:
    from benchmarks.distributed.ranks import Ranks, Seat

_LENGTH = cli.group("How long")
_SEARCH = cli.group("How tune may search")
GROUPS = (
    *("What to run", "How long", "How tune may search", "Where the records are"),
    *("How the input is made", "What is kept"),
)
# The parts, and their times relative to each other.
_WEIGHTS = {"throughput": 1.0, "profile": 3.0, "tune": 6.0, "headspace": 4.0}
PARTS = tuple(_WEIGHTS)
Value = TypeVar("Value")


class TimeLimit:
    """The seconds that a command may take, which began `used` seconds ago."""

    def __init__(
        self,
        seconds: float | None,
        *,
        used: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._end = math.inf if seconds is None else clock() - used + seconds

    def left(self) -> float:
        """Returns the remaining seconds; `math.inf` without a limit."""
        return self._end - self._clock()

    def share(self, weights: Mapping[str, float], parts: Sequence[str]) -> float:
        """Returns the seconds for the first of the parts left, by their weights."""
        return self.left() * weights[parts[0]] / sum(weights[part] for part in parts)

    def run(self, function: Callable[[], Value]) -> Value:
        """Calls a function and returns its result.

        If no time is left, or the function has not returned when the time is over, a
        TimeoutError is raised. The thread of the function then dies with the process.
        """
        if self.left() == math.inf:
            return function()
        outcome = concurrent.futures.Future[Value]()

        def call() -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_exception(error)

        if self.left() > 0:
            # Not of a pool, whose threads the process waits for at its end.
            threading.Thread(target=call, daemon=True).start()
            concurrent.futures.wait([outcome], self.left())
        if not outcome.done():
            raise TimeoutError
        return outcome.result()


def seconds_since_start() -> float:
    """Returns the age of the process in seconds."""
    # The 22nd field of proc(5), in ticks since the machine started: no wall clock.
    fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)


@cli.options
class InputConfig(DataOptions):
    """The options of a measurement."""

    pipeline: str | None = RUN(
        None,
        "A function of yours in place of a preset. module:function returns a "
        "tfpipe.Pipeline; it is called with rank and num_ranks if it takes them.",
        shown="MODULE:FUNCTION",
    )
    preset: Literal["imagenet_train", "imagenet_eval"] = RUN(
        "imagenet_train", "Pipeline to measure over --data_dir."
    )
    do: tuple[str, ...] = RUN(
        PARTS,
        "Parts to run, one after the other. throughput: images/s and CPU time. "
        "profile: the cost of each stage, and the limit of the pipeline. tune: search "
        "the best tuning within the budgets. headspace: how far the input is from "
        "limiting --model.",
        choices=PARTS,
        shown="PART,...",
    )
    seconds: float = _LENGTH(3.0, "Approximate time of each measurement.", above=0)
    time_limit: float | None = _LENGTH(
        None,
        "Seconds that the whole command may take, from its start on. The parts share "
        "them; tune is left out if less than 20 s are its share. A part that is not "
        "done at the end is cut off, and the result of the others is printed. Default: "
        "no limit, and a minute for tune.",
        least=1,
    )
    cpu_budget: int | None = _SEARCH(
        None,
        "Threads for the pipelines of all ranks of a host. Default: the host's cores.",
        least=1,
    )
    ram_budget_bytes: int | None = _SEARCH(
        None,
        "GB for buffers and caches of these pipelines. Default: half of the free "
        "memory.",
        name="ram_budget_gb",
        parse=cli.gigabytes,
        shown="X",
    )
    disk_budget_bytes: int | None = _SEARCH(
        None,
        "GB for a cache in --cache_dir. tune tries a cache on disk only if both flags "
        "are given.",
        name="disk_budget_gb",
        parse=cli.gigabytes,
        shown="X",
    )
    cache_dir: str | None = _SEARCH(
        None, "Folder on a disk of this host, for a cache that tune may add."
    )
    any_order: bool = _SEARCH(
        False,
        "Let tune also try deterministic=False. Elements then come in the order in "
        "which they are ready, which is not reproducible.",
    )
    demand: str | None = _SEARCH(
        None,
        "Images/s that the training step of a rank could take, such as 1500. Or one of "
        f"{', '.join(published.NAMES)}, for its published figure of --model. "
        "tune then says whether a tf.data service with cores of other hosts would pay.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.data_dir is None) == (self.pipeline is None):
            raise ValueError(
                "One of --data_dir and --pipeline must be given, and not both; got "
                f"data_dir={self.data_dir}, pipeline={self.pipeline}."
            )
        if bool(self.disk_budget_bytes) != bool(self.cache_dir):
            raise ValueError(
                "--disk_budget_gb and --cache_dir must be given together, got "
                f"{(self.disk_budget_bytes or 0) / 1e9} and {self.cache_dir}."
            )
        _ = self.images_per_second_wanted  # checks itself

    @property
    def images_per_second_wanted(self) -> float | None:
        """Images per second that the step of a rank could take; None if unknown."""
        if self.demand is None:
            return None
        with contextlib.suppress(ValueError):
            if 0 < float(self.demand) < math.inf:
                return float(self.demand)
        built_in = published.ACCELERATORS
        if accelerators.name_of(self.demand, built_in) not in built_in:
            raise ValueError(
                "--demand must be images/s, a number above 0, or one of "
                f"{', '.join(published.NAMES)}; got {self.demand}."
            )
        mode = "train" if self.preset == "imagenet_train" else "infer"
        about = {"flag": "--demand", "remedy": "the images/s"}
        figure = accelerators.find(built_in, self.demand, self.model, mode, **about)
        return figure.images_per_second


# The flags without an effect, by what a command measures.
UNUSED = (
    UNUSED_STORE,
    *unused(
        (
            "--pipeline",
            lambda c: c.pipeline is not None,
            f"preset image_size batch_size whole_batches read_from {OF_CACHES}",
        ),
        (
            "--pipeline without headspace",
            lambda c: c.pipeline is not None and "headspace" not in c.do,
            "seed",
        ),
        (
            "--pipeline without headspace and --demand",
            lambda c: c.pipeline and "headspace" not in c.do and not c.demand,
            "model",
        ),
        (
            "A measurement without tune",
            lambda c: "tune" not in c.do,
            "cpu_budget ram_budget_bytes disk_budget_bytes cache_dir any_order demand "
            "tuning",
        ),
        ("--do=tune", lambda c: c.do == ("tune",), "seconds"),
    ),
)


def make_pipeline(
    config: InputConfig, world: Ranks, tuning: tfpipe.Tuning
) -> tfpipe.Pipeline:
    """Makes the pipeline of the rank: a preset, or a function of the user."""
    if config.pipeline is None:
        from benchmarks.training.setting import preset_pipeline

        # As in benchmarks.train, because a tuning is stored for an equal pipeline.
        is_training = config.preset == "imagenet_train"
        return preset_pipeline(config, world, tuning, is_training=is_training)
    module_name, _, function_name = config.pipeline.partition(":")
    sys.path.insert(0, os.getcwd())  # as python -m does for the script
    must = (
        f"--pipeline={config.pipeline} must be module:function, which needs no "
        "arguments but rank and num_ranks and returns a tfpipe.Pipeline; got "
    )
    arguments = {"rank": world.rank, "num_ranks": world.num_ranks}
    try:
        function = getattr(importlib.import_module(module_name), function_name)
        taken = arguments.keys() & inspect.signature(function).parameters
        pipeline = function(**{key: arguments[key] for key in taken})
    except (Exception, SystemExit) as error:
        steps = traceback.extract_tb(error.__traceback__)[1:]
        own = [s for s in steps if "importlib" not in s.filename]
        where = f", raised in {own[-1].filename}:{own[-1].lineno}" if own else ""
        raise ValueError(f"{must}{type(error).__name__}: {error}{where}.") from error
    if not isinstance(pipeline, tfpipe.Pipeline):
        raise ValueError(f"{must}{pipeline!r}.")
    return pipeline


@dataclasses.dataclass
class Measured:
    """Findings so far, for later parts; the pipeline is tuned after `tune`.

    The `seconds` are the time for the next part.
    """

    pipeline: tfpipe.Pipeline
    seat: Seat
    seconds: float = math.inf
    results: dict[str, Any] = dataclasses.field(default_factory=dict)
    search: tfpipe.Search | None = None


def throughput(config: InputConfig, world: Ranks, measured: Measured) -> str:
    """Measures the rate without a training step; returns the rate as text."""
    most_seconds = measured.seconds / 2
    if config.pipeline is None:
        from benchmarks.training import input_rate

        sections = input_rate.measure(
            measured.pipeline, world, seconds=config.seconds, most_seconds=most_seconds
        )
        size = config.image_size or catalog.MODELS[config.model].image_size
        sections["image_size"] = size
        texts = [sections[name]["text"] for name in ("steady_state", "host_load")]
        if "cache" in sections:
            texts.append(f"Page cache {sections['cache']['text']}")
        text = "\n".join([input_rate.text(sections["throughput"]), *texts])
    else:
        figures = tfpipe.throughput(
            measured.pipeline.build(num_epochs=None),
            seconds=min(config.seconds, most_seconds),
        )
        rates = [
            each.examples_per_second or each.elements_per_second
            for each in world.gather(figures)
        ]
        sections = {
            "throughput": figures.as_json(),
            "examples_per_second": sum(rates),
            "examples_per_second_per_rank": rates,
        }
        text = str(figures)
    batch = sections["throughput"]
    cost = batch["cpu_seconds_per_element"] / (batch["examples_per_element"] or 1)
    measured.results |= {**sections, "cpu_seconds_per_example": cost}
    return text


def profile(config: InputConfig, world: Ranks, measured: Measured) -> str:
    """Measures the costs of stages and the bottleneck; returns both as text."""
    # The profile takes about (number of stages + 3) * repeats * seconds.
    num_runs = (len(measured.pipeline.stages) + 3) * _PROFILE_REPEATS
    stages = tfpipe.profile(
        measured.pipeline,
        seconds=min(config.seconds / 3, measured.seconds / (2 * num_runs)),
        repeats=_PROFILE_REPEATS,
    )
    measured.results["profile"] = stages.as_json()
    return str(stages)


def tune(config: InputConfig, world: Ranks, measured: Measured) -> str:
    """Searches the best setting for the later parts; returns the setting as text."""
    search = tfpipe.search_tuning(
        measured.pipeline,
        # The search divides the budget by the ranks of the host, but a seat already is
        # for a single rank.
        cpu_budget=config.cpu_budget
        or measured.seat.num_threads * world.num_local_ranks,
        ram_budget_bytes=config.ram_budget_bytes,
        disk_budget_bytes=config.disk_budget_bytes,
        cache_dir=config.cache_dir,
        num_local_ranks=world.num_local_ranks,
        any_order=config.any_order,
        time_limit=min(_TUNE_SECONDS, measured.seconds),
        demand=config.images_per_second_wanted,
    )
    measured.pipeline = search.pipeline
    measured.search = search
    measured.results["tune"] = search.as_json()
    return str(search)


def headspace(config: InputConfig, world: Ranks, measured: Measured) -> str:
    """Compares the rates of pipeline and training step; returns both as text."""
    from benchmarks.training import steps

    step = steps.make_step(config.model, measured.pipeline, seed=config.seed)
    # Three turns of three kinds, for each halving of the cores.
    num_turns = 9 * (measured.seat.num_threads.bit_length() + 1)
    room = tfpipe.headspace(
        measured.pipeline,
        step,
        seconds=min(config.seconds / 2, measured.seconds / (2 * num_turns)),
    )
    measured.results["headspace"] = room.as_json()
    return str(room)


_PROFILE_REPEATS = 3
_TUNE_SECONDS = 60.0
# With less time a search tries no setting, and takes the time of the later parts.
_LEAST_SECONDS = {"tune": 20.0}

_PARTS: dict[str, Callable[[InputConfig, Ranks, Measured], str]] = {
    part.__name__: part for part in (throughput, profile, tune, headspace)
}


def run(
    config: InputConfig,
    world: Ranks,
    *,
    seat: Seat | None = None,
    limit: TimeLimit | None = None,
) -> dict[str, Any]:
    """Runs the parts of the config, prints and stores the findings.

    Args:
        seat: Cores and threads of the rank; None: an equal part of the host.
        limit: Time left for the parts; None: the limit of the config, from now on.

    Returns:
        The result, for JSON. `cut_off` lists the parts left out for the time limit; a
        thread of the first part left out may still be running.
    """
    from benchmarks.distributed import ranks
    from benchmarks.results import checks, environment
    from benchmarks.training.setting import make_tuning

    if config.report_dir and world.is_first:
        # First, so that an unusable folder is known before the work.
        pathlib.Path(config.report_dir).mkdir(parents=True, exist_ok=True)
    seat = seat or ranks.unbound(world.num_local_ranks)
    tuning = make_tuning(seat, world)
    measured = Measured(make_pipeline(config, world, tuning), seat)
    if world.is_first:
        cli_output.tell(measured.pipeline)
    cut_off = _run_parts(config, world, measured, limit or TimeLimit(config.time_limit))
    pipeline = measured.pipeline
    result = {
        **checks.head(checks.INPUT),
        "config": dataclasses.asdict(config),
        "paths": environment.paths(pipeline),
        "pipeline": str(pipeline).splitlines(),
        "num_ranks": world.num_ranks,
        **measured.results,
        "storage": _storage(config, world, pipeline),
        "cut_off": cut_off,
        "environment": environment.of_run(world, pipeline.source),
    }
    if world.is_first:
        output.show(result, *answers.inputs(result))
        files: dict[pathlib.Path, Callable[[], object]] = {}
        if config.tuning is not None and measured.search is not None:
            save = functools.partial(measured.search.save, config.tuning)
            files[pathlib.Path(config.tuning)] = save
        if config.report_dir:
            path = output.path_in(config.report_dir, "input", output.now())
            files[path] = functools.partial(output.write, result, path)
        output.write_each(files)
    return result


def _run_parts(
    config: InputConfig, world: Ranks, measured: Measured, limit: TimeLimit
) -> list[str]:
    """Runs the parts, prints the findings, and returns the parts without a result."""
    progress, left = Progress(), list(config.do)
    with progress.shown(is_first=world.is_first):
        for index, part in enumerate(config.do):
            progress.begin(f"{part}, part {index + 1} of {len(config.do)}")
            # The ranks agree on the time, and begin to measure together.
            share = limit.share(_WEIGHTS, config.do[index:])
            measured.seconds = min(world.gather(share))
            if measured.seconds < _LEAST_SECONDS.get(part, 0.0):
                continue
            function = functools.partial(_PARTS[part], config, world, measured)
            try:
                text = limit.run(function)
            except TimeoutError:
                text = ""
            if not all(world.gather(bool(text))):
                break
            left.remove(part)
            if world.is_first:
                whose = ", rank 0" if world.num_ranks > 1 else ""
                cli_output.tell(f"\n{part}{whose}\n{text}")
    if left:
        print(
            f"--time_limit={config.time_limit:g} leaves no result of "
            f"{', '.join(left)}. Give more time, or choose with --do.",
            file=sys.stderr,
        )
    return left


def _storage(
    config: InputConfig, world: Ranks, pipeline: tfpipe.Pipeline
) -> dict[str, Any] | None:
    if config.data_dir is None:
        return None
    from benchmarks.page_cache.labels import EpochCache
    from benchmarks.training import caches

    if not config.has_shard_cache:
        return {"tier": caches.storage(config, ())["tier"]}
    source: Any = pipeline.source
    statistics = world.gather(source.cache_statistics())
    everything = EpochCache(
        epoch=0,
        consumed_bytes=sum(rank.bytes_wanted for rank in statistics),
        storage_bytes=None,
        resident_fractions=(),
        server_bytes=sum(rank.bytes_fetched for rank in statistics),
        num_requests=sum(rank.num_requests for rank in statistics),
    )
    return caches.storage(config, [everything])


def measure(config: InputConfig) -> None:
    """Runs and prints the parts of the flags."""
    from benchmarks.distributed import ranks

    limit = TimeLimit(config.time_limit, used=seconds_since_start())
    world = ranks.connect()
    result = run(config, world, seat=ranks.take_seat(world), limit=limit)
    if result["cut_off"]:
        # Without a wait for the running part.
        sys.stdout.flush()
        os._exit(0)


COMMANDS = (
    cli.Command(
        InputConfig,
        measure,
        arguments=("data_dir",),
        groups=GROUPS,
        unused=UNUSED,
        cleans_up=False,
    ),
)

if __name__ == "__main__":
    cli.run(*COMMANDS)
