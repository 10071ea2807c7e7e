"""Measures how long a training loop waits for its input and how long it computes.

In: a dataset and the loop that reads it. Out: the same batches, and the figures of each
group of steps, to TensorBoard, to a function, and as an attribute. Wait is the time
from the request for a batch until it is there; compute is the time from then until the
next request.
"""

import dataclasses
import importlib.util
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from tfpipe import errors
from tfpipe.pages import page

T = TypeVar("T")

# Below this fraction of waiting the training step, not the input, is the bottleneck.
_NEGLIGIBLE_STALL = 0.05


class StepTime(NamedTuple):
    """One step: seconds blocked on the input, and seconds of computing.

    Example:
        >>> from tfpipe.training.step_timer import StepTime
        >>> step = StepTime(wait_seconds=0.25, compute_seconds=0.75)
        >>> step.wait_seconds / sum(step)
        0.25
    """

    wait_seconds: float
    compute_seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepFigures:
    """The figures of a group of consecutive steps of one rank.

    Example:
        >>> from tfpipe.training.step_timer import StepFigures
        >>> timer = tfpipe.StepTimer(batch_size=4)
        >>> for batch in timer.batches(range(5)):
        ...     pass
        >>> isinstance(timer.figures, StepFigures), timer.figures.num_steps
        (True, 4)

    Attributes:
        step: Number of steps done when the group ended.
        num_steps: Number of steps in the group.
        examples_per_second: Rate of this rank; every batch counts as a whole one.
        wait_seconds_per_step: Mean time blocked on the input.
        compute_seconds_per_step: Mean time of the rest of a step.
        stall_fraction: wait / (wait + compute), from 0 to 1.
        step_seconds_p50: Median of wait and compute together.
        step_seconds_p90: The 90th percentile of wait and compute together.
        step_seconds_p99: The 99th percentile of wait and compute together.
        first_batch_seconds: Time from opening the input until its first batch, when the
            input was opened last.
        bottleneck: What holds training back, in words.
    """

    step: int
    num_steps: int
    examples_per_second: float
    wait_seconds_per_step: float
    compute_seconds_per_step: float
    stall_fraction: float
    step_seconds_p50: float
    step_seconds_p90: float
    step_seconds_p99: float
    first_batch_seconds: float
    bottleneck: str

    def scalars(self) -> dict[str, float]:
        """Returns the numeric figures, by their names in TensorBoard."""
        names = [field.name for field in dataclasses.fields(self)]
        others = ("step", "num_steps", "bottleneck")
        return {f"input/{n}": getattr(self, n) for n in names if n not in others}

    def __str__(self) -> str:
        return (
            f"step {self.step}: {self.examples_per_second:.1f} examples/s, "
            f"{self.wait_seconds_per_step * 1e3:.1f} ms wait and "
            f"{self.compute_seconds_per_step * 1e3:.1f} ms compute a step, "
            f"bottleneck {self.bottleneck}"
        )

    def _repr_html_(self) -> str:
        return page.printed(str(self))


def _bottleneck(stall_fraction: float, profile: Any) -> str:
    """Says in words what holds training back: the input or the training step.

    Args:
        stall_fraction: Fraction of the time blocked on the input, from 0 to 1.
        profile: See `StepTimer`; its sentence is added if the input binds.
    """
    if stall_fraction < 0.01:
        return "the training step: < 1 % of the time waiting for input"
    percent = f"{stall_fraction * 100:.0f} % of the time waiting"
    if stall_fraction < _NEGLIGIBLE_STALL:
        return f"the training step: {percent} for input"
    within = "" if profile is None else f"; {profile.bottleneck.sentence}"
    return f"input: {percent}{within}"


class _Board:
    """Writes figures for TensorBoard; makes the folder with the first figures."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._writer: tf.summary.SummaryWriter | None = None

    def write(self, figures: StepFigures, chosen: str | None) -> None:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._folder)
        with self._writer.as_default(step=figures.step):
            for name, value in figures.scalars().items():
                tf.summary.scalar(name, value)
            tf.summary.text("input/bottleneck", figures.bottleneck)
            if chosen is not None:
                tf.summary.text("input/parallelism", chosen)

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()


class StepTimer:
    """Measures wait and compute of the steps of a training loop.

        timer = tfpipe.StepTimer(256, log_dir="logs", report=print)
        for batch in timer.batches(dataset):
            loss = train_step(batch)

    A step lasts from one request for a batch to the next. On a device that computes
    while Python goes on (a GPU), let the loop wait for the result of each step, as with
    `float(loss)`. Otherwise the loop requests the next batch while the device is busy,
    and part of the measured wait is compute.

    The first step of a run is not counted: it traces functions and fills buffers. Each
    later opening of the dataset counts as wait for its first batch.

    TensorBoard gets the scalars of `StepFigures.scalars` and the texts input/bottleneck
    and input/parallelism. They are in the folder rank-0 of log_dir (rank-1 and so on
    beside it).

    Example:
        >>> timer = tfpipe.StepTimer(batch_size=4, every=2)
        >>> for batch in timer.batches(range(5)):
        ...     pass
        >>> timer.figures.step
        5

    Attributes:
        figures: The figures of the last group of steps that ended; None before.
        clock: The clock.

    Args:
        batch_size: Examples in a batch of this rank.
        every: Number of steps in a group. The end of the dataset ends a group, too.
        log_dir: Folder for TensorBoard; None writes nothing.
        rank: The rank of this process.
        all_ranks: Whether ranks other than 0 write to log_dir as well.
        first_step: Number of steps that were done before, if training goes on.
        profile: An object with `bottleneck.sentence`, such as a `PipelineProfile`. The
            sentence is added to the bottleneck's name while the input binds.
        parallelism: `dataset_nodes.chosen_parallelism` or a similar function. It is
            called with the iterator of the dataset whenever a group is written. The
            text input/parallelism is its result, or the message of the
            NotImplementedError or ValueError that it raises.
        report: Called with the figures of each group, on every rank.
        clock: Returns seconds.

    Raises:
        ImportError: If there is a log_dir, but no TensorBoard.
        ValueError: If a number is out of range.
    """

    def __init__(
        self,
        batch_size: int,
        *,
        every: int = 100,
        log_dir: str | os.PathLike[str] | None = None,
        rank: int = 0,
        all_ranks: bool = False,
        first_step: int = 0,
        profile: Any = None,
        parallelism: Callable[[Any], object] | None = None,
        report: Callable[[StepFigures], object] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        errors.require_int(self, "batch_size", batch_size, least=1)
        errors.require_int(self, "every", every, least=1)
        errors.require_int(self, "rank", rank, least=0)
        errors.require_int(self, "first_step", first_step, least=0)
        errors.require_callable(self, "parallelism", parallelism, or_none=True)
        errors.require_callable(self, "report", report, or_none=True)
        errors.require_callable(self, "clock", clock)
        self.figures: StepFigures | None = None
        self.clock = clock
        self._batch_size = batch_size
        self._every = every
        self._board = _board(log_dir, rank) if rank == 0 or all_ranks else None
        self._profile = profile
        self._parallelism = parallelism
        self._report = report
        self._iterator: Any = None
        self._group: list[StepTime] = []
        self._step = self._first_step = first_step
        self._first_batch_seconds: float | None = None
        self._asked_at = self._given_at = 0.0
        self._in_step = False

    def batches(self, dataset: Iterable[T]) -> Iterator[T]:
        """Yields the batches of a dataset, requesting each when the loop needs it.

        It may be called again, once an epoch for instance. A step that is left by
        `break` is not counted, unless `end_step` was called.
        """
        self.begin()
        self._asked_at = self.clock()
        self._iterator = iter(dataset)
        try:
            for batch in self._iterator:
                self._given_at = self.clock()
                self._in_step = True
                yield batch
                if self._in_step:
                    self.end_step()
                self._asked_at = self.clock()
        finally:
            self._in_step = False
            self.flush()
            self._iterator = None

    def end_step(self) -> StepTime:
        """Ends the step now; the time until the next request is not counted.

        Use it where work that is no part of a step follows, such as saving a checkpoint
        or evaluating.

        Raises:
            RuntimeError: If no step is under way.
        """
        if not self._in_step:
            raise RuntimeError(
                "end_step must be called within the loop over batches(dataset), once a "
                "step; no step is under way."
            )
        self._in_step = False
        compute_seconds = self.clock() - self._given_at
        step_time = StepTime(self._given_at - self._asked_at, compute_seconds)
        self.add(*step_time)
        return step_time

    def begin(self) -> None:
        """Marks the start of reading the input, in a loop that calls `add` itself."""
        self._first_batch_seconds = None

    def add(
        self, wait_seconds: float, compute_seconds: float, *, num_steps: int = 1
    ) -> None:
        """Counts steps that were timed elsewhere; takes the sums of their seconds."""
        errors.require_int("", "num_steps", num_steps, least=1)
        is_first = self._step == self._first_step
        self._step += num_steps
        if self._first_batch_seconds is None:
            self._first_batch_seconds = wait_seconds
        if is_first:
            return
        each = StepTime(wait_seconds / num_steps, compute_seconds / num_steps)
        self._group += [each] * num_steps
        if len(self._group) >= self._every:
            self._end_group()

    def flush(self) -> None:
        """Ends the group of steps, if it has any, and writes out pending figures."""
        if self._group:
            self._end_group()
        if self._board is not None:
            self._board.flush()

    def _end_group(self) -> None:
        num_steps = len(self._group)
        wait, compute = np.sum(self._group, axis=0).tolist()
        p50, p90, p99 = np.percentile(np.sum(self._group, 1), [50, 90, 99]).tolist()
        # A coarse clock may show a duration of 0.
        seconds = max(wait + compute, 1e-9)
        figures = self.figures = StepFigures(
            step=self._step,
            num_steps=num_steps,
            examples_per_second=num_steps * self._batch_size / seconds,
            wait_seconds_per_step=wait / num_steps,
            compute_seconds_per_step=compute / num_steps,
            stall_fraction=wait / seconds,
            step_seconds_p50=p50,
            step_seconds_p90=p90,
            step_seconds_p99=p99,
            first_batch_seconds=self._first_batch_seconds or 0.0,
            bottleneck=_bottleneck(wait / seconds, self._profile),
        )
        self._group = []
        if self._board is not None:
            self._board.write(figures, _ask(self._parallelism, self._iterator))
        if self._report is not None:
            self._report(figures)


def _ask(parallelism: Callable[[Any], object] | None, iterator: Any) -> str | None:
    """Returns what AUTOTUNE chose, or why that is unknown; None if not asked for."""
    if parallelism is None or iterator is None:
        return None
    try:
        return str(parallelism(iterator))
    except (NotImplementedError, ValueError) as error:
        return str(error)  # a missing figure must not end a training run


def _board(log_dir: str | os.PathLike[str] | None, rank: int) -> _Board | None:
    """Returns the writer of a rank for TensorBoard; None without a folder."""
    if log_dir is None:
        return None
    # Otherwise tf.summary fails in the middle of training, at the first figure.
    if importlib.util.find_spec("tensorboard") is None:
        raise ImportError(
            "log_dir needs TensorBoard, which this TensorFlow came without: "
            "pip install tensorboard, or leave log_dir out."
        )
    return _Board(os.path.join(log_dir, f"rank-{rank}"))
