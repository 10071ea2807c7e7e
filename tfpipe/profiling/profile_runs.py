"""The runs of a profile: prefixes in turns with a thread, then the whole pipeline.

In: a pipeline and its steps. Out: the CPU time, the time and the bytes of the process
in every run, for an output of the pipeline.
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
from tfpipe.profiling import dataset_nodes, prefixes, process_usage, timed_reader
from tfpipe.profiling.dataset_nodes import Concurrency
from tfpipe.profiling.prefixes import Step
from tfpipe.profiling.process_usage import ProcessMeter, Spent
from tfpipe.profiling.timed_reader import TimedReader
from tfpipe.reading import building
from tfpipe.reading.read_ahead import ReadAhead
from tfpipe.reading.state import State
from tfpipe.tuning import AUTOTUNE, without_tuning

# Pulls of a run; a pull before the run is the warm-up.
_PULLS = 4
_MOST_PULLS = 128

# A reader reads the next window ahead, so a run may read a window more or less.
_FEWEST_WINDOWS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPlan:
    """How much a run reads, and how many elements pass the steps.

    Attributes:
        num_elements: Outputs of the pipeline in a run.
        num_for_reader: Outputs in a run of the steps up to the reader: whole windows.
        reader: Position of the step that reads files.
        visits: Elements of a step for an output, by position; nan if unknown.
        num_bytes: Bytes of a step for an output, by position; nan if unknown.
    """

    num_elements: int
    num_for_reader: float
    reader: int
    visits: Sequence[float]
    num_bytes: Sequence[float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WholeRun:
    """The figures of the whole pipeline, with its own tuning and all its threads.

    Attributes:
        stages: The stages with every knob set; None stands for the source.
        spent: The use of the process for an output, by repeat.
        memory_bytes: Growth of the process in bytes.
        buffered_bytes: Bytes in the buffers, by stage; None if TensorFlow does not
            tell.
        concurrency: How the stages run.
        num_cores: Cores that the pipeline may use.
        num_threads: Threads of the pipeline.
        on_all_cores: `spent` of the pipeline with a call for every core.
        on_one_thread: `spent` of the pipeline with a single thread in its pool; empty
            if the time is limited.
        element_spec: The element_spec of an output.
    """

    stages: Sequence[Any]
    spent: Sequence[Spent]
    memory_bytes: int
    buffered_bytes: Sequence[int] | None
    concurrency: Sequence[Concurrency]
    num_cores: int
    num_threads: int
    on_all_cores: Sequence[Spent]
    on_one_thread: Sequence[Spent]
    element_spec: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfileTask:
    """The runs to make.

    Attributes:
        pipeline: The whole pipeline.
        steps: The steps of the pipeline, see `prefixes.steps`.
        prefixes: The datasets of the steps, see `prefixes.prefixes`.
        seconds: About how long a run of the last prefix takes.
        repeats: Number of rounds.
        bar: The progress bar; a run is an update of 1.
        meter: Measures the use of the process, and ends runs that take too long.
    """

    pipeline: Pipeline
    steps: Sequence[Step]
    prefixes: Sequence[tf.data.Dataset]
    seconds: float
    repeats: int
    bar: Any
    meter: ProcessMeter = dataclasses.field(default_factory=ProcessMeter)

    @property
    def first(self) -> int:
        """Number of the first stage that can be measured by itself."""
        return prefixes.first_mark(self.pipeline)


def all_runs(
    task: ProfileTask, num_elements: int | None
) -> tuple[tuple[float, float] | None, RunPlan, list[list[Spent]], WholeRun]:
    """Makes all runs of a profile; returns the results of the functions below."""
    reading = bandwidth(task)
    planned = plan(task, num_elements)
    return reading, planned, rounds(task, planned), whole(task, planned)


def bandwidth(task: ProfileTask) -> tuple[float, float] | None:
    """Returns bytes per second of the reader alone, and the fraction from the device.

    None if the pipeline reads no files. The run comes first, before other runs change
    the page cache.
    """
    task.bar.update()
    if task.first:  # a cache reads the files once only
        return None
    begin = task.pipeline.prefix(task.steps[_reader(task)].number)
    # An op that reads records at their places would decode, too.
    begin = dataclasses.replace(begin, stages=building.interleaved(begin.stages))
    dataset = begin.build(num_epochs=None)
    reader = TimedReader(dataset, 1, meter=task.meter)
    read = [Spent(0.0, 0.0)]
    end = time.perf_counter() + task.seconds / 2
    # A reader of files reads at once; the meter itself reads a few bytes.
    while time.perf_counter() < end and (len(read) < 3 or read[1].bytes_read > 64):
        read.append(reader.pull(_PULLS))
    total = sum(spent.bytes_read for spent in read)
    wall = sum(spent.wall for spent in read)
    device = sum(spent.device_bytes for spent in read)
    return (total / wall, min(1.0, device / total)) if total else None


def plan(task: ProfileTask, num_elements: int | None) -> RunPlan:
    """Counts the elements that pass the steps and plans the runs; fills caches."""
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
        # Too few windows pass in a run to be counted.
        visits[0], num_bytes[0] = 1 / window, num_bytes[0] / window
    else:
        num_bytes[0] *= visits[0]
    return RunPlan(
        num_elements=num_elements,
        num_for_reader=whole_windows,
        reader=reader,
        visits=visits,
        num_bytes=num_bytes,
    )


def _num_elements(task: ProfileTask, tallied: tf.data.Dataset) -> int:
    """Returns the number of outputs that take about `task.seconds`."""
    last = task.prefixes[-1]
    each = timed_reader.calibrate(last, task.seconds / 5, meter=task.meter)
    if last.cardinality() != tf.data.INFINITE_CARDINALITY:
        # The dataset begins again and again, which takes longest where it is counted.
        each = max(
            each, timed_reader.calibrate(tallied, task.seconds / 5, meter=task.meter)
        )
    return max(1, round(task.seconds / each))


def _tally(
    task: ProfileTask,
    tallied: tf.data.Dataset,
    sums: Sequence[tf.Variable],
    num_elements: int,
) -> tuple[list[float], list[float]]:
    """Counts elements and bytes that pass the steps for an output; nan if unknown.

    The bytes of the source are the bytes of an element of the source.
    """
    reader = TimedReader(tallied, math.ceil(num_elements / _PULLS), meter=task.meter)
    reader.pull()
    counted = [step.number >= max(1, task.first) for step in task.steps]
    before = after = _values(sums)
    num_pulls = 0
    # The elements of a window or chunk pass at once, so few outputs may all lie within
    # a single window. In a pipeline without stages no step needs to be seen.
    while not num_pulls or (
        num_pulls < _MOST_PULLS and not (after > before)[counted, 0].all()
    ):
        reader.pull(_PULLS)
        after, num_pulls = _values(sums), num_pulls + _PULLS
    passed = (after - before) / (num_pulls * reader.group)
    passed[0, 1] = after[0, 1] / max(after[0, 0], 1)
    if task.first:
        reader.pull(2 * _PULLS)  # fills the cache beyond the measured part
        passed[~np.array(counted)] = math.nan
    return passed[:, 0].tolist(), passed[:, 1].tolist()


def rounds(task: ProfileTask, plan: RunPlan) -> list[list[Spent]]:
    """Measures every prefix with a single thread, in every round.

    A prefix is a step with all steps before it. Another round begins only if there is
    time for the round and for the whole pipeline, whose runs take no longer than a
    round.

    Returns:
        The use of the process for an output, by step and round. The list of a step
        without a run is empty.
    """
    spent: list[list[Spent]] = [[] for _ in task.steps]
    longest = 0.0
    for _ in range(task.repeats):
        if task.meter.seconds_left() < 2 * longest:
            break
        begun = task.meter.clock()
        for position, step in enumerate(task.steps):
            if step.is_measured:
                spent[position].append(_run(task, plan, position))
                task.bar.update()
        longest = max(longest, task.meter.clock() - begun)
    return spent


def whole(task: ProfileTask, plan: RunPlan) -> WholeRun:
    """Measures the pipeline as it is, then with all cores unless it uses them."""
    datasets: dict[int, tf.data.Dataset] = {}

    def note(stage: int) -> Any:
        return lambda dataset: datasets.setdefault(stage, dataset)

    before = process_usage.resident_bytes()
    dataset = prefixes.marked(task.pipeline, note)
    cores = host.num_cores()
    group = math.ceil(plan.num_elements * cores / _PULLS)
    reader, spent = _repeated(task, dataset, group)
    stages = [None, *task.pipeline.tuned_stages()]
    added = _added(datasets, len(stages))
    concurrency = [*map(dataset_nodes.concurrency, stages, added)]
    # A training step that is slower than the pipeline finds full buffers.
    task.meter.wait_until_idle()
    memory = process_usage.resident_bytes() - before
    held = None
    if dataset_nodes.can_tell_buffers():
        held = dataset_nodes.buffered_bytes(reader.iterator, added)
    del reader  # its threads would go on filling buffers
    threads = task.pipeline.tuning.private_threadpool_size or cores
    calls = [threads if c.calls == AUTOTUNE else c.calls for c in concurrency]
    on_all = _on_all_cores(task, spent, group, min(threads, max(calls)))
    on_one: Sequence[Spent] = ()
    if math.isinf(task.meter.seconds_left()):
        on_one = _on_one_thread(task, spent, group, threads)
    return WholeRun(
        stages=stages,
        spent=spent,
        memory_bytes=max(0, memory),
        buffered_bytes=held,
        concurrency=concurrency,
        num_cores=cores,
        num_threads=threads,
        on_all_cores=on_all,
        on_one_thread=on_one,
        element_spec=dataset.element_spec,
    )


def _on_all_cores(
    task: ProfileTask, spent: list[Spent], group: int, most_calls: int
) -> list[Spent]:
    """Measures the pipeline with a call for every core, unless it uses all cores.

    Args:
        task: The runs to make.
        spent: The figures of the pipeline as it is.
        group: Outputs in a pull of the pipeline as it is.
        most_calls: Calls that the pipeline as it is makes at the same time.
    """
    if most_calls >= (cores := host.num_cores()):
        task.bar.update()
        return spent
    tuning = dataclasses.replace(
        task.pipeline.tuning, num_parallel_maps=cores, private_threadpool_size=None
    )
    # No knob of a stage is set, so a map makes a call for every core.
    stages = without_tuning(task.pipeline.stages)
    wide = Pipeline(task.pipeline.source, stages, tuning=tuning)
    return _repeated(task, wide.build(num_epochs=None), group)[1]


def _on_one_thread(
    task: ProfileTask, spent: list[Spent], group: int, num_threads: int
) -> list[Spent]:
    """Measures the pipeline with a single thread in its pool, if it has more."""
    if num_threads == 1:
        return spent
    single = dataclasses.replace(task.pipeline.tuning, private_threadpool_size=1)
    alone = dataclasses.replace(task.pipeline, tuning=single).build(num_epochs=None)
    return _repeated(task, alone, max(1, group // host.num_cores()))[1]


def _added(
    datasets: Mapping[int, tf.data.Dataset], count: int
) -> list[list[tf.data.Dataset]]:
    """Returns the added datasets, by stage; none for stages without a mark."""
    return [
        dataset_nodes.added(datasets.get(n - 1), datasets[n]) if n in datasets else []
        for n in range(count)
    ]


def _repeated(
    task: ProfileTask, dataset: tf.data.Dataset, group: int
) -> tuple[TimedReader, list[Spent]]:
    """Reads on in a single reader; returns it and the use of the process by repeat."""
    reader = TimedReader(dataset, group, meter=task.meter)
    reader.pull(_PULLS)
    spent = [reader.pull(_PULLS) for _ in range(task.repeats)]
    task.bar.update()
    return reader, spent


def _reader(task: ProfileTask) -> int:
    """Returns the position of the step that reads files, or says where records are."""
    for position, step in enumerate(task.steps):
        stage = task.pipeline.stages[step.number - 1] if step.number else None
        if step.number == task.first != 0 or (
            not task.first
            and (hasattr(stage, "num_parallel_reads") or isinstance(stage, ReadAhead))
        ):
            return position
    return 0


def _window(task: ProfileTask, records_per_output: float) -> float:
    """Returns the outputs of a window; 0 for a source without windows."""
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


def _run(task: ProfileTask, plan: RunPlan, position: int) -> Spent:
    """Runs a step from the beginning; returns the use for an output of the pipeline."""
    visits = plan.visits[position]
    is_reading = position <= plan.reader
    outputs = plan.num_for_reader if is_reading else plan.num_elements
    group = max(1, round(outputs * visits / _PULLS))
    reader = TimedReader(task.prefixes[position], group, meter=task.meter)
    reader.pull()
    return reader.pull(_PULLS).times(visits)
