"""Cold, warm or mixed: the state of the page cache as a run has met it.

In: for each epoch the bytes that the timed steps consumed, and those that storage gave
meanwhile. Out: a label for each epoch and for all, a verdict on the state that the run
claims, and the size of data that no page cache can hold.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from benchmarks.reporting.gates import Verdict
from benchmarks.system import epoch_reads
from benchmarks.system.epoch_reads import EpochReads
from benchmarks.system.residency import COLD_LIMIT, HostStatus

COLD_MIN = 0.95  # smallest part of the consumed bytes from storage, if cold
WARM_MAX = 0.05  # largest part of the consumed bytes from storage, if warm

# https://github.com/mlcommons/storage: rules for the size of a data set.
_MEMORY_FACTOR = 5
_NEEDED_STEPS = 500
_MAX_EPOCHS_IN_TEXT = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochCache:
    """The timed part of one epoch, over all ranks.

    Attributes:
        epoch: Number of the epoch.
        consumed_bytes: Size of the records that its timed steps used.
        storage_bytes: Bytes of the files that storage gave meanwhile; None if unknown.
            They exceed consumed_bytes where records were read that no step used.
        resident_fractions: For each host, the part of the files in memory at its begin,
            0 to 1; None if unknown.
        server_bytes: Bytes that a shard cache fetched meanwhile; None without one. The
            state is then that of the shard cache.
    """

    epoch: int
    consumed_bytes: float
    storage_bytes: int | None
    resident_fractions: Sequence[float | None]
    server_bytes: int | None = None

    @property
    def giver(self) -> str:
        """Name of the place that gives the bytes of a cold epoch, for sentences."""
        return "storage" if self.server_bytes is None else "the server"

    @property
    def storage_fraction(self) -> float | None:
        """The bytes that the giver gave over consumed_bytes; None if unknown."""
        given = self.storage_bytes if self.server_bytes is None else self.server_bytes
        if given is None or not self.consumed_bytes:
            return None
        return given / self.consumed_bytes

    @property
    def label(self) -> str:
        """One of "cold", "warm", "mixed" and "unknown".

        If the bytes from storage are unknown, files of which nothing was in memory at
        the begin on any host are cold, as an epoch reads each record once; and files
        that were in memory everywhere are warm.
        """
        share = self.storage_fraction
        if share is not None:
            if share >= COLD_MIN:
                return "cold"
            return "warm" if share <= WARM_MAX else "mixed"
        known = [one for one in self.resident_fractions if one is not None]
        if not known or len(known) < len(self.resident_fractions):
            return "unknown"
        if max(known) <= COLD_LIMIT:
            return "cold"
        return "warm" if min(known) >= 1 - WARM_MAX else "unknown"

    def as_json(self) -> dict[str, Any]:
        """Returns the fields, the fraction and the label as a dict for JSON."""
        return {
            "epoch": self.epoch,
            "consumed_bytes": self.consumed_bytes,
            "storage_bytes": self.storage_bytes,
            "server_bytes": self.server_bytes,
            "storage_fraction": self.storage_fraction,
            "label": self.label,
        }

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch}: {self.label}, {_percent(self.storage_fraction)} of "
            f"{self.consumed_bytes / 1e6:.1f} MB"
        )


def join(
    reads: Sequence[Sequence[EpochReads]], before: Sequence[HostStatus]
) -> list[EpochCache]:
    """Joins the reads of all ranks in each timed epoch.

    Args:
        reads: For each rank, its reads in each epoch.
        before: The hosts before the run; empty if it reads no files.
    """
    counts = all(host.counts_reads is True for host in before)
    num_bytes = max([1, *(host.num_bytes for host in before)])
    joined = []
    for ranks in zip(*reads, strict=True):
        hosts = [
            [rank for rank in ranks if rank.host == host]
            for host in dict.fromkeys(rank.host for rank in ranks)
        ]
        given = [epoch_reads.storage_bytes(one, counts_reads=counts) for one in hosts]
        fetched = [epoch_reads.server_bytes(one) for one in hosts]
        at_begin = [epoch_reads.resident_at_begin(one) for one in hosts]
        joined.append(
            EpochCache(
                epoch=ranks[0].epoch,
                consumed_bytes=sum(rank.consumed_bytes for rank in ranks),
                storage_bytes=_sum(given),
                server_bytes=_sum(fetched),
                resident_fractions=[
                    None if one is None else one / num_bytes for one in at_begin
                ],
            )
        )
    return joined


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def label(epochs: Sequence[EpochCache]) -> str:
    """Returns the label that all epochs have; "mixed" if they differ.

    "unknown" if one of them is unknown.
    """
    labels = {epoch.label for epoch in epochs}
    if "unknown" in labels or not labels:
        return "unknown"
    return labels.pop() if len(labels) == 1 else "mixed"


def verdict(
    state: str, before: Sequence[HostStatus], epochs: Sequence[EpochCache]
) -> Verdict:
    """Checks whether each epoch was in the state that a run claims.

    Args:
        state: One of `residency.STATES`; any label fits "as_is".
        before: The hosts before the run.
        epochs: The timed part of each epoch.

    Returns:
        The verdict. Its text has the figures; if it is not passed, those of the first
        epoch that is in another state.
    """
    wrong = [epoch for epoch in epochs if state not in ("as_is", epoch.label)]
    if not wrong:
        return Verdict(True, _text(before, epochs))
    remark = next((host.remark for host in before if host.remark), "")
    first = wrong[0]
    text = (
        f"epoch {first.epoch} was {first.label}: {first.giver} gave "
        f"{_percent(first.storage_fraction)} of the {first.consumed_bytes / 1e6:.1f} "
        "MB that its timed steps consumed."
    )
    return Verdict(False, f"{text} {remark}".strip())


def _text(before: Sequence[HostStatus], epochs: Sequence[EpochCache]) -> str:
    consumed = sum(epoch.consumed_bytes for epoch in epochs)
    parts = [epoch.storage_fraction for epoch in epochs]
    given = [
        part * epoch.consumed_bytes
        for part, epoch in zip(parts, epochs, strict=True)
        if part is not None
    ]
    share = sum(given) / consumed if consumed and len(given) == len(epochs) else None
    giver = epochs[0].giver if epochs else "storage"
    shares = [host.resident_fraction for host in before]
    resident = None if None in shares else max(shares, default=None)
    shown = "; ".join(map(str, epochs[:_MAX_EPOCHS_IN_TEXT]))
    if len(epochs) > _MAX_EPOCHS_IN_TEXT:
        shown += f"; and {len(epochs) - _MAX_EPOCHS_IN_TEXT} more"
    return (
        f"{label(epochs)} in the timed steps: {giver} gave {_percent(share)} of the "
        f"{consumed / 1e6:.1f} MB consumed ({shown}); {_percent(resident)} of the "
        "files were in memory before."
    )


def _percent(share: float | None) -> str:
    return "an unknown part" if share is None else f"{share:.1%}"


def size_rule(*, data_bytes: int, ram_bytes: int, num_steps: int) -> dict[str, Any]:
    """Compares a data set with the size that MLPerf Storage asks for.

    The data must be 5 times as large as the memory of all hosts, so that no page cache
    can hold it, and an epoch must have 500 steps of the global batch.

    Args:
        data_bytes: Size of the split.
        ram_bytes: Memory of all hosts together.
        num_steps: Steps of the global batch in an epoch.

    Returns:
        The section `size_rule` of the result; its text is the arithmetic.
    """
    needed = _MEMORY_FACTOR * ram_bytes
    is_large = data_bytes >= needed
    compared = "no page cache can hold it" if is_large else "the page cache may hold it"
    return {
        "data_bytes": data_bytes,
        "ram_bytes_of_hosts": ram_bytes,
        "needed_bytes": needed,
        "num_steps": num_steps,
        "needed_steps": _NEEDED_STEPS,
        "met": is_large and num_steps >= _NEEDED_STEPS,
        "text": (
            f"Data set {_size(data_bytes)}; {_MEMORY_FACTOR} x {_size(ram_bytes)} of "
            f"memory = {_size(needed)} needed: {compared}; an epoch has {num_steps} of "
            f"{_NEEDED_STEPS} steps."
        ),
    }


def _size(num_bytes: int) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.1f} {unit}"
    return f"{num_bytes / 1e6:.1f} MB"
