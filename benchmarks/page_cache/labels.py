"""Cold, warm or mixed: the state of the page cache in the timed steps of a run.

In: the bytes of each epoch: consumed by the timed steps, and given by storage. Out: a
label for each epoch and for all epochs, the reason why a claimed state did not hold,
and the size of data beyond any page cache.

A cold byte was not in this page cache. The byte may still come from memory beneath: of
a server, of a hypervisor, of the file of a loop device. See `CacheStatus.caveat`.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from benchmarks.page_cache import reads
from benchmarks.page_cache.reads import EpochReads
from benchmarks.page_cache.states import COLD_LIMIT, CacheStatus
from benchmarks.system import mounts
from benchmarks.system.figures import joined, share_text, size_text

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
        consumed_bytes: Size of the records in the timed steps.
        storage_bytes: Bytes of the files from storage meanwhile; None if unknown.
            Records read and not used make storage_bytes the larger figure.
        resident_fractions: For each page cache, the part of the files in the cache at
            the begin, 0 to 1; None if unknown.
        server_bytes: Bytes fetched by a shard cache meanwhile; None without a shard
            cache. With a shard cache the label is the state of the shard cache.
        num_requests: Reads of the store by shard caches meanwhile, likewise.
    """

    epoch: int
    consumed_bytes: float
    storage_bytes: int | None
    resident_fractions: Sequence[float | None]
    server_bytes: int | None = None
    num_requests: int | None = None
    network_bytes: int | None = None

    @property
    def storage_fraction(self) -> float | None:
        """The bytes from storage or the server over consumed_bytes; None if unknown."""
        cold = self.storage_bytes if self.server_bytes is None else self.server_bytes
        is_known = cold is not None and self.consumed_bytes
        return (cold or 0) / self.consumed_bytes if is_known else None

    @property
    def gave(self) -> str:
        """The part from storage or the server, for sentences."""
        giver = "storage" if self.server_bytes is None else "the server"
        share, consumed = share_text(self.storage_fraction), self.consumed_bytes / 1e6
        return f"{giver} gave {share} of the {consumed:.1f} MB"

    @property
    def label(self) -> str:
        """The state: "cold", "warm", "mixed" or "unknown".

        If the bytes from storage are unknown, the residency decides: files without a
        byte in memory at the begin are cold, as an epoch reads each record once; files
        in the memory of all machines are warm.
        """
        share = self.storage_fraction
        if share is not None:
            if share >= COLD_MIN:
                return "cold"
            return "warm" if share <= WARM_MAX else "mixed"
        least, most = (joined(each, self.resident_fractions) for each in (min, max))
        if most is not None and most <= COLD_LIMIT:
            return "cold"
        return "warm" if least is not None and least >= 1 - WARM_MAX else "unknown"

    def as_json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        del fields["resident_fractions"]
        return fields | {n: getattr(self, n) for n in ("storage_fraction", "label")}

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch}: {self.label}, {share_text(self.storage_fraction)} of "
            f"{self.consumed_bytes / 1e6:.1f} MB"
        )


def join(
    by_rank: Sequence[Sequence[EpochReads]], before: Sequence[CacheStatus]
) -> list[EpochCache]:
    """Joins the reads of all ranks in every timed epoch."""
    statuses = {status.cache: status for status in before}
    num_bytes = max([1, *(status.num_bytes for status in before)])
    by_epoch = []
    for ranks in zip(*by_rank, strict=True):
        groups = {
            cache: [rank for rank in ranks if rank.cache == cache]
            for cache in dict.fromkeys(rank.cache for rank in ranks)
        }
        origins = [reads.origin(group, statuses.get(c)) for c, group in groups.items()]
        by_epoch.append(
            EpochCache(
                epoch=ranks[0].epoch,
                consumed_bytes=sum(rank.consumed_bytes for rank in ranks),
                storage_bytes=joined(sum, [origin.storage_bytes for origin in origins]),
                server_bytes=reads.total(ranks, "server_bytes"),
                num_requests=reads.total(ranks, "num_requests"),
                # Ranks of a host count the same bytes.
                network_bytes=reads.total(
                    [*{rank.host: rank for rank in ranks}.values()], "network_bytes"
                ),
                resident_fractions=[
                    None if held is None else held / num_bytes for _, held in origins
                ],
            )
        )
    return by_epoch


def together(epochs: Sequence[EpochCache]) -> EpochCache:
    """Returns the sums over epochs."""
    names = ("storage_bytes", "server_bytes", "num_requests", "network_bytes")
    return EpochCache(
        epoch=len(epochs),
        consumed_bytes=sum(epoch.consumed_bytes for epoch in epochs),
        resident_fractions=(),
        **{name: joined(sum, [getattr(e, name) for e in epochs]) for name in names},
    )


def label(epochs: Sequence[EpochCache]) -> str:
    """Returns the label of all epochs: "unknown" if one is, "mixed" if they differ."""
    labels = {epoch.label for epoch in epochs}
    if "unknown" in labels or not labels:
        return "unknown"
    return labels.pop() if len(labels) == 1 else "mixed"


def mismatch(
    state: str, before: Sequence[CacheStatus], epochs: Sequence[EpochCache]
) -> str:
    """Returns the first epoch in another state than a run claims, in words; or ""."""
    wrong = next((e for e in epochs if state not in ("as_is", e.label)), None)
    if wrong is None:
        return ""
    remark = next((status.remark for status in before if status.remark), "")
    text = f"epoch {wrong.epoch} was {wrong.label}: {wrong.gave}"
    return f"{text} that its timed steps consumed. {remark}".strip()


def describe(before: Sequence[CacheStatus], epochs: Sequence[EpochCache]) -> str:
    """Returns the label of all epochs with its figures and its caveat."""
    resident = joined(max, [status.resident_fraction for status in before])
    shown = "; ".join(map(str, epochs[:_MAX_EPOCHS_IN_TEXT]))
    if len(epochs) > _MAX_EPOCHS_IN_TEXT:
        shown += f"; and {len(epochs) - _MAX_EPOCHS_IN_TEXT} more"
    text = (
        f"{label(epochs)} in the timed steps: {together(epochs).gave} consumed "
        f"({shown}); {share_text(resident)} of the files were in memory before."
    )
    caveat = next((status.caveat for status in before if status.caveat), "")
    return f"{text} {caveat}".strip()


def section(
    before: Sequence[CacheStatus],
    epochs: Sequence[EpochCache],
    *,
    data_bytes: int,
    num_steps: int,
    state: str = "as_is",
) -> dict[str, Any]:
    """Returns the section `cache` of a result: the label and its proof."""
    memory = {status.cache.machine: status.ram_bytes for status in before}
    return {
        "state": state,
        "label": label(epochs),
        "text": describe(before, epochs),
        "epochs": [epoch.as_json() for epoch in epochs],
        "before": [status.as_json() for status in before],
        "size_rule": size_rule(
            data_bytes=data_bytes, ram_bytes=sum(memory.values()), num_steps=num_steps
        ),
    }


def size_rule(*, data_bytes: int, ram_bytes: int, num_steps: int) -> dict[str, Any]:
    """Compares a data set with the size in the rules of MLPerf Storage.

    The data must be 5 times as large as the memory of all hosts, so that no page cache
    can hold it, and an epoch must have 500 steps of the global batch.
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
            f"Data set {size_text(data_bytes)}; {_MEMORY_FACTOR} x "
            f"{size_text(ram_bytes)} of memory = {size_text(needed)} needed: "
            f"{compared}; an epoch has {num_steps} of {_NEEDED_STEPS} steps."
        ),
    }


# Part of the bytes of a mount that the network must have brought.
_BROUGHT = 0.9
_FROM = {
    "bytes_from_server": "the server",
    "bytes_from_disk": "the local disk",
    "bytes_from_page_cache": "the page cache",
    "bytes_from_ram_cache": "the cache in RAM",
}


def tier_of(*, ram_cache: str | None, has_shard_cache: bool, folder: str | None) -> str:
    """Returns the name of the tier that a run reads; `folder` is read in place."""
    if ram_cache is not None:
        return "ram" if ram_cache == "records" else "decoded_ram"
    if has_shard_cache:
        return "shard_cache"
    if folder is None:
        return "remote"
    return "mount" if mounts.is_remote(mounts.filesystem(folder)) else "local"


def sources(
    tier: str, epochs: Sequence[EpochCache], *, remark: str = ""
) -> dict[str, Any]:
    """Returns the section `storage` of a result: the tier, and the bytes by source."""
    whole = together(epochs)
    by_source = _by_source(tier, whole)
    if tier == "mount" and whole.network_bytes is not None:
        brought = f"{whole.network_bytes / 1e6:.1f} MB meanwhile."
        remark = f"The network of the hosts brought {brought} {remark}"
    if whole.num_requests:
        requests, fetched = whole.num_requests, whole.server_bytes or 0
        each = f"{requests / len(epochs):,.0f} requests"
        size = f"{fetched / len(epochs) / 1e9:.3g} GB"
        remark = f"An epoch took {each} and {size}. {remark}"
    state = "cold" if tier == "remote" else label(epochs)
    givers = [
        f"{name} {num_bytes / 1e6:.1f} MB"
        for key, name in _FROM.items()
        if (num_bytes := by_source[key])
    ]
    unknown = [name for key, name in _FROM.items() if by_source[key] is None]
    text = f"{tier}, {state}: {whole.consumed_bytes / 1e6:.1f} MB consumed"
    text += f"; given by {', '.join(givers)}" if givers else ""
    if unknown:
        text += f"; it cannot be told how much {' and '.join(unknown)} gave"
    return {
        "tier": tier,
        "state": state,
        "consumed_bytes": whole.consumed_bytes,
        "num_requests": whole.num_requests,
        **by_source,
        "text": f"{text}. {remark}".strip(),
    }


def _by_source(tier: str, whole: EpochCache) -> dict[str, float | None]:
    """Returns the bytes from each source.

    The server belongs to a URL, to a shared mount, or to both. All bytes from neither
    the server nor the disk were in memory.
    """
    consumed, received = whole.consumed_bytes, whole.network_bytes
    server: float | None = 0
    disk: float | None = whole.storage_bytes
    if tier == "remote":  # nothing on this host keeps a record
        server, disk = consumed, 0
    elif tier == "mount":
        server, disk = disk, 0
    elif whole.server_bytes is not None:
        server = whole.server_bytes
    rest = None if server is None else max(0.0, consumed - server)
    disk = rest if rest == 0 else None if disk is None else min(disk, rest or disk)
    memory = None if rest is None or disk is None else rest - disk
    brought = math.inf if tier != "mount" or received is None else received
    if brought < _BROUGHT * min(server or 0, consumed):
        # A cache or files of this machine, or the network of another namespace.
        server = disk = None
    in_ram = tier in ("ram", "decoded_ram")
    from_memory = (0, memory) if in_ram else (memory, 0)
    return dict(zip(_FROM, (server, disk, *from_memory), strict=True))
