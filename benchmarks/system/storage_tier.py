"""The section `storage` of a result: which tier fed the steps, and how many bytes.

In: the way of a run to its data, and the reads of the timed epochs. Out: the tier, the
state of the caches, and the bytes from each source. An unknown figure is None, and the
text says so.
"""

from collections.abc import Sequence
from typing import Any

from benchmarks.system import cache_label, page_cache
from benchmarks.system.cache_label import EpochCache

# File systems whose files are on another machine. FUSE counts as well: the files may be
# on any machine.
_NETWORK = {
    *("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p"),
    *("virtiofs", "afs", "wekafs", "pvfs2", "orangefs"),
}
_FROM = {
    "bytes_from_server": "the server",
    "bytes_from_disk": "the local disk",
    "bytes_from_page_cache": "the page cache",
    "bytes_from_ram_cache": "the cache in RAM",
}


def is_mount(folder: str) -> bool:
    """Returns whether the files of a folder are on a mount of another machine."""
    kind = page_cache.filesystem(folder)
    return kind in _NETWORK or kind.split(".")[0] in ("fuse", "fuseblk")


def tier_of(*, ram_cache: str | None, has_shard_cache: bool, folder: str | None) -> str:
    """Returns the name of the tier that a run reads.

    Args:
        ram_cache: "records", "images" or None.
        has_shard_cache: Whether the shards are read through a shard cache.
        folder: Folder whose files are read in place; None if there is none.
    """
    if ram_cache is not None:
        return "ram" if ram_cache == "records" else "decoded_ram"
    if has_shard_cache:
        return "shard_cache"
    if folder is None:
        return "remote"
    return "mount" if is_mount(folder) else "local"


def describe(
    tier: str, epochs: Sequence[EpochCache], *, remark: str = ""
) -> dict[str, Any]:
    """Returns the section.

    The server belongs to a URL, to a shared mount, or to both. All bytes that came from
    neither the server nor the disk were in memory.

    Args:
        tier: The result of `tier_of`.
        epochs: The timed part of each epoch.
        remark: The reason why bytes are unknown, or "".
    """
    consumed = sum(epoch.consumed_bytes for epoch in epochs)
    storage = cache_label.known_sum([epoch.storage_bytes for epoch in epochs])
    fetched = cache_label.known_sum([epoch.server_bytes for epoch in epochs])
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
    in_ram = tier in ("ram", "decoded_ram")
    sources = {
        "bytes_from_server": server,
        "bytes_from_disk": disk,
        "bytes_from_page_cache": 0 if in_ram else memory,
        "bytes_from_ram_cache": memory if in_ram else 0,
    }
    state = "cold" if tier == "remote" else cache_label.label(epochs)
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
