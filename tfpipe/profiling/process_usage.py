"""Measures how much of the host the process uses, and waits until the process is idle.

In: the clocks, and `/proc/self` of the kernel. Out: seconds, CPU-seconds and bytes; the
threads that are always busy. A figure that the kernel does not publish is 0.
"""

import dataclasses
import math
import os
import pathlib
import threading
import time
from collections.abc import Callable, Sequence

import psutil

# Part of the cores: others always take a little, and the kernel counts in 10 ms.
QUIET_SHARE = 0.1

_PROC = pathlib.Path("/proc/self")

_LOOK_SECONDS = 0.2
_BUSY_CORES = 0.01  # a busy thread uses more of a core

_IDLE_CORES = 0.1  # an idle process uses less of a core
# Bytes: reading /proc/self/io is itself a read of some hundred.
_IDLE_BYTES = 4096
_GLANCE_SECONDS = 0.01
_MAX_WAIT_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Spent:
    """The time and the bytes of a process, in all or for an element.

    Attributes:
        cpu: CPU-seconds of all threads.
        wall: Seconds by the clock.
        delay: Seconds that threads were ready to run but had no core; 0 if the kernel
            does not tell.
        bytes_read: Bytes read from files, out of the page cache or from the device.
        device_bytes: Bytes read from the device.
        others: Seconds in which other processes and machines had the last core, too; 0
            if the part of the time is small.
    """

    cpu: float
    wall: float
    delay: float = 0.0
    bytes_read: float = 0.0
    device_bytes: float = 0.0
    others: float = 0.0

    def times(self, factor: float) -> "Spent":
        """Returns every figure multiplied by `factor`."""
        return Spent(*(factor * value for value in dataclasses.astuple(self)))

    @property
    def wait(self) -> float:
        """Seconds certainly without work, if a single thread worked at a time.

        Seconds in which others had the cores may have been without work or not.
        """
        return max(0.0, self.wall - self.cpu - max(0.0, self.delay, self.others))


class ProcessMeter:
    """Reads the figures of the process so far. Tests replace the methods.

    Args:
        end: The `clock` after which `check_time` raises.
    """

    def __init__(self, end: float = math.inf) -> None:
        self._end = end

    def check_time(self) -> None:
        """Raises if the time is over.

        Raises:
            TimeoutError: If the time is over.
        """
        if self.seconds_left() < 0:
            raise TimeoutError(
                "The measurement did not end within its time_limit. Give it more time, "
                "or measure while the host is quiet."
            )

    def seconds_left(self) -> float:
        """Returns the seconds until `check_time` raises."""
        return self._end - self.clock()

    def clock(self) -> float:
        """Returns the seconds of `time.perf_counter`."""
        return time.perf_counter()

    def cpu(self) -> float:
        """Returns the CPU-seconds of all threads."""
        return time.process_time()

    def thread_cpu(self, thread: str) -> float:
        """Returns the CPU-seconds of a thread; 0 if it has ended."""
        return _scheduled(thread)[0] / 1e9

    def delay(self) -> float:
        """Returns the seconds that threads were ready to run but had no core."""
        return sum(_scheduled(thread)[1] for thread in self.threads()) / 1e9

    def num_cores(self) -> int:
        """Returns the number of cores that the process may use."""
        return len(os.sched_getaffinity(0))

    def busy(self) -> tuple[float, float]:
        """Returns the busy and the stolen seconds of its cores, since the boot."""
        allowed = os.sched_getaffinity(0)
        times = psutil.cpu_times(percpu=True)
        # A list without the numbers of the cores is taken as a whole.
        mine = [each for core, each in enumerate(times) if core in allowed] or times
        busy = sum(each.user + each.nice + each.system for each in mine)
        return busy, sum(getattr(each, "steal", 0.0) for each in mine)

    def others_seconds(self) -> float:
        """Returns a clock that runs while others take the last core of the process.

        The difference of two readings is the core-seconds of others beyond all cores
        but the last. The difference is below zero if others left more cores free. A
        single thread is held back only if others take the last core.
        """
        return sum(self.busy()) - self.cpu() - (self.num_cores() - 1) * self.clock()

    def bytes_read(self) -> tuple[int, int]:
        """Returns the bytes read from files, and from a device."""
        try:
            lines = (_PROC / "io").read_text().splitlines()
        except OSError:
            return 0, 0
        fields = dict(line.split(": ") for line in lines)
        return int(fields["rchar"]), int(fields["read_bytes"])

    def own_cpu(self) -> float:
        """Returns the CPU-seconds of the calling thread."""
        return time.thread_time()

    def is_runnable(self, thread: str) -> bool:
        """Checks whether a thread runs or waits for a core."""
        try:
            text = (_PROC / "task" / thread / "stat").read_text()
        except OSError:  # the thread has ended
            return False
        # The state follows the name, which is in parentheses and may hold parentheses.
        return text.rpartition(")")[2].split()[0] == "R"

    def threads(self) -> list[str]:
        """Returns the ids of all threads."""
        return os.listdir(_PROC / "task")

    def sleep(self, seconds: float) -> None:
        """Lets the time pass."""
        time.sleep(seconds)

    def spent_by(self, work: Callable[[], object]) -> Spent:
        """Calls `work` and returns the time and the bytes of the process meanwhile."""
        # The clocks are read last before the work and first after it: reading /proc
        # takes up to a millisecond.
        delay, before, others = self.delay(), self.bytes_read(), self.others_seconds()
        wall, cpu = self.clock(), self.cpu()
        work()
        cpu, wall = self.cpu() - cpu, self.clock() - wall
        others = self.others_seconds() - others
        if others < QUIET_SHARE * wall:
            others = 0.0
        read, device = (b - a for a, b in zip(before, self.bytes_read(), strict=True))
        return Spent(cpu, wall, self.delay() - delay, read, device, others)

    def busy_threads(self) -> list[str]:
        """Returns the ids of the threads that are busy now.

        A call before any dataset is read finds the threads that are always busy, such
        as the polling thread of Horovod. `wait_until_idle` ignores these threads.
        """
        before = {thread: self.thread_cpu(thread) for thread in self.threads()}
        own = str(threading.get_native_id())
        self.sleep(_LOOK_SECONDS)
        return [
            thread
            for thread, cpu in before.items()
            if thread != own
            and self.thread_cpu(thread) - cpu > _BUSY_CORES * _LOOK_SECONDS
        ]

    def wait_until_idle(
        self,
        *,
        idle_seconds: float = 0.02,
        ignored: Sequence[str] = (),
        most_seconds: float = math.inf,
    ) -> float:
        """Waits until the process is idle, as when datasets have filled their buffers.

        In an idle process no thread but the calling one is ready to run, uses more CPU
        time than a little, or reads files. CPU time alone would not tell: on a busy
        host, threads with work to do may get no core for a while.

        Args:
            idle_seconds: How long the process must be idle. A dataset that waits for
                storage must not be taken for a dataset with full buffers.
            ignored: Ids of threads that are never idle, see `busy_threads`.
            most_seconds: Seconds after which the wait ends anyway, at most 10.

        Returns:
            The `clock` since when the process is idle.
        """

        not_counted = {*ignored, str(threading.get_native_id())}

        def used() -> float:
            by_ignored = sum(map(self.thread_cpu, ignored))
            return self.cpu() - self.own_cpu() - by_ignored

        start = now = since = self.clock()
        cpu, read = used(), self.bytes_read()[0]
        most = min(most_seconds, _MAX_WAIT_SECONDS)
        while now - since < idle_seconds and now - start < most:
            self.sleep(_GLANCE_SECONDS)
            before, cpu_before = now, cpu
            now, cpu = self.clock(), used()
            is_busy = (
                cpu - cpu_before > _IDLE_CORES * (now - before)
                or self.bytes_read()[0] - read >= _IDLE_BYTES
                or any(map(self.is_runnable, {*self.threads()} - not_counted))
            )
            # Reading the states of all threads is not work of the process.
            read = self.bytes_read()[0]
            if is_busy:
                since = now
        return since


def _scheduled(thread: str) -> tuple[int, int]:
    """Returns the nanoseconds of a thread on a core, and of its waits for a core."""
    try:
        text = (_PROC / "task" / thread / "schedstat").read_text()
    except OSError:  # the thread has ended, or the kernel has no such file
        return 0, 0
    ran, waited, _ = text.split()
    return int(ran), int(waited)
