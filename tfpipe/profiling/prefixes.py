"""Prefixes: the beginnings of a pipeline, as datasets that run in a single thread.

In: a pipeline. Out: its steps (stages or ops), and for every step a dataset without end
of the pipeline up to the step; the whole pipeline with marks between the stages.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfpipe.pipeline import Pipeline, Stage, Wrapper
from tfpipe.profiling import timed_reader
from tfpipe.stages.basic import Prefetch, as_it_is
from tfpipe.stages.map import Map
from tfpipe.tuning import Tuning, without_tuning

Mark = Callable[[int], Stage]

# A single thread, and a single element at a time.
_ALONE = Tuning(
    num_parallel_reads=1,
    num_parallel_maps=1,
    prefetch_buffer_size=1,
    private_threadpool_size=1,
    fuse_map_and_batch=False,
)


@dataclasses.dataclass(frozen=True)
class Step:
    """A row of the profile: the source, a stage, or an op of a `Map`.

    Attributes:
        number: Number of the stage; 0 is the source.
        name: The stage or the op, shortened.
        own: The stage of the step alone, to count elements; None for the source.
        so_far: The stage of the op and the ops before it in the same `Map`, to be
            measured; None is `own`.
        is_measured: Whether to run the step; a step without a run costs nothing.
        note: Why the step is not run.
    """

    number: int
    name: str
    own: Any = None
    so_far: Any = None
    is_measured: bool = True
    note: str = ""


def steps(pipeline: Pipeline, *, per_op: bool = False) -> list[Step]:
    """Returns the source and every stage, or every op, of a pipeline as steps."""
    first = first_mark(pipeline)
    # A stage in place of the stages before it replaces the source, too.
    found = [Step(0, short_name(pipeline.source), is_measured=not first)]
    bare = without_tuning(pipeline.stages)
    for number, (stage, own) in enumerate(zip(pipeline.stages, bare, strict=True), 1):
        name = short_name(stage)
        if number < first:
            note = f"nothing once {short_name(pipeline.stages[first - 1])} is full"
            found.append(Step(number, name, own, is_measured=False, note=note))
        elif isinstance(stage, Prefetch):
            found.append(Step(number, name, pass_on, is_measured=False))
        elif per_op and isinstance(stage, Map) and len(stage.ops) > 1:
            found += _of_ops(number, stage)
        elif isinstance(stage, Map):
            found.append(Step(number, name, _single(stage), in_turn(stage)))
        else:
            found.append(Step(number, name, own))
    return found


def first_mark(pipeline: Pipeline) -> int:
    """Returns the number of the last stage that replaces the stages before it, or 0."""
    stages = enumerate(pipeline.stages, start=1)
    return max((n for n, stage in stages if isinstance(stage, Wrapper)), default=0)


def prefixes(pipeline: Pipeline, all_steps: Sequence[Step]) -> list[tf.data.Dataset]:
    """Returns the datasets of the steps, without end, in a single thread.

    The datasets share their common beginnings, because tracing takes longer than
    measuring. The dataset of a step without a run has no meaning.
    """
    made: dict[int, tf.data.Dataset] = {}

    def note(number: int) -> Stage:
        return lambda dataset: made.setdefault(number, dataset)

    groups = itertools.groupby(all_steps, key=lambda step: step.number)
    whole = [[*group][-1] for _, group in groups]
    last = _build(
        pipeline, [(step, step.so_far or step.own, note(step.number)) for step in whole]
    )
    return [
        _alone(
            step.so_far(made[step.number - 1])
            if step.so_far is not None
            else made.get(step.number, last)
        )
        for step in all_steps
    ]


def endless(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline without end: after its end it begins again.

    A Prefetch at the end stays at the end: tf.data adds a buffer of its own to a
    dataset without a prefetch at its end.
    """
    stages = [*pipeline.stages]
    at = len(stages) - int(bool(stages) and isinstance(stages[-1], Prefetch))
    stages.insert(at, timed_reader.endless)
    # Without device ops: their reminder must not stand among the measured stages.
    return dataclasses.replace(pipeline, stages=stages, device_ops=())


def tallied(
    pipeline: Pipeline, all_steps: Sequence[Step], sums: Sequence[tf.Variable]
) -> tf.data.Dataset:
    """Returns the last prefix, with a `Tally` after every step."""
    steps_and_sums = zip(all_steps, sums, strict=True)
    parts = [(step, step.own, Tally(total)) for step, total in steps_and_sums]
    return _alone(_build(pipeline, parts))


def _build(
    pipeline: Pipeline, parts: Sequence[tuple[Step, Any, Stage]]
) -> tf.data.Dataset:
    """Builds a dataset of parts: a step, its stage, and a mark to put after the stage.

    A step before a stage in its place gets no mark.
    """
    first = first_mark(pipeline)
    stages: list[Any] = []
    for step, own, mark in parts:
        stages += [] if own is None else [own]
        stages += [mark] if step.number >= first else []
    return Pipeline(pipeline.source, stages, tuning=_ALONE).build(num_epochs=None)


def marked(pipeline: Pipeline, mark: Mark) -> tf.data.Dataset:
    """Builds the pipeline without end, with `mark(number)` after every stage."""
    first = first_mark(pipeline)
    stages: list[Any] = [] if first else [mark(0)]
    for number, stage in enumerate(pipeline.stages, start=1):
        stages += [stage, *([mark(number)] if number >= first else [])]
    return dataclasses.replace(pipeline, stages=stages).build(num_epochs=None)


@dataclasses.dataclass(frozen=True)
class Tally:
    """Counts the elements that pass, and their bytes. Element: any.

    Args:
        sums: int64 [2], number of elements and bytes, to which it adds.
    """

    sums: tf.Variable

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(as_it_is(self._count))

    def _count(self, *element: Any) -> Any:
        self.sums.assign_add(tf.stack([tf.constant(1, tf.int64), num_bytes(element)]))
        return element if len(element) > 1 else element[0]


def short_name(thing: object) -> str:
    """Returns the name of a stage, an op or a source, at most 40 characters."""
    if isinstance(thing, Map):
        ops = [short_name(op).partition("(")[0] for op in thing.ops]
        text = f"Map({', '.join(ops)})"
        return text if len(text) <= _NAME else f"{text[: _NAME - 4]}...)"
    # A frozen dataclass prints its values, a function its address.
    name: str = getattr(thing, "__name__", None) or type(thing).__name__
    if not dataclasses.is_dataclass(thing) or isinstance(thing, type):
        return name[:_NAME]
    # Open knobs are left out.
    text = re.sub(r"(, )?\b\w+=None", "", repr(thing)).replace("(, ", "(")
    return text if len(text) <= _NAME else name[:_NAME]


_NAME = 40


def pass_on(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset itself."""
    return dataset


def in_turn(stage: Map) -> Stage:
    """Returns the map with a call at a time, in the thread of the next stage."""
    sequential = Map(*stage.ops, faults=stage.faults)
    # A function, because `Pipeline.build` would give a Map calls in other threads.
    return lambda dataset: sequential(dataset)


def _single(stage: Map) -> Any:
    """Returns the map with a call at a time, without `faults` unless it may skip."""
    may_skip = stage.faults is not None and stage.faults.max_faults > 0
    return in_turn(Map(*stage.ops, faults=stage.faults if may_skip else None))


def _of_ops(number: int, stage: Map) -> list[Step]:
    found = []
    for count, op in enumerate(stage.ops, start=1):
        # Between ops the elements may differ in shape; `faults` allows a single shape.
        faults = stage.faults if count == len(stage.ops) else None
        so_far = Map(*stage.ops[:count], faults=faults)
        own = in_turn(Map(op))
        found.append(Step(number, short_name(op), own, so_far=in_turn(so_far)))
    return found


def _alone(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset without any threads of tf.data's own choice."""
    options = _ALONE.options()
    options.autotune.enabled = False
    options.experimental_optimization.map_parallelization = False
    options.experimental_optimization.filter_parallelization = False
    return dataset.with_options(options)


def num_bytes(element: Any) -> tf.Tensor:
    """Returns the bytes of the tensors of an element."""

    def size(value: tf.Tensor) -> tf.Tensor:
        if value.dtype == tf.string:
            return tf.cast(tf.reduce_sum(tf.strings.length(value)), tf.int64)
        if value.dtype in (tf.variant, tf.resource):
            return tf.zeros([], tf.int64)
        return tf.size(value, tf.int64) * value.dtype.size

    return sum(map(size, tf.nest.flatten(element, expand_composites=True)))
