"""Reads a dataset without end inside tf.data and tells the cost of an element.

In: a dataset. Out: seconds, CPU-seconds and bytes read for an element. The elements are
dropped inside tf.data and never reach Python.
"""

import tensorflow as tf

from tfpipe.profiling.process_usage import ProcessMeter, Spent

EMPTY = "The dataset must have at least one element, got none."

# Seconds of a pull beside which the time of Python is negligible.
_MIN_PULL_SECONDS = 2e-3


def endless(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset without end: after its end it begins again."""
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        return dataset
    return dataset.repeat()


class TimedReader:
    """Reads a dataset in groups of elements; after its end the dataset begins again.

    The elements of a group are dropped inside tf.data: to pass an element to Python
    costs 50 us and more.

    Args:
        dataset: The dataset to read.
        group: Number of elements to read at a time.
        meter: Measures the use of the process.
    """

    def __init__(
        self, dataset: tf.data.Dataset, group: int, *, meter: ProcessMeter | None = None
    ) -> None:
        # `shard` skips, and readers skip records without reading them. The assertion
        # is the cheapest transformation that passes on single elements.
        repeated = dataset.repeat().apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        options = tf.data.Options()
        # Otherwise a thread goes on with the next group after the clock is stopped.
        options.experimental_optimization.inject_prefetch = False
        self.group = group
        self.iterator = iter(repeated.shard(group, group - 1).with_options(options))
        self._meter = meter or ProcessMeter()

    def pull(self, num_groups: int = 1) -> Spent:
        """Reads `num_groups` groups; returns the use of the process for an element.

        Raises:
            ValueError: If the dataset is empty.
        """

        def read() -> None:
            for _ in range(num_groups):
                self._pull()

        return self._meter.spent_by(read).times(1 / (num_groups * self.group))

    def _pull(self) -> None:
        self._meter.check_time()
        try:
            next(self.iterator)
        except tf.errors.FailedPreconditionError as error:
            if "contained only 0 elements" not in error.message:
                raise
            raise ValueError(EMPTY) from error


def calibrate(
    dataset: tf.data.Dataset, seconds: float, *, meter: ProcessMeter | None = None
) -> float:
    """Returns about how many seconds an element takes, from reading for `seconds`."""
    group = 1
    while True:
        reader = TimedReader(dataset, group, meter=meter)
        reader.pull()
        walls: list[float] = []
        while sum(walls) * group < seconds:
            walls.append(reader.pull().wall)
        mean = sum(walls) / len(walls)
        if mean * group > _MIN_PULL_SECONDS or group > 10**5:
            return mean
        group *= 32
