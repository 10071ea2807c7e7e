"""Building: makes a dataset from a source and stages.

In: a source, stages whose knobs are set, and the state at which a run begins. Out: a
`tf.data.Dataset`. A stage is any callable Dataset -> Dataset. A stage may have the
methods of a protocol below: building calls such a method before the stage, with the
facts that the stage needs.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from tfpipe.reading.state import State
from tfpipe.stages.basic import Batch, as_it_is
from tfpipe.stages.faults import Uncounted
from tfpipe.stages.iterations import counters
from tfpipe.tuning import Tuning

Source = Callable[[State, int | None], tf.data.Dataset]
Stage = Callable[[tf.data.Dataset], tf.data.Dataset]


@runtime_checkable
class Tunable(Protocol):
    """A stage with knobs that a tuning can set."""

    def with_tuning(self, tuning: Tuning) -> Stage:
        """Returns the stage with every open knob set."""


@runtime_checkable
class AtPlaces(Protocol):
    """A stage from windows to the byte offsets of records; a later op reads them."""

    def as_interleave(self) -> Stage:
        """Returns the stage that reads the same records itself."""


def interleaved(stages: Sequence[Any]) -> list[Any]:
    """Returns stages that read whole records, as a cache and workers need them."""
    return [s.as_interleave() if isinstance(s, AtPlaces) else s for s in stages]


@runtime_checkable
class Sized(Protocol):
    """A stage whose assertions need the number of records of the source."""

    def with_cardinality(self, num_records: int | None) -> Stage:
        """Returns the stage with the number of records; None is an endless source."""


@runtime_checkable
class Counted(Protocol):
    """A stage with a known number of output elements."""

    def num_out(self, num_in: int) -> int:
        """Returns the number of output elements for `num_in` input elements."""


@runtime_checkable
class OfEpochs(Protocol):
    """A stage of whole epochs, such as `Shuffle`."""

    def in_epochs(
        self, first: int, num_elements: int, num_epochs: int | None = None
    ) -> Stage:
        """Returns the stage with the number of the first epoch and the epochs' size.

        Args:
            first: Number of the first epoch.
            num_elements: Elements of an epoch.
            num_epochs: Epochs of an iteration, if every iteration of the dataset goes
                on with the next epochs; otherwise None.
        """


@runtime_checkable
class Filling(Protocol):
    """A stage that replaces a damaged element by a sound one."""

    def with_spare(self, dataset: Callable[[], tf.data.Dataset]) -> Stage:
        """Returns the stage with a dataset to find a sound element in."""

    def sound(self, dataset: tf.data.Dataset, log: Any) -> tf.data.Dataset:
        """Returns the results for the sound elements; leaves out damaged elements."""


@runtime_checkable
class Beginning(Protocol):
    """A stage that reads instead of the source, from the first state of a run on."""

    def from_state(
        self, state: State, num_epochs: int | None, *, is_continued: bool
    ) -> "Wrapper":
        """Returns the stage with the arguments of `applied` of the same names."""


@runtime_checkable
class Wrapper(Protocol):
    """A stage that replaces the stages before it, as `Cache` does."""

    def around(self, source: Source, stages: "Sequence[Stage | Wrapper]") -> Stage:
        """Returns the stage from elements of the source to elements after `stages`."""


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
            before = stages[: position - 1]
            stage = _informed(stage, source, before, here, num_epochs, is_continued)
            if isinstance(stage, Wrapper):
                dataset = stage.around(source, informed)(elements)
            else:
                dataset = stage(dataset)
        except Exception as error:
            if hasattr(error, "add_note"):  # from Python 3.11 on
                error.add_note(
                    f"In stage {position} of the pipeline, {stage!r}, "
                    f"which takes {dataset.element_spec}."
                )
            raise
        if position == last and num_skipped:
            dataset = _resumed(dataset, num_skipped, is_continued)
        informed.append(stage)
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
    for stage in stages[:last]:
        elements = stage.num_out(elements)
    return State(epoch=state.epoch, digest=state.digest), elements, last


def _informed(
    stage: Any,
    source: Any,
    before: Sequence[Any],
    state: State,
    num_epochs: int | None,
    is_continued: bool,
) -> Any:
    """Returns the stage after its methods of the protocols were called."""
    if isinstance(stage, Sized) and hasattr(source, "num_records"):
        num_records = source.num_records(state, num_epochs)
        # The iterations after a resumed one are longer.
        if not is_continued or num_records == source.num_records(State(), num_epochs):
            stage = stage.with_cardinality(num_records)
    if isinstance(stage, Beginning):
        stage = stage.from_state(state, num_epochs, is_continued=is_continued)
    if isinstance(stage, Filling):
        stage = stage.with_spare(lambda: _sound(before, source))
    if isinstance(stage, OfEpochs) and (count := _num_elements(source)) is not None:
        if are_counted(before):
            for earlier in before:
                count = earlier.num_out(count)
            epochs = [num_epochs] if is_continued else []
            return stage.in_epochs(state.epoch, count, *epochs)
        if num_epochs != 1 or is_continued:
            raise ValueError(
                f"{stage!r} must have epochs of a known size, but a stage before it "
                "does not say how many elements it gives: "
                f"{next(s for s in before if not isinstance(s, Counted))!r}. "
                "Build one epoch at a time, move that stage after this one, or shuffle "
                'in the source, as TFRecordSource(shuffle="window") does.'
            )
    return stage


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
    return all(isinstance(stage, Counted) for stage in stages)


def _num_elements(source: Any) -> int | None:
    """Returns the elements in an epoch of a source, a window counted as its records."""
    for method in ("num_records", "num_steps"):
        if hasattr(source, method):
            count: int | None = getattr(source, method)(State(), 1)
            return count
    return None


def _sound(stages: Sequence[Any], source: Any) -> tf.data.Dataset:
    """Returns the sound elements of the split after some stages, in disk order."""
    whole = source.in_order() if hasattr(source, "in_order") else source
    dataset: tf.data.Dataset = whole(State(), 1)
    for stage in stages:
        # A cache and an assertion of the number do not change elements.
        if isinstance(stage, (Wrapper, Sized)):
            continue
        if isinstance(stage, Batch):  # only the last records may be sound
            stage = dataclasses.replace(stage, drop_remainder=False)
        if isinstance(stage, Filling):
            dataset = stage.sound(dataset, Uncounted())
        else:
            dataset = stage(dataset)
    return dataset
