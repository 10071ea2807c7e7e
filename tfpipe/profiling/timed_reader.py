"""Reads datasets without end inside tf.data, and counts what that costs the process.

In: a dataset. Out: CPU time, time by the clock and bytes read, of so many elements.
"""

import dataclasses
import os
import pathlib
import threading
import time
from collections.abc import Sequence

import tensorflow as tf

_PROC = pathlib.Path("/proc/self")


@dataclasses.dataclass(frozen=True)
class Spent:
    """What the process spent, for an element.

    Attributes:
        cpu: CPU-seconds of all threads.
        wall: Seconds by the clock.
        delay: Seconds that threads could have run but had no core, if the kernel tells.
        bytes_read: From files, page cache or device.
        device_bytes: From a device.
    """

    cpu: float
    wall: float
    delay: float = 0.0
    bytes_read: float = 0.0
    device_bytes: float = 0.0

    def times(self, factor: float) -> "Spent":
        """As often as that."""
        return Spent(*(factor * value for value in dataclasses.astuple(self)))

    @property
    def wait(self) -> float:
        """Seconds without work, if one thread was at work at a time."""
        return max(0.0, self.wall - self.cpu - max(0.0, self.delay))


NOTHING = "The dataset must have at least one element, got none."


def endless(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset without end: one that ends begins again."""
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        return dataset
    return dataset.repeat()


class TimedReader:
    """A dataset, read group by group; one that ends begins again.

    The elements of a group are dropped inside tf.data, so that Python takes no part:
    it costs 50 us an element and more.

    Args:
        dataset: What to read.
        group: Elements read at a time.
    """

    def __init__(self, dataset: tf.data.Dataset, group: int) -> None:
        # `shard` skips, and readers skip records without reading them. The assertion
        # is the cheapest transformation that passes elements on one by one.
        repeated = dataset.repeat().apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        options = tf.data.Options()
        # Otherwise a thread goes on with the next group after the clock is stopped.
        options.experimental_optimization.inject_prefetch = False
        self.group = group
        self.iterator = iter(repeated.shard(group, group - 1).with_options(options))

    def pull(self, num_groups: int = 1) -> Spent:
        """Reads so many groups; returns what that took, for each element.

        Raises:
            ValueError: If the dataset is empty.
        """
        delay, before = _delay(), _bytes_read()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(num_groups):
            self._pull()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        read, device = (b - a for a, b in zip(before, _bytes_read(), strict=True))
        spent = Spent(cpu, wall, _delay() - delay, read, device)
        return spent.times(1 / (num_groups * self.group))

    def _pull(self) -> None:
        try:
            next(self.iterator)
        except tf.errors.FailedPreconditionError as error:
            if "contained only 0 elements" not in error.message:
                raise
            raise ValueError(NOTHING) from error


def calibrate(dataset: tf.data.Dataset, seconds: float) -> float:
    """Seconds that an element takes, about, from reading that long."""
    group = 1
    while True:
        reader = TimedReader(dataset, group)
        reader.pull()
        walls: list[float] = []
        while sum(walls) * group < seconds:
            walls.append(reader.pull().wall)
        mean = sum(walls) / len(walls)
        if mean * group > _LEAST_PULL or group > 10**5:
            return mean
        group *= 32


# Seconds beside which what Python does for a pull is little.
_LEAST_PULL = 2e-3


def busy_threads() -> list[str]:
    """Threads that are busy now, where no dataset is: Horovod's looks for work always.

    Their ids, for `rest`. Empty if the kernel does not tell.
    """
    before = {name: _thread_cpu(name) for name in os.listdir(_PROC / "task")}
    own = str(threading.get_native_id())
    time.sleep(_LOOK)
    return [
        name
        for name, cpu in before.items()
        if name != own and _thread_cpu(name) - cpu > _POLLING * _LOOK
    ]


_LOOK, _POLLING = 0.2, 0.01  # seconds, of a core


def rest(*, idle_seconds: float = 0.02, ignored: Sequence[str] = ()) -> float:
    """Waits until the process is idle: unread datasets fill their buffers.

    Idle is hardly any CPU time, and hardly a byte read from a file. It waits 10 s at
    most.

    Args:
        idle_seconds: How long it must have been idle. A dataset that itself waits for
            something is not to be taken for one that is done.
        ignored: Threads that are never idle, see `busy_threads`.

    Returns:
        The `time.perf_counter()` since when.
    """

    def used() -> float:
        return time.process_time() - sum(map(_thread_cpu, ignored))

    start = now = since = time.perf_counter()
    cpu, read = used(), _bytes_read()[0]
    while now - since < idle_seconds and now - start < _LONGEST_REST:
        time.sleep(_GLANCE)
        before, cpu_before, read_before = now, cpu, read
        now = time.perf_counter()
        cpu, read = used(), _bytes_read()[0]
        is_busy = cpu - cpu_before > _IDLE * (now - before)
        if is_busy or read - read_before >= _ASKING:
            since = now
    return since


_IDLE = 0.1  # of a core
_ASKING = 4096  # bytes: to ask is to read some hundred
_GLANCE, _LONGEST_REST = 0.01, 10.0  # seconds


def resident_bytes() -> int:
    """Memory that the process has."""
    pages = int((_PROC / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _delay() -> float:
    """Seconds that threads waited for a core; 0 if the kernel does not tell."""
    return sum(_scheduled(name)[1] for name in os.listdir(_PROC / "task")) / 1e9


def _thread_cpu(name: str) -> float:
    """CPU-seconds of a thread; 0 if it has ended or the kernel does not tell."""
    return _scheduled(name)[0] / 1e9


def _scheduled(name: str) -> tuple[int, int]:
    """Nanoseconds that a thread ran, and that it waited for a core."""
    try:
        text = (_PROC / "task" / name / "schedstat").read_text()
    except OSError:  # a thread that has ended, or no such file
        return 0, 0
    ran, waited, _ = text.split()
    return int(ran), int(waited)


def _bytes_read() -> tuple[int, int]:
    """Of files, and of a device; 0 if the kernel does not tell."""
    try:
        lines = (_PROC / "io").read_text().splitlines()
    except OSError:
        return 0, 0
    fields = dict(line.split(": ") for line in lines)
    return int(fields["rchar"]), int(fields["read_bytes"])
