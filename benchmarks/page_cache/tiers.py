"""The section `storage` of a result: which tier fed the steps, and how many bytes.

In: the way of a run to its data, and the reads of the timed epochs. Out: the tier, the
state of the caches, and the bytes from each source. An unknown figure is None, and the
text says so.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks.page_cache import labels
from benchmarks.page_cache.labels import EpochCache
from benchmarks.page_cache.reads import known_sum
from benchmarks.system import mounts

# Part of the bytes of a mount that the network must have brought.
_BROUGHT = 0.9
_FROM = {
    "bytes_from_server": "the server",
    "bytes_from_disk": "the local disk",
    "bytes_from_page_cache": "the page cache",
    "bytes_from_ram_cache": "the cache in RAM",
}


def tier_of(*, ram_cache: str | None, has_shard_cache: bool, folder: str | None) -> str:
    """Returns the name of the tier that a run reads.

    Args:
        folder: Folder whose files are read in place; None if there is none.
    """
    if ram_cache is not None:
        return "ram" if ram_cache == "records" else "decoded_ram"
    if has_shard_cache:
        return "shard_cache"
    if folder is None:
        return "remote"
    return "mount" if mounts.is_remote(mounts.filesystem(folder)) else "local"


def describe(
    tier: str, epochs: Sequence[EpochCache], *, remark: str = ""
) -> dict[str, Any]:
    """Returns the section.

    The server belongs to a URL, to a shared mount, or to both. All bytes that came from
    neither the server nor the disk were in memory.
    """
    consumed = sum(epoch.consumed_bytes for epoch in epochs)
    storage = known_sum([epoch.storage_bytes for epoch in epochs])
    fetched = known_sum([epoch.server_bytes for epoch in epochs])
    server: float | None = 0
    disk: float | None = storage
    if tier == "remote":  # nothing on this host keeps a record
        server, disk = consumed, 0
    elif tier == "mount":
        server, disk = storage, 0
    elif fetched is not None:
        server = fetched
    rest = None if server is None else max(0.0, consumed - server)
    disk = rest if rest == 0 else None if disk is None else min(disk, rest or disk)
    memory = None if rest is None or disk is None else rest - disk
    received = known_sum([epoch.network_bytes for epoch in epochs])
    if tier == "mount" and received is not None:
        brought = f"The network of the hosts brought {received / 1e6:.1f} MB meanwhile."
        remark = f"{brought} {remark}"
        if received < _BROUGHT * min(server or 0, consumed):
            # A cache or files of this machine, or the network of another namespace.
            server = disk = None
    in_ram = tier in ("ram", "decoded_ram")
    sources = {
        "bytes_from_server": server,
        "bytes_from_disk": disk,
        "bytes_from_page_cache": 0 if in_ram else memory,
        "bytes_from_ram_cache": memory if in_ram else 0,
    }
    state = "cold" if tier == "remote" else labels.label(epochs)
    return {
        "tier": tier,
        "state": state,
        "consumed_bytes": consumed,
        **sources,
        "text": _text(tier, state, consumed, sources, remark),
    }


def _text(
    tier: str,
    state: str,
    consumed: float,
    sources: dict[str, float | None],
    remark: str,
) -> str:
    givers = [
        f"{name} {num_bytes / 1e6:.1f} MB"
        for key, name in _FROM.items()
        if (num_bytes := sources[key])
    ]
    unknown = [name for key, name in _FROM.items() if sources[key] is None]
    text = f"{tier}, {state}: {consumed / 1e6:.1f} MB consumed"
    text += f"; given by {', '.join(givers)}" if givers else ""
    if unknown:
        text += f"; it cannot be told how much {' and '.join(unknown)} gave"
    return f"{text}. {remark}".strip()
