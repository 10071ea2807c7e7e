"""Building: from a source and stages to a dataset, and what a stage may ask for.

In: a source, stages whose knobs are set, and where a run begins. Out: a
`tf.data.Dataset`. A stage is any callable Dataset -> Dataset; one that has a method of
the protocols here is told what it asks for before it is called.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from tfpipe.reading.state import State
from tfpipe.stages.faults import Uncounted
from tfpipe.tuning import Tuning

Source = Callable[[State, int | None], tf.data.Dataset]
Stage = Callable[[tf.data.Dataset], tf.data.Dataset]


@runtime_checkable
class Tunable(Protocol):
    """A stage with knobs that a tuning can fill."""

    def with_tuning(self, tuning: Tuning) -> Stage:
        """The stage with every open knob set."""


@runtime_checkable
class Sized(Protocol):
    """A stage that wants to know how many records the source will give."""

    def with_cardinality(self, num_records: int | None) -> Stage:
        """The stage that knows; None is without end."""


@runtime_checkable
class Counted(Protocol):
    """A stage that knows how many elements it gives."""

    def num_out(self, num_in: int) -> int:
        """Elements that it gives for those of an epoch."""


@runtime_checkable
class OfEpochs(Protocol):
    """A stage that does something to an epoch as a whole."""

    def in_epochs(self, first: int, num_elements: int) -> Stage:
        """The stage that knows the first epoch's number, and the elements of each."""


@runtime_checkable
class Filling(Protocol):
    """A stage that puts a sound element in the place of a damaged one."""

    def with_spare(self, dataset: Callable[[], tf.data.Dataset]) -> Stage:
        """The stage that finds a sound one there, where it has none at hand."""

    def sound(self, dataset: tf.data.Dataset, log: Any) -> tf.data.Dataset:
        """What the stage makes of the sound elements, the others left out."""


@runtime_checkable
class Wrapper(Protocol):
    """A stage that takes the place of those before it: it calls them itself."""

    def around(self, source: Source, stages: "Sequence[Stage | Wrapper]") -> Stage:
        """The stage from what the source gives to what this one does."""


def check_batch_size(source: Any, stages: Sequence[Any]) -> None:
    """Checks that a source counts in the batches that the stages make.

    Raises:
        ValueError: If it does not: its steps, and where a run goes on, would be wrong.
    """
    sizes = [stage.batch_size for stage in stages if hasattr(stage, "batch_size")]
    size = math.prod(sizes)
    is_counting = hasattr(source, "num_records") and hasattr(source, "batch_size")
    if not sizes or not is_counting or source.batch_size == size:
        return
    name = type(source).__name__
    raise ValueError(
        f"{name}.batch_size must be that of Batch, {size}, got {source.batch_size}. "
        "The source counts the steps of an epoch with it, and where a run goes on. "
        f"Give {name} batch_size={size}."
    )


def applied(
    stages: Sequence[Stage | Wrapper],
    source: Any,
    state: State,
    num_epochs: int | None,
) -> tf.data.Dataset:
    """What the source gives from a state on, after all stages.

    Raises:
        ValueError: If a stage cannot go on there.
        Exception: What a stage raises, with a note that names the stage.
    """
    begin, num_skipped, last = _beginning(stages, source, state)
    dataset = given = source(begin, num_epochs)
    told: list[Stage | Wrapper] = []
    for number, stage in enumerate(stages, start=1):
        try:
            here = begin if number <= last else state
            stage = _told(stage, source, stages[: number - 1], here, num_epochs)
            if isinstance(stage, Wrapper):
                dataset = stage.around(source, told)(given)
            else:
                dataset = stage(dataset)
        except Exception as error:
            if hasattr(error, "add_note"):  # from Python 3.11 on
                error.add_note(
                    f"In stage {number} of the pipeline, {stage!r}, "
                    f"which takes {dataset.element_spec}."
                )
            raise
        if number == last and num_skipped:
            dataset = dataset.skip(num_skipped)
        told.append(stage)
    return dataset


def _beginning(
    stages: Sequence[Any], source: Any, state: State
) -> tuple[State, int, int]:
    """Where to read from, how many elements to leave out, and after which stage.

    After a stage that reorders a whole epoch, going on within one needs all of it.
    """
    numbers = [n for n, stage in enumerate(stages, 1) if isinstance(stage, OfEpochs)]
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
    if not counted or not _are_counted(stages[:last]):
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
    for stage in stages[:last]:
        elements = stage.num_out(elements)
    return State(epoch=state.epoch, digest=state.digest), elements, last


def _told(
    stage: Any,
    source: Any,
    before: Sequence[Any],
    state: State,
    num_epochs: int | None,
) -> Any:
    """The stage that knows what it asks for."""
    if isinstance(stage, Sized) and hasattr(source, "num_records"):
        stage = stage.with_cardinality(source.num_records(state, num_epochs))
    if isinstance(stage, Filling):
        stage = stage.with_spare(lambda: _sound(before, source))
    if isinstance(stage, OfEpochs) and (count := _num_elements(source)) is not None:
        if _are_counted(before):
            for one in before:
                count = one.num_out(count)
            return stage.in_epochs(state.epoch, count)
        if num_epochs != 1:
            raise ValueError(
                f"{stage!r} must have epochs of a known size, but a stage before it "
                "does not say how many elements it gives: "
                f"{next(one for one in before if not isinstance(one, Counted))!r}. "
                "Build one epoch at a time, move it after, or shuffle in the source, "
                'as TFRecordSource(shuffle="window") does.'
            )
    return stage


def _are_counted(stages: Sequence[Any]) -> bool:
    return all(isinstance(stage, Counted) for stage in stages)


def _num_elements(source: Any) -> int | None:
    """What a source gives for an epoch, windows counted as their records."""
    if hasattr(source, "num_records"):
        count: int | None = source.num_records(State(), 1)
    elif hasattr(source, "num_steps"):
        count = source.num_steps(State(), 1)
    else:
        count = None
    return count


def _sound(stages: Sequence[Any], source: Any) -> tf.data.Dataset:
    """The sound elements that stages make of all there is, in the order on disk."""
    whole = source.in_order() if hasattr(source, "in_order") else source
    dataset: tf.data.Dataset = whole(State(), 1)
    for stage in stages:
        # What keeps elements, or asserts their number, does not change them.
        if isinstance(stage, (Wrapper, Sized)):
            continue
        if isinstance(stage, Filling):
            dataset = stage.sound(dataset, Uncounted())
        else:
            dataset = stage(dataset)
    return dataset
