"""The runs of a profile: prefixes in turns with one thread, then the whole as it is.

In: a pipeline and its steps. Out: what each run took, for an output of the pipeline.
"""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfpipe import host
from tfpipe.pipeline import Pipeline
from tfpipe.profiling import dataset_nodes, prefixes, timed_reader
from tfpipe.profiling.dataset_nodes import Concurrency
from tfpipe.profiling.prefixes import Step
from tfpipe.profiling.timed_reader import Spent, TimedReader
from tfpipe.reading.state import State
from tfpipe.tuning import AUTOTUNE

# A run is so many pulls, so that the warm-up may be a part of it.
_PULLS = 4
_MOST_PULLS = 128

# The next window is read ahead, so that a run has up to one more or less.
_FEWEST_WINDOWS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """How much to read, and what passes where.

    Attributes:
        num_elements: Outputs in a run.
        num_for_reader: Outputs in a run of what reads: whole windows.
        reader: Position of the step that reads files.
        visits, num_bytes: Elements and bytes that each step gives for an output; nan
            if not known.
    """

    num_elements: int
    num_for_reader: float
    reader: int
    visits: Sequence[float]
    num_bytes: Sequence[float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Whole:
    """The pipeline as it is, with all its threads.

    Attributes:
        stages: With every knob set; None is the source.
        spent: For an output, in each repeat.
        memory_bytes: By which the process grew.
        buffered_bytes: Of each stage; None on a TensorFlow that does not tell.
        concurrency: Of each stage.
        num_cores, num_threads: That it may use.
        on_all_cores: As `spent`, of the pipeline with a call for each core.
        element_spec: Of an output.
    """

    stages: Sequence[Any]
    spent: Sequence[Spent]
    memory_bytes: int
    buffered_bytes: Sequence[int] | None
    concurrency: Sequence[Concurrency]
    num_cores: int
    num_threads: int
    on_all_cores: Sequence[Spent]
    element_spec: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What to run.

    Attributes:
        pipeline: The whole.
        steps: Of the pipeline, see `prefixes.steps`.
        prefixes: The dataset of each step, see `prefixes.prefixes`.
        seconds: About how long a run of the last prefix takes.
        repeats: Rounds.
        bar: Progress bar; a run is an update of 1.
    """

    pipeline: Pipeline
    steps: Sequence[Step]
    prefixes: Sequence[tf.data.Dataset]
    seconds: float
    repeats: int
    bar: Any

    @property
    def first(self) -> int:
        """The number of the first stage that can be told from those before it."""
        return prefixes.first_mark(self.pipeline)


def bandwidth(task: Task) -> tuple[float, float] | None:
    """Bytes per second of the reader alone, and what part the device gave.

    None if it reads nothing. Comes first, while the page cache is as it was.
    """
    task.bar.update()
    if task.first:  # whatever it reads once, it then keeps
        return None
    number = task.steps[_reader(task)].number
    dataset = task.pipeline.prefix(number).build(num_epochs=None)
    reader, read = TimedReader(dataset, 1), [Spent(0.0, 0.0)]
    end = time.perf_counter() + task.seconds / 2
    # What reads files does so at once; a little is the doing of measuring itself.
    while time.perf_counter() < end and (len(read) < 3 or read[1].bytes_read > 64):
        read.append(reader.pull(_PULLS))
    total = sum(spent.bytes_read for spent in read)
    wall = sum(spent.wall for spent in read)
    device = sum(spent.device_bytes for spent in read)
    return (total / wall, min(1.0, device / total)) if total else None


def plan(task: Task, num_elements: int | None) -> Plan:
    """Counts what passes where, and how much to read; fills caches."""
    sums = [tf.Variable([0, 0], dtype=tf.int64) for _ in task.steps]
    tallied = prefixes.tallied(task.pipeline, task.steps, sums)
    if num_elements is None:
        num_elements = _num_elements(task, tallied)
    task.bar.update()
    visits, num_bytes = _tally(task, tallied, sums, num_elements)
    task.bar.update()
    reader = _reader(task)
    window = _window(task, visits[reader])
    whole_windows = float(num_elements)
    if window and reader:
        num_windows = max(_FEWEST_WINDOWS, math.ceil(num_elements / window))
        whole_windows = num_windows * window
        # Too few pass in a run to be counted.
        visits[0], num_bytes[0] = 1 / window, num_bytes[0] / window
    else:
        num_bytes[0] *= visits[0]
    return Plan(
        num_elements=num_elements,
        num_for_reader=whole_windows,
        reader=reader,
        visits=visits,
        num_bytes=num_bytes,
    )


def _num_elements(task: Task, tallied: tf.data.Dataset) -> int:
    """Outputs that take about as long as a run."""
    last = task.prefixes[-1]
    each = timed_reader.calibrate(last, task.seconds / 5)
    if last.cardinality() != tf.data.INFINITE_CARDINALITY:
        # It begins again and again, which takes longest where it is counted.
        each = max(each, timed_reader.calibrate(tallied, task.seconds / 5))
    return max(1, round(task.seconds / each))


def _tally(
    task: Task,
    tallied: tf.data.Dataset,
    sums: Sequence[tf.Variable],
    num_elements: int,
) -> tuple[list[float], list[float]]:
    """Elements and bytes that pass each step for an output; nan if not known.

    Of the source the bytes of an element.
    """
    reader = TimedReader(tallied, math.ceil(num_elements / _PULLS))
    reader.pull()
    counted = [step.number >= max(1, task.first) for step in task.steps]
    before = after = _values(sums)
    num_pulls = 0
    # Windows and chunks pass at once: few outputs may all lie within one.
    # A pipeline without stages has nothing that must be seen to pass.
    while not num_pulls or (
        num_pulls < _MOST_PULLS and not (after > before)[counted, 0].all()
    ):
        reader.pull(_PULLS)
        after, num_pulls = _values(sums), num_pulls + _PULLS
    passed = (after - before) / (num_pulls * reader.group)
    passed[0, 1] = after[0, 1] / max(after[0, 0], 1)
    if task.first:
        reader.pull(2 * _PULLS)  # fills the cache beyond what will be measured
        passed[~np.array(counted)] = math.nan
    return passed[:, 0].tolist(), passed[:, 1].tolist()


def rounds(task: Task, plan: Plan) -> list[list[Spent]]:
    """What each step and all before it take for an output, in each round.

    With one thread. A step that is not run has none.
    """
    spent: list[list[Spent]] = [[] for _ in task.steps]
    for _ in range(task.repeats):
        for position, step in enumerate(task.steps):
            if step.is_measured:
                dataset = task.prefixes[position]
                spent[position].append(_run(dataset, plan, position))
                task.bar.update()
    return spent


def whole(task: Task, plan: Plan) -> Whole:
    """The pipeline as it is; then with all cores, if it does not use them."""
    made: dict[int, tf.data.Dataset] = {}

    def note(number: int) -> Any:
        return lambda dataset: made.setdefault(number, dataset)

    before = timed_reader.resident_bytes()
    dataset = prefixes.marked(task.pipeline, note)
    cores = host.num_cores()
    group = math.ceil(plan.num_elements * cores / _PULLS)
    reader, spent = _on_and_on(task, dataset, group)
    stages = [None, *task.pipeline.tuned_stages()]
    added = _added(made, len(stages))
    concurrency = [*map(dataset_nodes.concurrency, stages, added)]
    timed_reader.rest()  # what training that is slower finds: full buffers
    memory = timed_reader.resident_bytes() - before
    held = None
    if dataset_nodes.can_tell_buffers():
        held = dataset_nodes.buffered_bytes(reader.iterator, added)
    del reader  # its threads would go on filling buffers
    threads = task.pipeline.tuning.private_threadpool_size or cores
    calls = [threads if c.calls == AUTOTUNE else c.calls for c in concurrency]
    on_all_cores = spent
    if min(threads, max(calls)) < cores:
        opened = _with_a_call_for_each(task.pipeline, cores)
        _, on_all_cores = _on_and_on(task, opened.build(num_epochs=None), group)
    task.bar.update()
    return Whole(
        stages=stages,
        spent=spent,
        memory_bytes=max(0, memory),
        buffered_bytes=held,
        concurrency=concurrency,
        num_cores=cores,
        num_threads=threads,
        on_all_cores=on_all_cores,
        element_spec=dataset.element_spec,
    )


def _added(
    made: Mapping[int, tf.data.Dataset], count: int
) -> list[list[tf.data.Dataset]]:
    """The datasets that each stage added; none of those that cannot be told apart."""
    return [
        dataset_nodes.added(made.get(number - 1), made[number])
        if number in made
        else []
        for number in range(count)
    ]


def _on_and_on(
    task: Task, dataset: tf.data.Dataset, group: int
) -> tuple[TimedReader, list[Spent]]:
    reader = TimedReader(dataset, group)
    reader.pull(_PULLS)
    spent = [reader.pull(_PULLS) for _ in range(task.repeats)]
    task.bar.update()
    return reader, spent


def _reader(task: Task) -> int:
    """The position of the step that reads files."""
    for position, step in enumerate(task.steps):
        stage = task.pipeline.stages[step.number - 1] if step.number else None
        if step.number == task.first != 0 or (
            not task.first and hasattr(stage, "num_parallel_reads")
        ):
            return position
    return 0


def _window(task: Task, records_per_output: float) -> float:
    """Outputs of an element of the source, where it says so: it is read at once."""
    source = task.pipeline.source
    if not hasattr(source, "num_records") or not records_per_output > 0:
        return 0.0
    num_records: int | None = source.num_records(State(), 1)
    num_windows = int(source(State(), 1).cardinality())
    if not num_records or num_windows < 1:
        return 0.0
    return num_records / num_windows / records_per_output


def _values(sums: Sequence[tf.Variable]) -> Any:
    return np.array([item.numpy() for item in sums], np.float64)


def _run(dataset: tf.data.Dataset, plan: Plan, position: int) -> Spent:
    """A step once, from the beginning; for an output of the pipeline."""
    visits = plan.visits[position]
    is_reading = position <= plan.reader
    outputs = plan.num_for_reader if is_reading else plan.num_elements
    reader = TimedReader(dataset, max(1, round(outputs * visits / _PULLS)))
    reader.pull()
    return reader.pull(_PULLS).times(visits)


def _with_a_call_for_each(pipeline: Pipeline, num_cores: int) -> Pipeline:
    """The pipeline with all knobs open, and as many calls as cores."""
    return Pipeline(
        pipeline.source,
        [
            s.without_tuning() if hasattr(s, "without_tuning") else s
            for s in pipeline.stages
        ],
        tuning=dataclasses.replace(
            pipeline.tuning,
            num_parallel_maps=num_cores,
            private_threadpool_size=None,
        ),
    )
