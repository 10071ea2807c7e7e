"""A race measures the rates of several datasets in turns.

In: datasets without end. Out: the rates of the datasets in every round. The datasets
take turns so that a slow spell of the machine affects all of them. Two datasets are
compared by the ratios of their rates in the same round.
"""

import dataclasses
import math
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tfpipe import errors
from tfpipe.cache.stage import Cache
from tfpipe.profiling import dataset_nodes, measure, prefixes, timed_reader
from tfpipe.profiling.process_usage import ProcessMeter, Spent

# Shortest and longest time of an idle process after a turn.
_MIN_IDLE_SECONDS, _MAX_IDLE_SECONDS = 0.02, 1.0


@dataclasses.dataclass(frozen=True)
class Turns:
    """The figures of a dataset, by round.

    Example:
        >>> from tfpipe.tuner.race import Turns
        >>> fast = Turns((20.0, 30.0), (0.1, 0.1))
        >>> slow = Turns((10.0, 10.0), (0.1, 0.1))
        >>> fast.ratio(slow)
        2.5

    Attributes:
        elements_per_second: The rates.
        cpu_seconds_per_element: CPU-seconds of the whole process during the turn.
    """

    elements_per_second: tuple[float, ...]
    cpu_seconds_per_element: tuple[float, ...]

    def and_one(self, rate: float, cost: float) -> "Turns":
        """Returns the turns followed by another turn."""
        return Turns(
            (*self.elements_per_second, rate), (*self.cpu_seconds_per_element, cost)
        )

    @property
    def num_rounds(self) -> int:
        """Number of rounds."""
        return len(self.elements_per_second)

    @property
    def rate(self) -> float:
        """Elements per second, the median of the rounds."""
        return statistics.median(self.elements_per_second)

    @property
    def cost(self) -> float:
        """CPU-seconds per element, the median of the rounds."""
        return statistics.median(self.cpu_seconds_per_element)

    def ratios(self, other: "Turns") -> list[float]:
        """Returns the rate divided by the rate of another dataset, by common round.

        A dataset that left a race has fewer rounds.
        """
        pairs = zip(self.elements_per_second, other.elements_per_second, strict=False)
        return [mine / others for mine, others in pairs]

    def ratio(self, other: "Turns") -> float:
        """Returns the median of `ratios`, steadier than a ratio of medians."""
        return statistics.median(self.ratios(other))

    def beats(self, other: "Turns", gain: float) -> bool:
        """Checks whether the dataset is `gain` times as fast, and not by chance.

        The median of the ratios must be `gain` or more. The dataset must also be faster
        in all of 3 rounds, in 4 of 5, in 5 of 7.
        """
        ratios = sorted(self.ratios(other))
        return self.ratio(other) >= gain and ratios[(len(ratios) - 1) // 3] > 1


class Runner:
    """Reads a dataset on and on, without leaving TensorFlow between elements.

    Args:
        dataset: A dataset without end.
        clock: Returns seconds.

    Attributes:
        grows: Whether the buffers of the dataset grow when they are emptied.
        num_examples: The batch size, if it is static; None if it is unknown.

    Raises:
        ValueError: If the dataset is empty.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.grows = dataset_nodes.has_growing_buffer(dataset)
        self._clock = clock
        self._iterator = iter(dataset)
        self.num_examples = measure.examples_in(dataset.element_spec)
        try:
            self.pull(1)
        except tf.errors.OutOfRangeError as error:
            raise ValueError(timed_reader.EMPTY) from error

    def close(self) -> None:
        """Ends the dataset; nobody can read it any more."""
        del self._iterator

    def num_bytes(self) -> int:
        """Reads an element and returns its bytes."""
        return int(prefixes.num_bytes(next(self._iterator)))

    def pull(self, num_elements: int) -> None:
        """Reads `num_elements` elements and drops them."""
        _pull(self._iterator, tf.constant(num_elements))

    def pull_for(self, seconds: float) -> int:
        """Reads for about `seconds`; returns the number of elements, at least 1."""
        count, start = 0, self._clock()
        while (passed := self._clock() - start) < seconds or not count:
            # A call costs 0.1 ms, so elements are read in about twenty groups. The
            # elements so far may have come from a buffer and the next ones may be
            # slow: a group is at most an eighth of them.
            wanted = count / passed * seconds / 20 if count else 1
            group = max(1, int(min(wanted, count / 8)))
            self.pull(group)
            count += group
        return count


def compare(
    datasets: Mapping[str, tf.data.Dataset], *, seconds: float, num_rounds: int
) -> dict[str, Turns]:
    """Measures the rates of datasets, see `run`; after its end a dataset begins again.

    Example:
        >>> from tfpipe.tuner.race import compare
        >>> datasets = {f"of {n}": tf.data.Dataset.range(n) for n in (9, 99)}
        >>> turns = compare(datasets, seconds=0.01, num_rounds=1)
        >>> turns["of 99"].num_rounds
        1

    Raises:
        ValueError: If there is no dataset, a dataset is empty, or a number is out of
            range.
    """
    if not datasets:
        raise ValueError("datasets must be at least one dataset, got none.")
    for name, dataset in datasets.items():
        errors.require_kind("", f"datasets[{name!r}]", dataset, tf.data.Dataset)
    errors.require_number("", "seconds", seconds, above=0)
    errors.require_int("", "num_rounds", num_rounds, least=1)
    busy_threads = ProcessMeter().busy_threads()
    runners = {
        name: Runner(timed_reader.endless(each)) for name, each in datasets.items()
    }
    return run(runners, seconds=seconds, num_rounds=num_rounds, ignored=busy_threads)


def run(
    runners: Mapping[str, Runner],
    *,
    seconds: float,
    num_rounds: int,
    goes_on: Callable[[Mapping[str, Turns]], Sequence[str]] = tuple,
    time_left: Callable[[], float] = lambda: math.inf,
    ignored: Sequence[str] = (),
    meter: ProcessMeter | None = None,
) -> dict[str, Turns]:
    """Reads datasets in turns and returns the turns, by name.

    After a turn the process becomes idle: the buffers are full again, and no dataset
    works during the turn of another dataset. An element from a buffer counts with the
    time of making the element.

    Args:
        runners: The datasets.
        seconds: Seconds of reading in a turn.
        num_rounds: Turns of a dataset, at most.
        goes_on: Called with the turns so far; returns the names of the datasets for
            another round.
        time_left: Returns the seconds left. The race ends with the turn in which they
            are over, so some datasets may have a round less, or none.
        ignored: Threads that are never idle, see `ProcessMeter.busy_threads`.
        meter: Measures the use of the process.
    """
    track = _Track(time_left, ignored, meter or ProcessMeter())
    turns = dict.fromkeys(runners, Turns((), ()))
    track.wait_until_idle(_MIN_IDLE_SECONDS)
    filled_before = {}
    # The turn before the first round empties the buffers.
    for name, each in runners.items():
        if time_left() <= seconds:  # an element may take as long
            return turns
        filled_before[name] = track.turn(each, seconds / 2)[2]
    for round_ in range(num_rounds):
        for name in goes_on(turns) if round_ else tuple(runners):
            if time_left() <= seconds:
                return turns
            count, reading, filled = track.turn(runners[name], seconds)
            # Buffers that do not grow become as full as before the turn.
            filling = filled_before[name] if runners[name].grows else filled
            wall, cpu = reading.wall + filling.wall, reading.cpu + filling.cpu
            turns[name] = turns[name].and_one(count / wall, cpu / count)
            filled_before[name] = filled
    return turns


@dataclasses.dataclass(frozen=True)
class _Track:
    """Where turns are run: the arguments of `run` for all turns."""

    time_left: Callable[[], float]
    ignored: Sequence[str]
    meter: ProcessMeter

    def wait_until_idle(self, idle_seconds: float) -> float:
        """Waits until the process is idle, or the time is over."""
        return self.meter.wait_until_idle(
            idle_seconds=idle_seconds,
            ignored=self.ignored,
            most_seconds=max(0.0, self.time_left()),
        )

    def turn(self, runner: Runner, seconds: float) -> tuple[int, Spent, Spent]:
        """Reads for some seconds, then waits until the buffers are full again.

        Returns:
            The number of elements, and the use of the process while they were read and
            while the buffers filled.
        """
        start, cpu = self.meter.clock(), self.meter.cpu()
        count = runner.pull_for(seconds)
        reading = Spent(self.meter.cpu() - cpu, self.meter.clock() - start)
        # The process must be idle for the time of two elements, because a thread may
        # be waiting for one.
        idle = min(max(2 * reading.wall / count, _MIN_IDLE_SECONDS), _MAX_IDLE_SECONDS)
        filled = self.wait_until_idle(idle)
        cpu = self.meter.cpu() - cpu - reading.cpu
        return count, reading, Spent(cpu, filled - start - reading.wall)


def release(runners: Sequence[Runner], caches: Sequence[Cache]) -> threading.Thread:
    """Closes datasets, then their caches, in a thread of its own; returns the thread.

    The thread of AUTOTUNE may sleep for many seconds before it ends. Datasets hold
    buffers meanwhile. A blocked element would hold up the end of the process, so
    the thread is a daemon.
    """

    def end() -> None:
        for runner in runners:
            runner.close()
        for cache in caches:
            cache.close()

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    return thread


@tf.function(  # type: ignore[untyped-decorator]
    reduce_retracing=True, autograph=False
)
def _pull(iterator: tf.data.Iterator, num_elements: tf.Tensor) -> tf.Tensor:
    def read(count: tf.Tensor) -> tuple[tf.Tensor]:
        element = tf.nest.flatten(iterator.get_next(), expand_composites=True)
        with tf.control_dependencies(element):
            return (count + 1,)

    return tf.while_loop(lambda i: i < num_elements, read, [0], parallel_iterations=1)
