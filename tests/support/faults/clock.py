"""Clocks that a test moves, in place of those of the machine."""

import math

from tfpipe.profiling.process_usage import ProcessMeter


class Clock:
    """Returns seconds; goes on only when a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        """Lets the time pass."""
        self.now += seconds


class SimulatedMeter(ProcessMeter):
    """A process that does nothing unless a test says so.

    Attributes:
        now: Seconds of the clock.
        used: CPU-seconds by thread.
        num_bytes: Bytes read from files, and from the device.
        runnable: Threads that are ready to run.
    """

    def __init__(self, end: float = math.inf) -> None:
        super().__init__(end)
        self.now = 1000.0
        self.used: dict[str, float] = {}
        self.num_bytes = (0, 0)
        self.runnable: set[str] = set()

    def clock(self) -> float:
        return self.now

    def cpu(self) -> float:
        return sum(self.used.values())

    def own_cpu(self) -> float:
        return 0.0

    def thread_cpu(self, thread: str) -> float:
        return self.used.get(thread, 0.0)

    def delay(self) -> float:
        return 0.0

    def others_seconds(self) -> float:
        return 0.0

    def bytes_read(self) -> tuple[int, int]:
        return self.num_bytes

    def is_runnable(self, thread: str) -> bool:
        return thread in self.runnable

    def threads(self) -> list[str]:
        return [*self.used]

    def sleep(self, seconds: float) -> None:
        self.work(seconds)

    def work(self, seconds: float) -> None:
        """Lets the time pass; a test may override what happens meanwhile."""
        self.now += seconds


class SimulatedHost(ProcessMeter):
    """Two cores on which others do nothing unless a test says so.

    Attributes:
        now: Seconds of the clock.
        own: CPU-seconds of this process.
        others: CPU-seconds of others.
        stolen: Seconds that the hypervisor took.
    """

    def __init__(self) -> None:
        self.now, self.own, self.others, self.stolen = 1000.0, 0.0, 0.0, 0.0

    def clock(self) -> float:
        return self.now

    def num_cores(self) -> int:
        return 2

    def cpu(self) -> float:
        return self.own

    def busy(self) -> tuple[float, float]:
        return self.own + self.others, self.stolen

    def sleep(self, seconds: float) -> None:
        self.now += seconds
