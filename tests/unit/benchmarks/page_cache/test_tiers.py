"""benchmarks.page_cache.labels: bytes by tier, from made-up figures."""

import dataclasses

import pytest

from benchmarks.page_cache import labels
from benchmarks.page_cache.labels import EpochCache
from benchmarks.system import mounts


def _epoch(storage, server=None, *, consumed=1e6, network=None):
    return EpochCache(
        epoch=0,
        consumed_bytes=consumed,
        storage_bytes=storage,
        resident_fractions=(None,),
        server_bytes=server,
        network_bytes=network,
    )


@pytest.mark.parametrize(
    ("tier", "epochs", "state", "expected"),
    [
        # Of 1 MB: from the server, the disk, the page cache, the cache in RAM.
        ("local", [_epoch(10**6)], "cold", (0, 10**6, 0, 0)),
        ("local", [_epoch(0)], "warm", (0, 0, 10**6, 0)),
        ("local", [_epoch(2 * 10**5)], "mixed", (0, 2 * 10**5, 8 * 10**5, 0)),
        ("local", [_epoch(None)], "unknown", (0, None, None, 0)),
        # More may be read than is used: it was read ahead.
        ("local", [_epoch(2 * 10**6)], "cold", (0, 10**6, 0, 0)),
        ("mount", [_epoch(10**6)], "cold", (10**6, 0, 0, 0)),
        ("mount", [_epoch(0)], "warm", (0, 0, 10**6, 0)),
        ("mount", [_epoch(None)], "unknown", (None, 0, None, 0)),
        ("remote", [_epoch(123)], "cold", (10**6, 0, 0, 0)),
        ("shard_cache", [_epoch(0, 0)], "warm", (0, 0, 10**6, 0)),
        ("shard_cache", [_epoch(10**6, 0)], "warm", (0, 10**6, 0, 0)),
        ("shard_cache", [_epoch(None, 0)], "warm", (0, None, None, 0)),
        # What the server gave left nothing for the disk to give.
        ("shard_cache", [_epoch(None, 11 * 10**5)], "cold", (11 * 10**5, 0, 0, 0)),
        (
            "shard_cache",
            [_epoch(10**5, 4 * 10**5)],
            *("mixed", (4 * 10**5, 10**5, 5 * 10**5, 0)),
        ),
        (
            "shard_cache",
            [_epoch(0, 10**6), _epoch(0, 0)],
            *("mixed", (10**6, 0, 10**6, 0)),
        ),
        ("ram", [_epoch(0)], "warm", (0, 0, 0, 10**6)),
        ("decoded_ram", [_epoch(0)], "warm", (0, 0, 0, 10**6)),
    ],
)
def test_bytes_and_state(tier, epochs, state, expected):
    found = labels.sources(tier, epochs)

    assert (found["tier"], found["state"]) == (tier, state)
    assert (
        *(found["bytes_from_server"], found["bytes_from_disk"]),
        *(found["bytes_from_page_cache"], found["bytes_from_ram_cache"]),
    ) == expected


def test_text_says_what_cannot_be_told_and_why():
    found = labels.sources("mount", [_epoch(None)], remark="Nobody may look.")

    assert found["text"] == (
        "mount, unknown: 1.0 MB consumed; it cannot be told how much the server and "
        "the page cache gave. Nobody may look."
    )


@pytest.mark.parametrize(
    ("storage", "network", "server"),
    [
        (10**6, 10**6, 10**6),
        (10**6, 9 * 10**5, 10**6),  # records were read ahead
        (10**6, 2 * 10**6, 10**6),  # gradients
        (10**6, 5 * 10**5, None),  # a cache of the mount, or files of this machine
        (10**6, 0, None),
        (0, 0, 0),
        (2 * 10**6, 10**6, 2 * 10**6),  # more was read than used
    ],
)
def test_a_server_gives_no_more_than_the_network_brought(storage, network, server):
    found = labels.sources("mount", [_epoch(storage, network=network)])

    assert found["bytes_from_server"] == server
    assert found["bytes_from_disk"] == (None if server is None else 0)
    # The page cache gave the rest, whoever gave what storage gave.
    assert found["bytes_from_page_cache"] == max(0, 10**6 - storage)
    brought = f"The network of the hosts brought {network / 1e6:.1f} MB meanwhile."
    assert brought in found["text"]
    told = f"given by the server {server / 1e6:.1f} MB" if server else "given by"
    assert (told in found["text"]) == (server is not None)


def test_text_names_who_gave():
    found = labels.sources("shard_cache", [_epoch(10**5, 4 * 10**5)])

    assert found["text"] == (
        "shard_cache, mixed: 1.0 MB consumed; given by the server 0.4 MB, the local "
        "disk 0.1 MB, the page cache 0.5 MB."
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        *(("ext4", "local"), ("xfs", "local"), ("overlay", "local"), ("", "local")),
        *(("nfs4", "mount"), ("fuse.juicefs", "mount"), ("lustre", "mount")),
    ],
)
def test_tier_of_a_folder(kind, expected, monkeypatch):
    monkeypatch.setattr(mounts, "filesystem", lambda _: kind)

    found = labels.tier_of(ram_cache=None, has_shard_cache=False, folder="x")

    assert found == expected


@pytest.mark.parametrize(
    ("ram_cache", "has_shard_cache", "expected"),
    [
        (None, False, "remote"),
        (None, True, "shard_cache"),
        ("records", True, "ram"),
        ("images", False, "decoded_ram"),
    ],
)
def test_tier_without_a_folder(ram_cache, has_shard_cache, expected):
    found = labels.tier_of(
        ram_cache=ram_cache, has_shard_cache=has_shard_cache, folder=None
    )

    assert found == expected


def test_requests_are_counted_and_said_by_epoch() -> None:
    epochs = [
        dataclasses.replace(_epoch(0, 4 * 10**8), num_requests=count)
        for count in (1000, 2000)
    ]

    found = labels.sources("shard_cache", epochs)

    assert found["num_requests"] == 3000
    assert "An epoch took 1,500 requests and 0.4 GB." in found["text"]
