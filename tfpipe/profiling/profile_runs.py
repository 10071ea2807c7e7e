"""The runs of a profile: prefixes in turns with a thread, then the whole pipeline.

In: a pipeline. Out: the CPU time, the time and the bytes of the process in every run,
for an output of the pipeline.
"""

import dataclasses
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from tfpipe import host
from tfpipe.pipeline import Pipeline
from tfpipe.profiling import dataset_nodes, prefixes, timed_reader
from tfpipe.profiling.process_usage import ProcessMeter, Spent
from tfpipe.profiling.timed_reader import TimedReader
from tfpipe.reading import building
from tfpipe.reading.read_ahead import ReadAhead
from tfpipe.reading.state import State
from tfpipe.tuning import without_tuning

# Pulls of a run; a pull before the run is the warm-up.
_PULLS = 4
_MOST_PULLS = 128

# A reader reads the next window ahead, so a run may read a window more or less.
_FEWEST_WINDOWS = 3


class ProfileRuns:
    """Makes the runs of a profile, in the order of its methods.

    Args:
        pipeline: The whole pipeline.
        per_op: Whether every op of a `Map` is a step.
        seconds: About how long a run of the last prefix takes.
        repeats: Number of rounds.
        meter: Measures the use of the process, and ends runs that take too long.

    Attributes:
        steps: The steps of the pipeline, see `prefixes.steps`.
        bandwidth: Bytes per second of the reader alone, and the fraction from the
            device; None if the pipeline reads no files.
        num_elements: Outputs of the pipeline in a run.
        num_for_reader: Outputs in a run of the steps up to the reader: whole windows.
        reader: Position of the step that reads files.
        visits: Elements of a step for an output, by position; nan if unknown.
        num_bytes: Bytes of a step for an output, by position; nan if unknown.
        rounds: The use of the process by a prefix for an output, by step and round;
            empty for a step without a run. A prefix is a step with all steps before.
        whole: The use for an output by the pipeline as it is, by repeat.
        on_all_cores: The same with a call for every core.
        stages: The stages with every knob set; None stands for the source.
        buffered_bytes: Bytes in the buffers, by stage; None on TensorFlow 2.16, which
            does not tell.
        concurrency: How the stages run.
        num_threads: Threads of the pipeline.
        element_spec: The element_spec of an output.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        per_op: bool = False,
        seconds: float = 1.0,
        repeats: int = 1,
        meter: ProcessMeter | None = None,
    ) -> None:
        # The reminder of device ops must not stand among what is measured.
        self.pipeline = dataclasses.replace(pipeline, device_ops=())
        self.steps = prefixes.steps(pipeline, per_op=per_op)
        self.num_threads = pipeline.tuning.num_threads
        self._first = prefixes.first_mark(pipeline)
        self.reader = self._position_of_reader()
        self._seconds, self._repeats = seconds, repeats
        self._meter = meter or ProcessMeter()

    def make(self, num_elements: int | None, *, is_shown: bool) -> None:
        """Makes all runs.

        Args:
            num_elements: Outputs in a run; None is as many as take `seconds`.
            is_shown: Whether to show a progress bar on stderr.
        """
        with tqdm.tqdm(
            total=4 + self._repeats * sum(step.is_measured for step in self.steps),
            desc="profile",
            unit="run",
            file=sys.stderr,
            disable=None if is_shown else True,
            leave=False,
        ) as bar:
            # First, before other runs change the page cache.
            self.bandwidth = self._bandwidth()
            bar.update()
            self._prefixes = prefixes.prefixes(self.pipeline, self.steps)
            self.plan(num_elements)
            bar.update()
            self.rounds = self.make_rounds(bar.update)
            self._make_whole()
            bar.update()
            self.on_all_cores = self._on_all_cores()
            bar.update()

    def plan(self, num_elements: int | None) -> None:
        """Counts the elements that pass the steps and plans the runs; fills caches."""
        sums = [tf.Variable([0, 0], dtype=tf.int64) for _ in self.steps]
        tallied = prefixes.tallied(self.pipeline, self.steps, sums)
        self.num_elements = num_elements or self._num_elements(tallied)
        visits, num_bytes = self.visits, self.num_bytes = self._tally(tallied, sums)
        self.num_for_reader = float(self.num_elements)
        window = _window(self.pipeline.source, visits[self.reader])
        if window and self.reader:
            num_windows = math.ceil(self.num_elements / window)
            self.num_for_reader = max(_FEWEST_WINDOWS, num_windows) * window
            # Too few windows pass in a run to be counted.
            visits[0], num_bytes[0] = 1 / window, num_bytes[0] / window
        else:
            num_bytes[0] *= visits[0]

    def make_rounds(self, show: Callable[[], object]) -> list[list[Spent]]:
        """Measures every prefix with a single thread, in every round.

        Another round begins only if there is time for the round and for the whole
        pipeline, whose runs take no longer than a round.
        """
        spent: list[list[Spent]] = [[] for _ in self.steps]
        longest = 0.0
        for _ in range(self._repeats):
            if self._meter.seconds_left() < 2 * longest:
                break
            begun = self._meter.clock()
            for position, step in enumerate(self.steps):
                if step.is_measured:
                    spent[position].append(self._run(position))
                    show()
            longest = max(longest, self._meter.clock() - begun)
        return spent

    def _position_of_reader(self) -> int:
        """Returns the position of the step that reads files, or finds records."""
        for position, step in enumerate(self.steps):
            stage = self.pipeline.stages[step.number - 1] if step.number else None
            if step.number == self._first != 0 or (
                not self._first
                and (
                    hasattr(stage, "num_parallel_reads") or isinstance(stage, ReadAhead)
                )
            ):
                return position
        return 0

    def _bandwidth(self) -> tuple[float, float] | None:
        if self._first:  # a cache reads the files once only
            return None
        begin = self.pipeline.prefix(self.steps[self.reader].number)
        # An op that reads records at their places would decode, too.
        begin = dataclasses.replace(begin, stages=building.interleaved(begin.stages))
        reader = TimedReader(begin.build(num_epochs=None), 1, meter=self._meter)
        read = [Spent(0.0, 0.0)]
        end = self._meter.clock() + self._seconds / 2
        # A reader of files reads at once; the meter itself reads a few bytes.
        while self._meter.clock() < end and (len(read) < 3 or read[1].bytes_read > 64):
            read.append(reader.pull(_PULLS))
        total = sum(spent.bytes_read for spent in read)
        wall = sum(spent.wall for spent in read)
        device = sum(spent.device_bytes for spent in read)
        return (total / wall, min(1.0, device / total)) if total else None

    def _num_elements(self, tallied: tf.data.Dataset) -> int:
        """Returns the number of outputs that take about `seconds`."""
        last, seconds = self._prefixes[-1], self._seconds / 5
        each = timed_reader.calibrate(last, seconds, meter=self._meter)
        if last.cardinality() != tf.data.INFINITE_CARDINALITY:
            # The dataset begins again and again, which takes longest if counted.
            counted = timed_reader.calibrate(tallied, seconds, meter=self._meter)
            each = max(each, counted)
        return max(1, round(self._seconds / each))

    def _tally(
        self, tallied: tf.data.Dataset, sums: Sequence[tf.Variable]
    ) -> tuple[list[float], list[float]]:
        """Counts elements and bytes that pass the steps for an output; nan if unknown.

        The bytes of the source are the bytes of an element of the source.
        """
        group = math.ceil(self.num_elements / _PULLS)
        reader = TimedReader(tallied, group, meter=self._meter)
        reader.pull()
        counted = [step.number >= max(1, self._first) for step in self.steps]
        before = after = _values(sums)
        num_pulls = 0
        # The elements of a window or chunk pass at once, so few outputs may all lie
        # within a single window. In a pipeline without stages no step need be seen.
        while not num_pulls or (
            num_pulls < _MOST_PULLS and not (after > before)[counted, 0].all()
        ):
            reader.pull(_PULLS)
            after, num_pulls = _values(sums), num_pulls + _PULLS
        passed = (after - before) / (num_pulls * group)
        passed[0, 1] = after[0, 1] / max(after[0, 0], 1)
        if self._first:
            reader.pull(2 * _PULLS)  # fills the cache beyond the measured part
            passed[~np.array(counted)] = math.nan
        return passed[:, 0].tolist(), passed[:, 1].tolist()

    def _run(self, position: int) -> Spent:
        """Runs a step from the beginning; returns the use for an output."""
        visits, is_reading = self.visits[position], position <= self.reader
        outputs = self.num_for_reader if is_reading else self.num_elements
        group = max(1, round(outputs * visits / _PULLS))
        reader = TimedReader(self._prefixes[position], group, meter=self._meter)
        reader.pull()
        return reader.pull(_PULLS).times(visits)

    def _make_whole(self) -> None:
        """Measures the pipeline as it is."""
        datasets: dict[int, tf.data.Dataset] = {}

        def note(stage: int) -> Any:
            return lambda dataset: datasets.setdefault(stage, dataset)

        dataset = prefixes.marked(self.pipeline, note)
        self.element_spec = dataset.element_spec
        self.stages: list[Any] = [None, *self.pipeline.tuned_stages()]
        added = [
            dataset_nodes.added(datasets.get(n - 1), datasets[n])
            if n in datasets
            else []
            for n in range(len(self.stages))
        ]
        self.concurrency = [
            dataset_nodes.concurrency(stage, mine, self.num_threads)
            for stage, mine in zip(self.stages, added, strict=True)
        ]
        reader, self.whole = self._repeated(dataset)
        # A training step that is slower than the pipeline finds full buffers.
        self._meter.wait_until_idle()
        self.buffered_bytes: list[int] | None = None
        if dataset_nodes.can_tell_buffers():
            self.buffered_bytes = dataset_nodes.buffered_bytes(reader.iterator, added)
        del reader  # its threads would go on filling buffers

    def _on_all_cores(self) -> list[Spent]:
        """Measures the pipeline with a call for every core, unless it has them."""
        calls = min(self.num_threads, max(how.calls for how in self.concurrency))
        if calls >= (cores := host.num_cores()):
            return self.whole
        tuning = dataclasses.replace(
            self.pipeline.tuning, num_parallel_maps=cores, private_threadpool_size=None
        )
        # No knob of a stage is set, so a map makes a call for every core.
        stages = without_tuning(self.pipeline.stages)
        wide = Pipeline(self.pipeline.source, stages, tuning=tuning)
        return self._repeated(wide.build(num_epochs=None))[1]

    def _repeated(self, dataset: tf.data.Dataset) -> tuple[TimedReader, list[Spent]]:
        """Reads on in a single reader; returns it and the use of the process."""
        group = math.ceil(self.num_elements * host.num_cores() / _PULLS)
        reader = TimedReader(dataset, group, meter=self._meter)
        reader.pull(_PULLS)
        spent = [reader.pull(_PULLS) for _ in range(self._repeats)]
        return reader, spent


def _window(source: Any, records_per_output: float) -> float:
    """Returns the outputs of a window; 0 for a source without windows."""
    if not hasattr(source, "num_records") or not records_per_output > 0:
        return 0.0
    num_records: int | None = source.num_records(State(), 1)
    num_windows = int(source(State(), 1).cardinality())
    if not num_records or num_windows < 1:
        return 0.0
    return num_records / num_windows / records_per_output


def _values(sums: Sequence[tf.Variable]) -> Any:
    return np.array([item.numpy() for item in sums], np.float64)
