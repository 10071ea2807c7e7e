"""A race: the rates of several datasets, measured in turns.

In: datasets that do not end. Out: for each of them its rate in every round. In turns,
so that a slow spell of the machine meets all, and in rounds, so that two datasets are
compared by ratios of neighbors in time.
"""

import dataclasses
import math
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tfpipe import drain
from tfpipe.cache import Cache


@dataclasses.dataclass(frozen=True)
class Turns:
    """What one dataset did, a number for each round.

    Attributes:
        elements_per_second: Its rates.
        cpu_seconds_per_element: CPU time of the whole process meanwhile.
    """

    elements_per_second: tuple[float, ...]
    cpu_seconds_per_element: tuple[float, ...]

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

        It must be faster in all rounds, or from five rounds on in all but a fifth.
        """
        ratios = sorted(self.ratios(other))
        return self.ratio(other) >= gain and ratios[len(ratios) // 5] > 1


class Runner:
    """A dataset that is read on and on, without leaving TensorFlow between elements.

    Args:
        dataset: Without end.
        caches: That only this dataset reads, to close with it.
    """

    def __init__(
        self, dataset: tf.data.Dataset, *, caches: Sequence[Cache] = ()
    ) -> None:
        self._caches = caches
        self._iterator = iter(dataset)
        self.pull(1)
        self._per_call = 1

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
            if count:
                # A call costs 0.1 ms; some twenty in a turn end it in time. The first
                # ones may only empty a buffer.
                wanted = int(count / passed * seconds / 20)
                self._per_call = max(1, min(wanted, 2 * self._per_call))
            self.pull(self._per_call)
            count += self._per_call
        return count


def compare(
    datasets: Mapping[str, tf.data.Dataset], *, seconds: float, num_rounds: int
) -> dict[str, Turns]:
    """The rates of datasets that do not end; see `run`."""
    runners = {name: Runner(dataset) for name, dataset in datasets.items()}
    return run(runners, seconds=seconds, num_rounds=num_rounds)


def run(
    runners: Mapping[str, Runner],
    *,
    seconds: float,
    num_rounds: int,
    end: float = math.inf,
) -> dict[str, Turns]:
    """Lets datasets that are being read take turns.

    Before a turn the process comes to rest: the others fill their buffers. What was
    ready in its own is not counted, however much it is.

    Args:
        runners: The datasets.
        seconds: Of a turn.
        num_rounds: Turns of each.
        end: Value of `time.monotonic()` from which on no round begins, if there were
            three already.
    """
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in runners}
    for number in range(num_rounds):
        if number >= _FEWEST_ROUNDS and time.monotonic() > end:
            break
        for name, runner in runners.items():
            drain.rest()
            measured[name].append(_turn(runner, seconds))
    return {
        name: Turns(*map(tuple, zip(*pairs, strict=True)))
        for name, pairs in measured.items()
    }


def _turn(runner: Runner, seconds: float) -> tuple[float, float]:
    """Elements per second and CPU-seconds per element, in the long run.

    Reads by half turns until one is as fast as the one before it, which then had no
    buffer to empty; these two count.
    """
    halves = [_Half.of(runner, seconds / 2)]
    while len(halves) < _MOST_HALVES:
        halves.append(_Half.of(runner, seconds / 2))
        if halves[-1].rate > _ALIKE * halves[-2].rate:
            break
    count, wall, cpu = (sum(values) for values in zip(*halves[-2:], strict=True))
    return count / wall, cpu / count


class _Half(NamedTuple):
    num_elements: int
    wall: float
    cpu: float

    @classmethod
    def of(cls, runner: Runner, seconds: float) -> "_Half":
        wall, cpu = time.perf_counter(), time.process_time()
        count = runner.pull_for(seconds)
        return cls(count, time.perf_counter() - wall, time.process_time() - cpu)

    @property
    def rate(self) -> float:
        return self.num_elements / self.wall


_MOST_HALVES, _ALIKE = 6, 0.9
_FEWEST_ROUNDS = 3


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
