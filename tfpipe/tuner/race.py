"""A race: the rates of several datasets, measured in turns.

In: datasets that do not end. Out: for each of them its rate in every round. In turns,
so that a slow spell of the machine meets all, and in rounds, so that two datasets are
compared by ratios of neighbors in time.
"""

import dataclasses
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tfpipe import errors
from tfpipe.cache.stage import Cache
from tfpipe.profiling import dataset_nodes, timed_reader
from tfpipe.profiling.timed_reader import Spent


@dataclasses.dataclass(frozen=True)
class Turns:
    """What one dataset did, a number for each round.

    Attributes:
        elements_per_second: Its rates.
        cpu_seconds_per_element: CPU time of the whole process meanwhile.
    """

    elements_per_second: tuple[float, ...]
    cpu_seconds_per_element: tuple[float, ...]

    def and_one(self, rate: float, cost: float) -> "Turns":
        """With a turn more."""
        return Turns(
            (*self.elements_per_second, rate), (*self.cpu_seconds_per_element, cost)
        )

    @property
    def num_rounds(self) -> int:
        """Rounds there were."""
        return len(self.elements_per_second)

    @property
    def rate(self) -> float:
        """Elements per second, the median."""
        return statistics.median(self.elements_per_second)

    @property
    def cost(self) -> float:
        """CPU-seconds per element, the median."""
        return statistics.median(self.cpu_seconds_per_element)

    def ratios(self, other: "Turns") -> list[float]:
        """How many times the rate of another one, round by round."""
        pairs = zip(self.elements_per_second, other.elements_per_second, strict=True)
        return [mine / others for mine, others in pairs]

    def ratio(self, other: "Turns") -> float:
        """The median of `ratios`: more than the ratio of two medians can tell."""
        return statistics.median(self.ratios(other))

    def beats(self, other: "Turns", gain: float) -> bool:
        """Whether it is so many times as fast: in the median, and not by chance.

        It must be faster in all of three rounds, in all but one of five, in all but two
        of seven.
        """
        ratios = sorted(self.ratios(other))
        return self.ratio(other) >= gain and ratios[(len(ratios) - 1) // 3] > 1


class Runner:
    """A dataset that is read on and on, without leaving TensorFlow between elements.

    Args:
        dataset: Without end.
        caches: That only this dataset reads, to close with it.

    Attributes:
        grows: Whether its buffers grow when they are emptied.

    Raises:
        ValueError: If the dataset is empty.
    """

    def __init__(
        self, dataset: tf.data.Dataset, *, caches: Sequence[Cache] = ()
    ) -> None:
        self.grows = dataset_nodes.has_growing_buffer(dataset)
        self._caches = caches
        self._iterator = iter(dataset)
        try:
            self.pull(1)
        except tf.errors.OutOfRangeError as error:
            raise ValueError(timed_reader.NOTHING) from error

    def close(self) -> None:
        """Ends it; it may not be read any more."""
        del self._iterator
        for cache in self._caches:
            cache.close()

    def pull(self, num_elements: int) -> None:
        """Reads that many elements and drops them."""
        _pull(self._iterator, tf.constant(num_elements))

    def pull_for(self, seconds: float) -> int:
        """Reads for about that long; returns the number of elements, 1 at least."""
        count, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds or not count:
            # A call costs 0.1 ms; some twenty of them end in time. But what was read so
            # far may have come from a buffer, and the rest come slowly.
            wanted = count / passed * seconds / 20 if count else 1
            group = max(1, int(min(wanted, count / 8)))
            self.pull(group)
            count += group
        return count


def compare(
    datasets: Mapping[str, tf.data.Dataset], *, seconds: float, num_rounds: int
) -> dict[str, Turns]:
    """The rates of datasets; see `run`. One that ends begins again.

    Raises:
        ValueError: If there is no dataset, one of them is empty, or a number is out of
            range.
    """
    if not datasets:
        raise ValueError("datasets must be at least one dataset, got none.")
    for name, dataset in datasets.items():
        errors.require_kind("", f"datasets[{name!r}]", dataset, tf.data.Dataset)
    errors.require_number("", "seconds", seconds, above=0)
    errors.require_int("", "num_rounds", num_rounds, least=1)
    busy_threads = timed_reader.busy_threads()
    runners = {
        name: Runner(timed_reader.endless(each)) for name, each in datasets.items()
    }
    return run(runners, seconds=seconds, num_rounds=num_rounds, ignored=busy_threads)


def run(
    runners: Mapping[str, Runner],
    *,
    seconds: float,
    num_rounds: int,
    goes_on: Callable[[Mapping[str, Turns]], bool] = lambda turns: True,
    ignored: Sequence[str] = (),
) -> dict[str, Turns]:
    """Lets datasets that are being read take turns.

    After a turn the process comes to rest: buffers are full again, and nothing is done
    while others have their turns. An element that was ready then counts with the time
    that it took to make it.

    Args:
        runners: The datasets.
        seconds: That a dataset is read in a turn.
        num_rounds: Turns of each, at most.
        goes_on: Whether another round is wanted, from the turns so far.
        ignored: Threads that are never idle, see `timed_reader.busy_threads`.
    """

    def take(runner: Runner, seconds: float) -> _Turn:
        return _Turn.of(runner, seconds, ignored)

    turns = dict.fromkeys(runners, Turns((), ()))
    timed_reader.rest(ignored=ignored)
    # A first one empties the buffers.
    before = {name: take(each, seconds / 2) for name, each in runners.items()}
    for number in range(num_rounds):
        if number and not goes_on(turns):
            break
        for name, runner in runners.items():
            turn = take(runner, seconds)
            filling = before[name].filling if runner.grows else turn.filling
            turns[name] = turns[name].and_one(*turn.made_in(filling))
            before[name] = turn
    return turns


@dataclasses.dataclass(frozen=True)
class _Turn:
    """A dataset was read, and then filled its buffers.

    Attributes:
        num_elements: That were read.
        reading, filling: What both took.
    """

    num_elements: int
    reading: Spent
    filling: Spent

    @classmethod
    def of(cls, runner: Runner, seconds: float, ignored: Sequence[str]) -> "_Turn":
        start, cpu = time.perf_counter(), time.process_time()
        count = runner.pull_for(seconds)
        wall = time.perf_counter() - start
        reading = Spent(cpu=time.process_time() - cpu, wall=wall)
        # Idle for the time of two elements: it may wait for one.
        gap = min(max(2 * wall / count, _LEAST_REST), _MOST_REST)
        filled = timed_reader.rest(idle_seconds=gap, ignored=ignored)
        cpu = time.process_time() - cpu - reading.cpu
        return cls(count, reading, Spent(cpu=cpu, wall=filled - start - wall))

    def made_in(self, filling: Spent) -> tuple[float, float]:
        """Elements per second and CPU-seconds per element, of making what was read.

        Args:
            filling: Of the buffers before, where they grow; otherwise after, when they
                are as full as they were, even if reading did not empty them.
        """
        wall = filling.wall + self.reading.wall
        cpu = filling.cpu + self.reading.cpu
        return self.num_elements / wall, cpu / self.num_elements


_LEAST_REST, _MOST_REST = 0.02, 1.0  # seconds


def release(
    runners: Mapping[str, Runner], before: threading.Thread | None
) -> threading.Thread:
    """Closes datasets that are being read, in a thread of its own.

    AUTOTUNE's thread may sleep for many seconds before it sees that it is done. The
    datasets of one race may wait for it, no more: they hold buffers and caches.

    Args:
        runners: The datasets.
        before: What this returned the last time, to wait for.
    """
    if before is not None:
        before.join()

    def end() -> None:
        for runner in runners.values():
            runner.close()

    thread = threading.Thread(target=end)
    thread.start()
    return thread


@tf.function(  # type: ignore[untyped-decorator]
    reduce_retracing=True, autograph=False
)
def _pull(iterator: tf.data.Iterator, num_elements: tf.Tensor) -> tf.Tensor:
    def read(number: tf.Tensor) -> tuple[tf.Tensor]:
        element = tf.nest.flatten(iterator.get_next(), expand_composites=True)
        with tf.control_dependencies(element):
            return (number + 1,)

    return tf.while_loop(lambda i: i < num_elements, read, [0], parallel_iterations=1)
