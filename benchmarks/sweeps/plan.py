"""What a sweep runs: every combination of its settings, and how long that takes.

In: a `Sweep`. Out: its `Run`s, each once, and its `Series`, whose scaling is of
interest. Starts nothing and reads no file.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

SCALINGS = ("weak", "strong")

# What a run is taken to need until one has shown it.
_START_SECONDS = 20.0
_STEP_SECONDS = 1.0
_DEFAULT_STEPS = {"--num_steps": 100, "--num_warmup_steps": 10}

Result = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One start of benchmarks.train.

    Attributes:
        model: Its model.
        num_ranks: Ranks; a single one is started without horovodrun.
        batch_size: Examples in a batch of each rank; None for the model's own.
        data_dir: Its data; None if `arguments` say what it is fed.
        repeat: Its number among runs that are otherwise the same, from 1.
        arguments: More flags of benchmarks.train.
        horovodrun_arguments: More flags of horovodrun, as for hosts.
    """

    model: str
    num_ranks: int
    batch_size: int | None
    data_dir: str | None
    repeat: int
    arguments: tuple[str, ...] = ()
    horovodrun_arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its file, without ending; no other settings have the same."""
        batch = "own" if self.batch_size is None else str(self.batch_size)
        folder = pathlib.Path(self.data_dir).name if self.data_dir else "no-data"
        place = os.path.abspath(self.data_dir) if self.data_dir else None
        rest = json.dumps([place, self.arguments, self.horovodrun_arguments])
        digest = hashlib.sha256(rest.encode()).hexdigest()[:8]
        return (
            f"{self.model}-x{self.num_ranks}-b{batch}-{folder}-{digest}-r{self.repeat}"
        )

    def command(self, horovodrun: str) -> list[str]:
        """What to start."""
        flags = [f"--model={self.model}"]
        if self.batch_size is not None:
            flags.append(f"--batch_size={self.batch_size}")
        if self.data_dir is not None:
            flags.append(f"--data_dir={self.data_dir}")
        train = [sys.executable, "-m", "benchmarks.train", *flags, *self.arguments]
        if self.num_ranks == 1:
            return train
        ranks = ("-np", str(self.num_ranks))
        return [horovodrun, *ranks, *self.horovodrun_arguments, *train]

    def as_json(self) -> dict[str, Any]:
        """The fields as a dict that JSON can hold."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """RecordRanges that differ in the number of ranks alone.

    Attributes:
        scaling: weak: the batch of each rank stays. strong: the global batch stays.
        model: Their model.
        batch_size: Of each rank if weak, global if strong; None for the model's own.
        data_dir: Their data, or None.
    """

    scaling: str
    model: str
    batch_size: int | None
    data_dir: str | None

    def batch_size_per_rank(self, num_ranks: int) -> int | None:
        """Examples in a batch of each rank."""
        if self.batch_size is None or self.scaling == "weak":
            return self.batch_size
        return self.batch_size // num_ranks

    def as_json(self) -> dict[str, Any]:
        """The fields as a dict that JSON can hold."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """Settings to run every combination of; the flags' help says more about each."""

    models: tuple[str, ...] = ("resnet50",)
    ranks: tuple[int, ...] = (1,)
    batch_sizes: tuple[int, ...] = ()
    data_dirs: tuple[str, ...] = ()
    scaling: tuple[str, ...] = ("weak",)
    repeats: int = 1
    run_timeout: float = 3600.0
    arguments: tuple[str, ...] = ()
    horovodrun_arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("models", "ranks", "scaling"):
            if not getattr(self, name):
                raise ValueError(f"--{name} must name at least one, got none.")
        numbers = (*self.ranks, *self.batch_sizes, self.repeats, self.run_timeout)
        if any(not number > 0 for number in numbers):
            raise ValueError(
                "--ranks, --batch_sizes, --repeats and --run_timeout must be above 0, "
                f"got {self.ranks}, {self.batch_sizes}, {self.repeats} and "
                f"{self.run_timeout}."
            )
        if unknown := set(self.scaling) - set(SCALINGS):
            raise ValueError(
                f"--scaling must be of {', '.join(SCALINGS)}, got "
                f"{', '.join(sorted(unknown))}."
            )
        self._check_arguments()
        if "strong" in self.scaling:
            self._check_strong()

    def _check_arguments(self) -> None:
        given = {argument.partition("=")[0].lstrip("-") for argument in self.arguments}
        swept = {"model": "models", "batch_size": "batch_sizes"}
        if self.data_dirs:
            swept |= {"data_dir": "data_dirs", "synthetic": "data_dirs"}
        elif not given & {"data_dir", "synthetic"}:
            raise ValueError(
                "One of --data_dirs and, after --, --synthetic must be given: the runs "
                "need data."
            )
        for name in sorted(given & set(swept)):
            raise ValueError(
                f"--{name} cannot be given after --: it is what --{swept[name]} is for."
            )

    def _check_strong(self) -> None:
        if not self.batch_sizes:
            raise ValueError(
                "--scaling=strong must have --batch_sizes: they are the global batches."
            )
        for batch_size in self.batch_sizes:
            for num_ranks in self.ranks:
                if batch_size % num_ranks:
                    raise ValueError(
                        "With --scaling=strong each of --batch_sizes must be divisible "
                        f"by each of --ranks; {batch_size} is not by {num_ranks}."
                    )

    def series(self) -> list[Series]:
        """What to compute the scaling of."""
        return [
            Series(
                scaling=scaling, model=model, batch_size=batch_size, data_dir=data_dir
            )
            for data_dir in self.data_dirs or (None,)
            for model in self.models
            for scaling in self.scaling
            for batch_size in self.batch_sizes or (None,)
        ]

    def runs_of(self, series: Series, num_ranks: int) -> list[Run]:
        """The repeats of one point of a series."""
        return [
            Run(
                model=series.model,
                num_ranks=num_ranks,
                batch_size=series.batch_size_per_rank(num_ranks),
                data_dir=series.data_dir,
                repeat=repeat + 1,
                arguments=self.arguments,
                horovodrun_arguments=self.horovodrun_arguments,
            )
            for repeat in range(self.repeats)
        ]

    def runs(self) -> list[Run]:
        """Every run once, also one that several series share.

        All settings have their first run before any has its second, so that a slow
        hour of the machine meets them alike.
        """
        found = [
            run
            for series in self.series()
            for num_ranks in self.ranks
            for run in self.runs_of(series, num_ranks)
        ]
        return sorted(dict.fromkeys(found), key=lambda run: run.repeat)

    def as_json(self) -> dict[str, Any]:
        """The fields as a dict that JSON can hold."""
        return dataclasses.asdict(self)


def estimate_seconds(run: Run, finished: Mapping[Run, Result]) -> float:
    """How long a run takes, from the finished run that is most like it.

    A repeat takes as long as the mean of its like. Otherwise the nearest finished run
    gives the time to start and the timed part, which grows with the batch if the number
    of steps is given, and shrinks with the number of ranks if it is an epoch. Without
    any finished run, 20 s to start and 1 s a step are assumed.
    """
    if not finished:
        steps = sum(_steps(run.arguments, flag) for flag in _DEFAULT_STEPS)
        return _START_SECONDS + _STEP_SECONDS * steps
    same = [
        result["sweep"]["seconds"]
        for other, result in finished.items()
        if dataclasses.replace(other, repeat=run.repeat) == run
    ]
    if same:
        return float(statistics.mean(same))
    nearest = min(finished, key=lambda other: _distance(run, other))
    seconds: float = finished[nearest]["sweep"]["seconds"]
    timed: float = finished[nearest]["timed_seconds"]
    if any(argument.startswith("--num_steps") for argument in run.arguments):
        factor = (run.batch_size or 1) / (nearest.batch_size or run.batch_size or 1)
    else:
        factor = nearest.num_ranks / run.num_ranks
    return seconds + timed * (factor - 1)


def _distance(run: Run, other: Run) -> tuple[bool, int, int]:
    return (
        run.model != other.model,
        abs((run.batch_size or 0) - (other.batch_size or 0)),
        abs(run.num_ranks - other.num_ranks),
    )


def _steps(arguments: Sequence[str], flag: str) -> int:
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name == flag and value.isdecimal():
            return int(value)
    return _DEFAULT_STEPS[flag]
