"""Tells how much of the host other processes took during a measurement.

In: a `ProcessMeter`. Out: a `HostShare`: CPU-seconds of the process, of all others and
of the hypervisor, on the cores of the process; and a wait until the host is quiet.
"""

import dataclasses

from tfpipe.errors import count_of
from tfpipe.profiling.process_usage import QUIET_SHARE, ProcessMeter

_LOOK_SECONDS = 0.25


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostShare:
    """The use of the cores of the process during a measurement.

    Attributes:
        seconds: Seconds by the clock.
        num_cores: Number of cores that the process may use.
        own_cores: Number of these cores with threads of the pipeline. The ranks of a
            host share its cores: others may have the rest.
        others_cpu_seconds: CPU-seconds of all other processes there.
        stolen_seconds: Seconds in which the hypervisor gave the cores to other
            machines.
    """

    seconds: float
    num_cores: int
    own_cores: int
    others_cpu_seconds: float
    stolen_seconds: float

    @property
    def others_cores(self) -> float:
        """Number of cores that others had, on average; stolen time included."""
        taken = self.others_cpu_seconds + self.stolen_seconds
        return taken / self.seconds if self.seconds > 0 else 0.0

    @property
    def lost_cores(self) -> float:
        """Number of `own_cores` that others had, on average."""
        return max(0.0, self.others_cores - (self.num_cores - self.own_cores))

    @property
    def taken(self) -> float:
        """Fraction of `own_cores` that others had, 0 to 1."""
        return min(1.0, self.lost_cores / self.own_cores)

    @property
    def is_quiet(self) -> bool:
        """Whether others had too little for a remark about the figures."""
        return self.taken <= QUIET_SHARE

    @property
    def sentence(self) -> str:
        """The share of others in words; empty if the host was quiet."""
        if self.is_quiet:
            return ""
        stolen = ""
        if self.stolen_seconds > QUIET_SHARE * self.num_cores * self.seconds:
            cores = self.stolen_seconds / self.seconds
            stolen = f", {cores:.1f} of them through the hypervisor"
        return (
            f"The host was busy: other processes took {self.others_cores:.1f} of "
            f"{count_of(self.num_cores, 'core')}{stolen}. Rates and waits are those of "
            "a busy host; CPU-seconds are valid."
        )


class HostWatch:
    """Measures the share of others from its making on.

    Args:
        own_cores: Number of cores for threads of the pipeline; None is all.
        meter: Reads the host.
    """

    def __init__(
        self, *, own_cores: int | None = None, meter: ProcessMeter | None = None
    ) -> None:
        self._meter, self._own_cores = meter or ProcessMeter(), own_cores
        self._start = self._read()

    def share(self) -> HostShare:
        """Returns the share of others since the watch was made."""
        wall, own, busy, stolen = (
            now - then for now, then in zip(self._read(), self._start, strict=True)
        )
        return HostShare(
            seconds=wall,
            num_cores=(cores := self._meter.num_cores()),
            own_cores=max(1, min(cores, self._own_cores or cores)),
            others_cpu_seconds=max(0.0, busy - own),
            stolen_seconds=max(0.0, stolen),
        )

    def _read(self) -> tuple[float, float, float, float]:
        meter = self._meter
        return meter.clock(), meter.cpu(), *meter.busy()


def wait_until_quiet(
    most_seconds: float,
    *,
    own_cores: int | None = None,
    meter: ProcessMeter | None = None,
) -> bool:
    """Waits until others leave the cores alone; returns whether they do.

    Args:
        most_seconds: Seconds after which the wait ends anyway.
        own_cores: Number of cores for threads of the pipeline; None is all.
        meter: Reads the host.
    """
    meter = meter or ProcessMeter()
    end = meter.clock() + most_seconds
    while meter.clock() + _LOOK_SECONDS <= end:
        watch = HostWatch(own_cores=own_cores, meter=meter)
        meter.sleep(_LOOK_SECONDS)
        if watch.share().is_quiet:
            return True
    return False
