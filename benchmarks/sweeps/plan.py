"""Runs of a sweep: every combination of its settings.

In: a `Sweep`. Out: its `Run`s, each once, and its `Series`, for which scaling is
computed. This module starts no process and reads no file.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import statistics
import sys
from collections.abc import Mapping
from typing import Any

SCALINGS = ("weak", "strong")

Result = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One start of benchmarks.train.

    Attributes:
        model: Name of the model.
        num_ranks: Number of ranks; a single rank is started without horovodrun.
        batch_size: Examples in a batch of each rank; None for the model's default.
        data_dir: Folder of the data set; None if `arguments` name the data.
        repeat: Number of this run, from 1, among runs with equal settings.
        arguments: More flags of benchmarks.train.
        horovodrun_arguments: More flags of horovodrun, such as its hosts.
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
        """Name of the run's file without suffix; unique to the run's settings."""
        batch = "own" if self.batch_size is None else str(self.batch_size)
        folder = pathlib.Path(self.data_dir).name if self.data_dir else "no-data"
        place = os.path.abspath(self.data_dir) if self.data_dir else None
        rest = json.dumps([place, self.arguments, self.horovodrun_arguments])
        digest = hashlib.sha256(rest.encode()).hexdigest()[:8]
        return (
            f"{self.model}-x{self.num_ranks}-b{batch}-{folder}-{digest}-r{self.repeat}"
        )

    def command(self, horovodrun: str) -> list[str]:
        """Returns the command that starts the run.

        Args:
            horovodrun: Path of horovodrun; used for two ranks or more.
        """
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
        """Returns the fields as a dict that JSON can hold."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """Runs that differ only in their number of ranks.

    Attributes:
        scaling: "weak" keeps the batch size of a rank, "strong" the global batch size.
        model: Name of the model.
        batch_size: Batch size of a rank if weak, global batch size if strong; None for
            the model's default.
        data_dir: Folder of the data set, or None.
    """

    scaling: str
    model: str
    batch_size: int | None
    data_dir: str | None

    def batch_size_per_rank(self, num_ranks: int) -> int | None:
        """Returns the batch size of each rank; None for the model's default."""
        if self.batch_size is None or self.scaling == "weak":
            return self.batch_size
        return self.batch_size // num_ranks

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as a dict that JSON can hold."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """Settings of a sweep, which runs all their combinations.

    The help of the flags of the same names describes each setting.
    """

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
        """Returns the series for which scaling is computed."""
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
        """Returns the repeats of a series on one number of ranks."""
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
        """Returns every run once, including runs that several series share.

        The first repeat of all settings comes before the second repeat of any, so that
        a slow hour of the machine affects all settings alike.
        """
        found = [
            run
            for series in self.series()
            for num_ranks in self.ranks
            for run in self.runs_of(series, num_ranks)
        ]
        return sorted(dict.fromkeys(found), key=lambda run: run.repeat)

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as a dict that JSON can hold."""
        return dataclasses.asdict(self)


def estimate_seconds(run: Run, finished: Mapping[Run, Result]) -> float | None:
    """Returns the mean duration, in seconds, of the finished repeats of a run.

    Only runs with the same settings count, because nothing predicts how long another
    model, batch or number of ranks takes. None if no such run has finished.
    """
    seconds = [
        result["sweep"]["seconds"]
        for other, result in finished.items()
        if dataclasses.replace(other, repeat=run.repeat) == run
    ]
    return statistics.mean(seconds) if seconds else None
