"""Prefixes: the beginnings of a pipeline, with everything in turn, to be measured.

In: a pipeline. Out: its steps (stages or ops), and for each a dataset without end of
the pipeline up to it; the same with marks between the stages.
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
from tfpipe.tuning import Tuning

Mark = Callable[[int], Stage]

# One thread, and nothing at the same time.
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
        number: Of the stage; 0 is the source.
        name: The stage or the op, shortened.
        own: What it adds to the step before it, to be counted; None is the source.
        so_far: What it and the ops before it add to the stage before theirs, to be
            measured; None is `own`.
        is_measured: Whether to run it; otherwise it costs nothing.
        note: Why it does not.
    """

    number: int
    name: str
    own: Any = None
    so_far: Any = None
    is_measured: bool = True
    note: str = ""


def steps(pipeline: Pipeline, *, per_op: bool = False) -> list[Step]:
    """The source and every stage, or every op, of a pipeline."""
    first = first_mark(pipeline)
    # What takes the place of stages takes the source too.
    found = [Step(0, short_name(pipeline.source), is_measured=not first)]
    for number, stage in enumerate(pipeline.stages, start=1):
        name = short_name(stage)
        if number < first:
            note = f"nothing once {short_name(pipeline.stages[first - 1])} is full"
            found.append(
                Step(number, name, _opened(stage), is_measured=False, note=note)
            )
        elif isinstance(stage, Prefetch):
            found.append(Step(number, name, pass_on, is_measured=False))
        elif per_op and isinstance(stage, Map) and len(stage.ops) > 1:
            found += _of_ops(number, stage)
        elif isinstance(stage, Map):
            found.append(Step(number, name, _single(stage), in_turn(stage)))
        else:
            found.append(Step(number, name, _opened(stage)))
    return found


def first_mark(pipeline: Pipeline) -> int:
    """The number of the last stage that takes the place of those before it, or 0."""
    numbers = [
        number
        for number, stage in enumerate(pipeline.stages, start=1)
        if isinstance(stage, Wrapper)
    ]
    return max(numbers, default=0)


def prefixes(pipeline: Pipeline, all_steps: Sequence[Step]) -> list[tf.data.Dataset]:
    """The dataset of each step, without end, in one thread.

    They share what they have in common, as tracing takes longer than measuring. Of a
    step that is not run it is any.
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
    """The pipeline that begins again when it ends; a Prefetch at its end stays there.

    tf.data adds a buffer of its own behind what does not end in one.
    """
    stages = [*pipeline.stages]
    at = len(stages) - int(bool(stages) and isinstance(stages[-1], Prefetch))
    stages.insert(at, timed_reader.endless)
    return dataclasses.replace(pipeline, stages=stages)


def tallied(
    pipeline: Pipeline, all_steps: Sequence[Step], sums: Sequence[tf.Variable]
) -> tf.data.Dataset:
    """The last prefix, which counts what passes each step; see `Tally`."""
    tallies = map(Tally, sums)
    parts = [
        (step, step.own, tally) for step, tally in zip(all_steps, tallies, strict=True)
    ]
    return _alone(_build(pipeline, parts))


def _build(
    pipeline: Pipeline, parts: Sequence[tuple[Step, Any, Stage]]
) -> tf.data.Dataset:
    """Steps, what each adds, and what follows it if it may be parted from the next."""
    first = first_mark(pipeline)
    stages: list[Any] = []
    for step, own, mark in parts:
        stages += [] if own is None else [own]
        stages += [mark] if step.number >= first else []
    return Pipeline(pipeline.source, stages, tuning=_ALONE).build(num_epochs=None)


def marked(pipeline: Pipeline, mark: Mark) -> tf.data.Dataset:
    """The pipeline as it is, without end, with `mark(number)` after each stage."""
    first = first_mark(pipeline)
    stages: list[Any] = [] if first else [mark(0)]
    for number, stage in enumerate(pipeline.stages, start=1):
        stages += [stage, *([mark(number)] if number >= first else [])]
    return dataclasses.replace(pipeline, stages=stages).build(num_epochs=None)


@dataclasses.dataclass(frozen=True)
class Tally:
    """Counts the elements that pass, and their bytes. Element: any.

    Args:
        sums: int64 [2] to which it adds.
    """

    sums: tf.Variable

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(as_it_is(self._count))

    def _count(self, *element: Any) -> Any:
        size = sum(
            _num_bytes(x) for x in tf.nest.flatten(element, expand_composites=True)
        )
        self.sums.assign_add(tf.stack([tf.constant(1, tf.int64), size]))
        return element if len(element) > 1 else element[0]


def short_name(thing: object) -> str:
    """A stage, an op or a source in 40 characters."""
    if isinstance(thing, Map):
        ops = [short_name(op).partition("(")[0] for op in thing.ops]
        text = f"Map({', '.join(ops)})"
        return text if len(text) <= _NAME else f"{text[: _NAME - 4]}...)"
    # A frozen dataclass prints its values, a function its address.
    name: str = getattr(thing, "__name__", None) or type(thing).__name__
    if not dataclasses.is_dataclass(thing) or isinstance(thing, type):
        return name[:_NAME]
    # Knobs that are open say nothing.
    text = re.sub(r"(, )?\b\w+=None", "", repr(thing)).replace("(, ", "(")
    return text if len(text) <= _NAME else name[:_NAME]


_NAME = 40


def pass_on(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Nothing."""
    return dataset


def in_turn(stage: Map) -> Stage:
    """The map with one call after the other, in the thread of what comes after it."""
    opened = Map(*stage.ops, faults=stage.faults)
    # Not as a Map: `Pipeline.build` would give it calls, and so a thread.
    return lambda dataset: opened(dataset)


def _opened(stage: Any) -> Any:
    return stage.without_tuning() if hasattr(stage, "without_tuning") else stage


def _single(stage: Map) -> Any:
    """The map in turn, element by element unless it may skip some."""
    may_skip = stage.faults is not None and stage.faults.max_faults > 0
    return in_turn(Map(*stage.ops, faults=stage.faults if may_skip else None))


def _of_ops(number: int, stage: Map) -> list[Step]:
    found = []
    for count, op in enumerate(stage.ops, start=1):
        # Between ops elements may differ in shape, which `faults` does not allow.
        faults = stage.faults if count == len(stage.ops) else None
        so_far = Map(*stage.ops[:count], faults=faults)
        found.append(
            Step(number, short_name(op), in_turn(Map(op)), so_far=in_turn(so_far))
        )
    return found


def _alone(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset with nothing at the same time that tf.data adds of its own."""
    options = _ALONE.options()
    options.autotune.enabled = False
    options.experimental_optimization.map_parallelization = False
    options.experimental_optimization.filter_parallelization = False
    return dataset.with_options(options)


def _num_bytes(value: tf.Tensor) -> tf.Tensor:
    if value.dtype == tf.string:
        return tf.cast(tf.reduce_sum(tf.strings.length(value)), tf.int64)
    if value.dtype in (tf.variant, tf.resource):
        return tf.zeros([], tf.int64)
    return tf.size(value, tf.int64) * value.dtype.size
