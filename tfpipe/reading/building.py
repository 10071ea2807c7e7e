"""Building: makes a dataset from a source and stages.

In: a source, stages whose knobs are set, and the state at which a run begins. Out: a
`tf.data.Dataset`. A stage is any callable Dataset -> Dataset. A stage may have more
methods:

| method | returns |
|---|---|
| `with_tuning(tuning)` | the stage with every open knob set |
| `num_out(num_in)` | the number of output elements for `num_in` elements |
| `at_start(run)` | the stage with the facts of a `RunFacts` |
| `around(run)` | the stage in place of the stages before, see `Wrapper` |
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from tfpipe.reading.read_ahead import ReadAhead
from tfpipe.reading.state import State
from tfpipe.stages.basic import AssertCardinality, Batch, as_it_is
from tfpipe.stages.faults import Uncounted
from tfpipe.stages.interleave import Interleave
from tfpipe.stages.iterations import counters
from tfpipe.stages.map import Map
from tfpipe.stages.shuffle import Shuffle

Source = Callable[[State, int | None], tf.data.Dataset]
Stage = Callable[[tf.data.Dataset], tf.data.Dataset]


@runtime_checkable
class Wrapper(Protocol):
    """A stage in place of the stages before, as `Cache`."""

    def around(self, run: "RunFacts") -> Stage:
        """Returns the stage from elements of the source to elements after the stages.

        Args:
            run: The source, and the stages before.
        """


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """The facts of a run for a stage.

    Args:
        source: Source of the pipeline.
        stages: The stages before the stage.
        state: The state at which the stage begins.
        num_epochs: Epochs from the state on; None is endless.
        is_continued: Whether every iteration of the dataset has the next `num_epochs`.
    """

    source: Any
    stages: Sequence[Any]
    state: State
    num_epochs: int | None
    is_continued: bool

    def cardinality(self) -> int | None:
        """Returns the records of an iteration, -1 without an end; None if unknown."""
        if not hasattr(self.source, "num_records"):
            return None
        count = self.source.num_records(self.state, self.num_epochs)
        # The iterations after a resumed one are longer.
        if self.is_continued and count != self.source.num_records(
            State(), self.num_epochs
        ):
            return None
        return tf.data.INFINITE_CARDINALITY if count is None else int(count)

    def epoch_size(self, stage: object) -> int | None:
        """Returns the elements of an epoch before a stage; None if unknown.

        Raises:
            ValueError: If the run has several epochs of an unknown size.
        """
        count = _num_elements(self.source)
        if count is None or are_counted(self.stages):
            return count and num_out(self.stages, count)
        if self.num_epochs == 1 and not self.is_continued:
            return None
        uncounted = next(s for s in self.stages if not are_counted([s]))
        raise ValueError(
            f"{stage!r} must have epochs of a known size, but a stage before it "
            f"does not say how many elements it gives: {uncounted!r}. "
            "Build one epoch at a time, move that stage after this one, or shuffle in "
            'the source, as TFRecordSource(shuffle="window") does.'
        )

    def sound(self) -> tf.data.Dataset:
        """Returns the sound elements of the split after the stages, in disk order."""
        source = self.source
        whole = source.in_order() if hasattr(source, "in_order") else source
        dataset: tf.data.Dataset = whole(State(), 1)
        for stage in self.stages:
            # A cache and an assertion of the number do not change elements.
            if isinstance(stage, (Wrapper, AssertCardinality)):
                continue
            if isinstance(stage, Batch):  # only the last records may be sound
                stage = dataclasses.replace(stage, drop_remainder=False)
            if isinstance(stage, (Interleave, Map)):
                dataset = stage.sound(dataset, Uncounted())
            else:
                dataset = stage(dataset)
        return dataset


def interleaved(stages: Sequence[Any]) -> list[Any]:
    """Returns stages that read whole records, as a cache and workers need them."""
    return [s.as_interleave() if isinstance(s, ReadAhead) else s for s in stages]


def check_batch_size(source: Any, stages: Sequence[Any]) -> None:
    """Checks that a source and its stages have the same batch size.

    Raises:
        ValueError: If the batch sizes differ: the number of steps, and the record at
            which a run is resumed, would be wrong.
    """
    batching = {
        n: stage for n, stage in enumerate(stages, 1) if hasattr(stage, "batch_size")
    }
    size = math.prod(stage.batch_size for stage in batching.values())
    is_counting = hasattr(source, "num_records") and hasattr(source, "batch_size")
    if not batching or not is_counting or source.batch_size == size:
        return
    name = type(source).__name__
    places = " and ".join(f"stage {n}, {stage!r}" for n, stage in batching.items())
    raise ValueError(
        f"{name}.batch_size must be that of the stages, {size} ({places}), got "
        f"{source.batch_size}. The source counts the steps of an epoch with it, and "
        f"finds the record at which a run is resumed. Give {name} batch_size={size}."
    )


def applied(
    stages: Sequence[Stage | Wrapper],
    source: Any,
    state: State,
    num_epochs: int | None,
    *,
    is_continued: bool = False,
) -> tf.data.Dataset:
    """Returns the elements of the source from a state on, after all stages.

    If `is_continued`, every iteration of the dataset has the next `num_epochs`. The
    source must then have a method `continued`.

    Raises:
        ValueError: If a stage cannot resume at the state.
        Exception: Any error of a stage, with a note of the stage.
    """
    begin, num_skipped, last = _beginning(stages, source, state)
    read = source.continued if is_continued else source
    dataset = elements = read(begin, num_epochs)
    informed: list[Stage | Wrapper] = []
    for position, stage in enumerate(stages, start=1):
        try:
            here = begin if position <= last else state
            run = RunFacts(source, informed, here, num_epochs, is_continued)
            if hasattr(stage, "at_start"):
                stage = stage.at_start(run)
            if isinstance(stage, Wrapper):
                dataset = stage.around(run)(elements)
            else:
                dataset = stage(dataset)
        except Exception as error:
            error.add_note(
                f"In stage {position} of the pipeline, {stage!r}, "
                f"which takes {dataset.element_spec}."
            )
            raise
        if position == last and num_skipped:
            dataset = _resumed(dataset, num_skipped, is_continued)
        informed = [*informed, stage]
    return dataset


def _beginning(
    stages: Sequence[Any], source: Any, state: State
) -> tuple[State, int, int]:
    """Returns the state to read from, and the elements to leave out after a stage.

    A stage that reorders a whole epoch must get the whole epoch, also when a run is
    resumed in the middle of the epoch.

    Returns:
        state: The state for the source.
        num_skipped: Number of elements to leave out.
        last: Number of the stage after which elements are left out; 0 without such a
            stage.
    """
    numbers = [n for n, stage in enumerate(stages, 1) if isinstance(stage, Shuffle)]
    if not numbers or not (state.step or state.phases):
        return state, 0, 0
    ranks = getattr(source, "num_ranks", None), getattr(source, "batch_size", None)
    same = all(
        of_state in (None, of_source)
        for of_state, of_source in zip(
            (state.num_ranks, state.batch_size), ranks, strict=True
        )
    )
    last = numbers[-1]
    counted = same and not state.phases and _num_elements(source) is not None
    if not counted or not are_counted(stages[:last]):
        raise ValueError(
            f"A run cannot go on within an epoch after {stages[last - 1]!r}: it needs "
            "a source that counts records, the number of ranks and the batch size "
            "that the epoch was begun with, and no stage before it that gives another "
            "number of elements in each epoch. Begin with a whole epoch, or shuffle in "
            'the source, as TFRecordSource(shuffle="window") does.'
        )
    elements = state.step
    if hasattr(source, "num_records"):
        elements *= getattr(source, "batch_size", 1)
    elements = num_out(stages[:last], elements)
    return State(epoch=state.epoch, digest=state.digest), elements, last


def _resumed(
    dataset: tf.data.Dataset, num_skipped: int, is_continued: bool
) -> tf.data.Dataset:
    """Returns the dataset without its first elements, in its first iteration only."""
    if not is_continued:
        return dataset.skip(num_skipped)
    longer_than_any = 1 << 40
    numbered = tf.data.Dataset.zip(
        (counters(longer_than_any, longer_than_any), dataset)
    )
    later = numbered.filter(as_it_is(lambda counter, _: counter >= num_skipped))
    return later.map(as_it_is(lambda _, element: element))


def are_counted(stages: Sequence[Any]) -> bool:
    """Checks whether every stage knows the number of its output elements."""
    return all(hasattr(stage, "num_out") for stage in stages)


def num_out(stages: Sequence[Any], num_in: int) -> int:
    """Returns the elements after stages that are counted, for `num_in` elements."""
    for stage in stages:
        num_in = stage.num_out(num_in)
    return num_in


def _num_elements(source: Any) -> int | None:
    """Returns the elements in an epoch of a source, a window counted as its records."""
    for method in ("num_records", "num_steps"):
        if hasattr(source, method):
            count: int | None = getattr(source, method)(State(), 1)
            return count
    return None
