"""How long a training loop waits for its input, how long it computes, while it trains.

In: a dataset and the loop that reads it. Out: the same batches, and for every window of
steps the figures of it, to TensorBoard, to a function, or to look at. Wait is the time
from asking for a batch until it is there, compute from there until the next request.
"""

import dataclasses
import importlib.util
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import tensorflow as tf

from tfpipe import errors

T = TypeVar("T")

# Training without any wait would be faster by less than this: the step holds it back.
_NEGLIGIBLE_STALL = 0.05


class _Bottleneck(Protocol):
    @property
    def sentence(self) -> str: ...


class _Profile(Protocol):
    """What `StepTimer` needs to know of a profile."""

    @property
    def bottleneck(self) -> _Bottleneck: ...


class StepTime(NamedTuple):
    """One step: seconds blocked on the input, and seconds from there on."""

    wait_seconds: float
    compute_seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepFigures:
    """The figures of a window of steps of one rank.

    Attributes:
        step: Steps done when the window ended.
        num_steps: Steps in the window.
        examples_per_second: Of whole batches.
        wait_seconds_per_step: Blocked on the input, the mean.
        compute_seconds_per_step: The rest of a step, the mean.
        stall_fraction: wait / (wait + compute), from 0 to 1.
        step_seconds_p50: Half of the steps took at most so long, wait and compute.
        step_seconds_p90: The same of 90 % of the steps.
        step_seconds_p99: The same of 99 % of the steps.
        first_batch_seconds: From opening the input until its first batch, the last
            time that it was opened.
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
        """The figures that are numbers, by the names that TensorBoard gets."""
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


def name_bottleneck(stall_fraction: float, profile: _Profile | None) -> str:
    """What holds training back, in words: the input or the training step.

    Args:
        stall_fraction: Share of the time blocked on the input, from 0 to 1.
        profile: Says what in the input binds; it is quoted where the input does.
    """
    if stall_fraction < 0.01:
        return "the training step: < 1 % of the time waiting for input"
    percent = f"{stall_fraction * 100:.0f} % of the time waiting"
    if stall_fraction < _NEGLIGIBLE_STALL:
        return f"the training step: {percent} for input"
    within = "" if profile is None else f"; {profile.bottleneck.sentence}"
    return f"input: {percent}{within}"


def summarize(
    window: Sequence[StepTime],
    *,
    step: int,
    batch_size: int,
    first_batch_seconds: float,
    profile: _Profile | None,
) -> StepFigures:
    """The figures of at least one step; see `StepFigures` and `StepTimer`."""
    wait, compute = np.sum(window, axis=0).tolist()
    # A step cannot take no time at all, but a clock can fail to see it.
    seconds = max(wait + compute, 1e-9)
    stall_fraction = wait / seconds
    p50, p90, p99 = np.percentile(np.sum(window, axis=1), [50, 90, 99]).tolist()
    return StepFigures(
        step=step,
        num_steps=len(window),
        examples_per_second=len(window) * batch_size / seconds,
        wait_seconds_per_step=wait / len(window),
        compute_seconds_per_step=compute / len(window),
        stall_fraction=stall_fraction,
        step_seconds_p50=p50,
        step_seconds_p90=p90,
        step_seconds_p99=p99,
        first_batch_seconds=first_batch_seconds,
        bottleneck=name_bottleneck(stall_fraction, profile),
    )


class _Board:
    """Writes figures for TensorBoard; makes its folder when there are some."""

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
    """Times the steps of a training loop, as wait against compute.

        timer = tfpipe.StepTimer(256, log_dir="logs", report=print)
        for batch in timer.batches(dataset):
            loss = train_step(batch)

    A step lasts from one request for a batch to the next. On a device that computes
    while Python goes on (a GPU), let the loop wait for each step's result, as with
    `float(loss)`: otherwise the next batch is asked for while the device is busy, and
    what is called wait is partly work.

    The first step of all is in no window: it traces functions and fills buffers. Each
    later time that the dataset is opened counts, as wait for its first batch.

    TensorBoard gets, in the folder rank-0 of log_dir (rank-1 and so on beside it), the
    scalars of `StepFigures.scalars` and the texts input/bottleneck and
    input/parallelism.

    Attributes:
        figures: Of the last window that ended; None before.

    Args:
        batch_size: Examples in a batch of this rank.
        every: Steps in a window. The end of the dataset ends a window, too.
        log_dir: Folder for TensorBoard; None writes nothing.
        rank: Of this process.
        all_ranks: Whether ranks other than 0 write to log_dir as well.
        first_step: Steps that were done before, if training goes on.
        profile: Anything with `bottleneck.sentence`, which says what in the input
            binds: added to the bottleneck's name while that is the input.
        parallelism: `tfpipe.chosen_parallelism` or the like: called with the dataset's
            iterator at the end of each window that is written. What it gives, or the
            NotImplementedError or ValueError by which it says that it cannot tell, is
            the text input/parallelism.
        report: Called with the figures of each window, on every rank.

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
        profile: _Profile | None = None,
        parallelism: Callable[[Any], object] | None = None,
        report: Callable[[StepFigures], object] | None = None,
    ) -> None:
        errors.require_int(self, "batch_size", batch_size, least=1)
        errors.require_int(self, "every", every, least=1)
        errors.require_int(self, "rank", rank, least=0)
        errors.require_int(self, "first_step", first_step, least=0)
        errors.require_callable(self, "parallelism", parallelism, or_none=True)
        errors.require_callable(self, "report", report, or_none=True)
        self.figures: StepFigures | None = None
        self._batch_size = batch_size
        self._every = every
        self._board = None
        if log_dir is not None and (rank == 0 or all_ranks):
            _require_tensorboard()
            self._board = _Board(os.path.join(log_dir, f"rank-{rank}"))
        self._profile = profile
        self._parallelism = parallelism
        self._report = report
        self._iterator: Any = None
        self._window: list[StepTime] = []
        self._step = self._first_step = first_step
        self._first_batch_seconds: float | None = None
        self._asked_at = self._given_at = 0.0
        self._in_step = False

    def batches(self, dataset: Iterable[T]) -> Iterator[T]:
        """The batches of a dataset, each asked for when the loop comes for it.

        May be called again, once an epoch for instance. A step that is left by `break`
        is not counted, unless `end_step` was called.
        """
        self.begin()
        self._asked_at = time.perf_counter()
        self._iterator = iter(dataset)
        try:
            for batch in self._iterator:
                self._given_at = time.perf_counter()
                self._in_step = True
                yield batch
                if self._in_step:
                    self.end_step()
                self._asked_at = time.perf_counter()
        finally:
            self._in_step = False
            self.flush()
            self._iterator = None

    def end_step(self) -> StepTime:
        """Ends a step before the next request; what follows until then is not counted.

        For what is no part of a step: saving a checkpoint, evaluating.

        Raises:
            RuntimeError: If no step is under way.
        """
        if not self._in_step:
            raise RuntimeError(
                "end_step must be called within the loop over batches(dataset), once a "
                "step; no step is under way."
            )
        self._in_step = False
        compute_seconds = time.perf_counter() - self._given_at
        step_time = StepTime(self._given_at - self._asked_at, compute_seconds)
        self.add(*step_time)
        return step_time

    def begin(self) -> None:
        """Says that the input is opened now, for a loop that calls `add` itself."""
        self._first_batch_seconds = None

    def add(
        self, wait_seconds: float, compute_seconds: float, *, num_steps: int = 1
    ) -> None:
        """Counts steps that were timed elsewhere: their wait and compute in all."""
        errors.require_int("", "num_steps", num_steps, least=1)
        is_first = self._step == self._first_step
        self._step += num_steps
        if self._first_batch_seconds is None:
            self._first_batch_seconds = wait_seconds
        if is_first:
            return
        each = StepTime(wait_seconds / num_steps, compute_seconds / num_steps)
        self._window += [each] * num_steps
        if len(self._window) >= self._every:
            self._end_window()

    def flush(self) -> None:
        """Ends the window, if there is a step in it, and writes out what is open."""
        if self._window:
            self._end_window()
        if self._board is not None:
            self._board.flush()

    def _end_window(self) -> None:
        figures = self.figures = summarize(
            self._window,
            step=self._step,
            batch_size=self._batch_size,
            first_batch_seconds=self._first_batch_seconds or 0.0,
            profile=self._profile,
        )
        self._window = []
        if self._board is not None:
            self._board.write(figures, _ask(self._parallelism, self._iterator))
        if self._report is not None:
            self._report(figures)


def _ask(parallelism: Callable[[Any], object] | None, iterator: Any) -> str | None:
    """What AUTOTUNE chose, as far as it is asked for and can be told."""
    if parallelism is None or iterator is None:
        return None
    try:
        return str(parallelism(iterator))
    except (NotImplementedError, ValueError) as error:
        return str(error)  # not to know is no reason to end a training run


def _require_tensorboard() -> None:
    # Otherwise tf.summary fails in the middle of training, at the first figure.
    if importlib.util.find_spec("tensorboard") is None:
        raise ImportError(
            "log_dir needs TensorBoard, which this TensorFlow came without: "
            "pip install tensorboard, or leave log_dir out."
        )
