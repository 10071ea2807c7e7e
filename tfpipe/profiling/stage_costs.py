"""Computes the costs of the stages from the runs of a profile.

In: the use of the process in the runs. Out: a `StageCost` for every step, the `Host`,
the `StorageRead`, and notes about the figures. Pure arithmetic.
"""

import dataclasses
import math
import statistics
from collections.abc import Sequence

from tfpipe import host
from tfpipe.profiling import limits
from tfpipe.profiling.host_share import HostShare
from tfpipe.profiling.limits import Host, StageCost
from tfpipe.profiling.process_usage import Spent
from tfpipe.profiling.profile import Rate, StorageRead
from tfpipe.profiling.profile_runs import ProfileRuns

# Fraction of the CPU time: a shorter wait is the noise between threads.
_MIN_WAIT = 0.25

# A rate above so many times the storage bandwidth is more than noise.
_CACHED = 1.2

# Bytes for an output; with fewer bytes the process only reads /proc to measure itself.
_MIN_READ_BYTES = 1024

_BELOW_NOISE = "below the measurement noise"


def judge(
    runs: ProfileRuns, *, copy_bytes_per_second: float
) -> tuple[list[StageCost], Host]:
    """Returns the costs of the steps, each as a difference of prefixes, and the host.

    Args:
        runs: The runs of a profile.
        copy_bytes_per_second: See `Host`.
    """
    read = _Reading.measured_in(runs.rounds[runs.reader])
    rows: list[StageCost] = []
    before: Sequence[Spent] = [Spent(0.0, 0.0)] * max(map(len, runs.rounds))
    for position, mine in enumerate(runs.rounds):
        cpu, wait = 0.0, 0.0
        if mine:
            now = mine
            if position > runs.reader:
                now = [read.corrected(item) for item in mine]
            # Differences within a round: a slow spell of the host affects both.
            cpu = statistics.median(
                a.cpu - b.cpu for a, b in zip(now, before, strict=True)
            )
            wait = _median_wait(now) - _median_wait(before)
            before = now
        rows.append(_row(runs, position, cpu, wait))
    total = sum(row.cpu_seconds_per_output for row in rows)
    on_all = statistics.median(read.corrected(s).cpu for s in runs.on_all_cores)
    here = Host(
        num_cores=host.num_cores(),
        num_threads=runs.num_threads,
        slowdown=on_all / total if total else 1.0,
        copy_bytes_per_second=copy_bytes_per_second,
    )
    return [_shared(row, total, here) for row in rows], here


@dataclasses.dataclass(frozen=True)
class _Reading:
    """The cost of reading. Windows are read whole, so runs read different amounts.

    Attributes:
        bytes_per_output: Bytes read for an output.
        cpu_per_byte: CPU-seconds for a byte.
    """

    bytes_per_output: float
    cpu_per_byte: float

    @classmethod
    def measured_in(cls, spent: Sequence[Spent]) -> "_Reading":
        """Returns the cost of reading in the runs of the reader: of whole windows."""
        read = statistics.median(item.bytes_read for item in spent)
        if read < _MIN_READ_BYTES:
            return cls(0.0, 0.0)
        # Medians of both: the reading ahead of a run may lie almost all outside it.
        cpu = statistics.median(item.cpu for item in spent)
        return cls(read, cpu / read)

    def corrected(self, spent: Spent) -> Spent:
        """Returns `spent` as if the run had read the bytes of an output.

        Reading took at most all of the CPU time of the run. Without that bound, a short
        run that read far ahead on a busy host would have a negative cost.
        """
        without_reading = max(0.0, spent.cpu - spent.bytes_read * self.cpu_per_byte)
        reading = self.bytes_per_output * self.cpu_per_byte
        return dataclasses.replace(spent, cpu=without_reading + reading)


def _median_wait(spent: Sequence[Spent]) -> float:
    return statistics.median(item.wait for item in spent)


def _row(runs: ProfileRuns, position: int, cpu: float, wait: float) -> StageCost:
    step, num_bytes = runs.steps[position], runs.num_bytes
    how = runs.concurrency[step.number]
    note = step.note
    if cpu < 0:
        note = f"{cpu * 1e3:.3f} ms: {_BELOW_NOISE}"
    cpu, wait = max(0.0, cpu), max(0.0, wait)
    return StageCost(
        number=step.number,
        name=step.name,
        visit_ratio=runs.visits[position],
        cpu_seconds_per_output=cpu,
        wall_seconds_per_output=cpu + (wait if wait > _MIN_WAIT * cpu else 0.0),
        bytes_in_per_output=num_bytes[position - 1] if position else 0.0,
        bytes_out_per_output=num_bytes[position],
        buffered_bytes=_held(runs, position),
        parallelism=how.calls,
        kind=how.kind,
        share=0.0,
        max_rate=0.0,
        note=note,
    )


def _held(runs: ProfileRuns, position: int) -> int:
    """Returns the bytes in a stage, an estimate on TensorFlow 2.16."""
    at, visits = runs.steps[position].number, runs.visits[position]
    if runs.buffered_bytes is not None:
        return runs.buffered_bytes[at]
    stage, num_bytes = runs.stages[at], runs.num_bytes[position]
    size = num_bytes / visits if visits > 0 else 0.0
    if not math.isfinite(size):  # no element passes the stages before a full cache
        return 0
    if hasattr(stage, "buffer_size"):
        return int(size * max(stage.buffer_size, 2))  # AUTOTUNE begins with 2
    if hasattr(stage, "num_parallel_calls"):
        return int(size * runs.concurrency[at].calls)
    windows = num_bytes / runs.visits[0] if runs.visits[0] > 0 else 0.0
    if hasattr(stage, "num_parallel_reads") and math.isfinite(windows):
        return int(2 * windows)  # a window being read, a window passed on
    return 0


def _shared(row: StageCost, total: float, here: Host) -> StageCost:
    share = row.cpu_seconds_per_output / total if total else 0.0
    rate = limits.stage_rate(row, here)
    return dataclasses.replace(row, share=share, max_rate=rate)


def storage(
    spent: Sequence[Sequence[Spent]], bandwidth: tuple[float, float] | None
) -> StorageRead | None:
    """Returns the bytes read from files; None if there are none.

    Args:
        spent: The use of the process in the runs of the steps from the reader on, for
            an output. The first reading step counts: if the reader only tells where
            records are, a later op reads them.
        bandwidth: Bytes per second of the storage and the fraction from the device,
            see `ProfileRuns.bandwidth`.
    """
    costs = (_Reading.measured_in(runs).bytes_per_output for runs in spent if runs)
    read = next((num_bytes for num_bytes in costs if num_bytes), 0.0)
    if not read or bandwidth is None:
        return None
    return StorageRead(
        bytes_per_output=read,
        bytes_per_second=bandwidth[0],
        device_fraction=bandwidth[1],
    )


def notes(
    rows: Sequence[StageCost],
    rate: Rate,
    storage: StorageRead | None,
    share: HostShare | None,
) -> list[str]:
    """Returns remarks for a reader of the figures."""
    notes = [share.sentence] if share is not None and share.sentence else []
    if any(_BELOW_NOISE in row.note for row in rows):
        notes.append(
            "A cost below zero counts as 0: measure with more seconds or repeats."
        )
    if storage is not None and storage.state != "warm":
        times = rate.median * storage.bytes_per_output / storage.bytes_per_second
        if times > _CACHED:
            notes.append(
                f"It ran at {times:.1f} times what the storage allows: its records "
                "were in the page cache by then."
            )
    return notes
