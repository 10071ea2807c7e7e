"""benchmarks.page_cache.reads: bytes from storage, from made-up counters."""

import os
import pathlib
import types
from typing import Any

import pytest

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.page_cache import labels, reads as reads_of
from benchmarks.page_cache.reads import EpochReads, Meter, Origin, Snapshot
from benchmarks.page_cache.states import CacheStatus, OpenFiles, PageCache
from benchmarks.system.machine import Host, Machine

CACHE = PageCache(Machine("boot"))


def _status(**known: Any) -> CacheStatus:
    return CacheStatus(rank=0, cache=CACHE, actions={}, **known)


def _reads(
    *,
    read: tuple[int | None, int | None] = (0, 0),
    resident: tuple[int | None, int | None] = (None, None),
    reclaimed: tuple[int | None, int | None] = (0, 0),
    consumed: float = 1000.0,
) -> EpochReads:
    before, after = (
        Snapshot(read_bytes=r, resident_bytes=m, reclaimed_bytes=s)
        for r, m, s in zip(read, resident, reclaimed, strict=True)
    )
    return EpochReads(
        epoch=0,
        cache=CACHE,
        host=Host(CACHE.machine),
        consumed_bytes=consumed,
        before=before,
        after=after,
    )


@pytest.mark.parametrize(
    ("reads", "counted", "uncounted"),
    [
        # All files came into memory; the process also read 300 bytes of a library.
        ({"read": (500, 1800), "resident": (0, 1000)}, 1000, 1000),
        # The files were in memory: only the library was read.
        ({"read": (500, 800), "resident": (1000, 1000)}, 0, 0),
        # Another process brought 600 bytes into memory while this one read 400.
        ({"read": (0, 400), "resident": (0, 1000)}, 400, 1000),
        # The files do not fit: memory stays full while 1000 bytes are read.
        (
            {"read": (0, 1000), "resident": (300, 300), "reclaimed": (7, 5007)},
            1000,
            None,
        ),
        # Half of what was read left memory again.
        (
            {"read": (0, 1300), "resident": (0, 500), "reclaimed": (0, 500)},
            1000,
            None,
        ),
        # Somebody evicted the files meanwhile.
        ({"read": (0, 1000), "resident": (1000, 400)}, 1000, None),
        ({"read": (0, 1000), "resident": (None, None)}, 1000, None),
        ({"read": (0, 1000), "resident": (0, 9), "reclaimed": (0, None)}, 1000, None),
        ({"read": (None, None), "resident": (0, 1000)}, 1000, 1000),
        ({"read": (None, 5), "resident": (None, 9)}, None, None),
    ],
)
def test_storage_bytes_of_a_host(reads, counted, uncounted):
    found = [
        reads_of.origin([_reads(**reads)], _status(counts_reads=counts)).storage_bytes
        for counts in (True, False)
    ]

    assert found == [counted, uncounted]


def test_ranks_of_a_page_cache_add_up_and_share_it():
    first = _reads(read=(0, 700), resident=(100, 900), consumed=500.0)
    second = _reads(read=(50, 350), consumed=400.0)
    counts = _status(counts_reads=True)

    assert reads_of.origin([first, second], counts) == Origin(800, 100)
    assert reads_of.origin([second, first], counts) == Origin(800, 100)
    assert reads_of.origin([second], counts) == Origin(300, None)


@pytest.mark.parametrize(
    ("reads", "known", "expected"),
    [
        # 1000 bytes of nowhere: neither read, nor in memory before, nor after.
        ({"resident": (0, 0)}, {"counts_reads": True}, (None, None)),
        ({"resident": (0, 0)}, {"counts_reads": False}, (None, None)),
        ({"resident": (0, 800)}, {"counts_reads": False}, (None, None)),
        ({"resident": (0, 900)}, {"counts_reads": False}, (900, 0)),
        ({"resident": (100, 800)}, {"counts_reads": None}, (None, None)),
        # A mount that drops the pages of a file that is opened: only the begin tells.
        ({"resident": (0, 0)}, {"keeps_pages": False}, (1000, None)),
        ({"resident": (100, 0)}, {"keeps_pages": False}, (900, None)),
        ({"resident": (1000, 0)}, {"keeps_pages": False}, (None, None)),
        (
            {"resident": (0, 0), "read": (0, 1000)},
            {"keeps_pages": False, "counts_reads": True},
            (1000, None),
        ),
        # Memory is the storage, whatever the kernel counts.
        (
            {"resident": (0, 1000), "read": (0, 1000)},
            {"is_memory": True, "counts_reads": True},
            (0, 0),
        ),
    ],
)
def test_the_page_cache_gives_no_more_than_it_had_and_got(reads, known, expected):
    assert reads_of.origin([_reads(**reads)], _status(**known)) == expected


def test_the_network_of_a_host_is_counted_once_and_that_of_all_hosts_adds_up():
    def rank(network: int, received: int | None) -> EpochReads:
        return EpochReads(
            epoch=0,
            cache=CACHE,
            host=Host(CACHE.machine, network),
            consumed_bytes=1.0,
            before=Snapshot(network_bytes=50),
            after=Snapshot(network_bytes=received),
        )

    def joined(*ranks: EpochReads) -> int | None:
        return labels.join([[each] for each in ranks], [])[0].network_bytes

    assert joined(rank(1, 150), rank(1, 150), rank(2, 350)) == 400
    assert joined(rank(1, 150), rank(2, None)) is None


@pytest.mark.parametrize(
    ("text", "pages"),
    [
        ("pgsteal_kswapd 5\npgsteal_direct 6\npgsteal_anon 4\npgsteal_file 7\n", 7),
        ("pgsteal_kswapd 5\npgsteal_direct 6\n", 11),  # before Linux 5.8
    ],
)
def test_reclaimed_bytes_are_pages_of_files(text, pages):
    assert reads_of.parse_reclaimed(text) == pages * os.sysconf("SC_PAGESIZE")


def test_a_kernel_without_counters_of_reclaim_is_an_error():
    with pytest.raises(ValueError, match="has no pgsteal_file"):
        reads_of.parse_reclaimed("nr_free_pages 5\npgsteal_kswapd 5\n")


def test_a_snapshot_looks_at_the_files_only_if_asked(tmp_path: pathlib.Path):
    path = tmp_path / "shard"
    path.write_bytes(b"x" * 5000)

    fetched = types.SimpleNamespace(bytes_fetched=7, num_requests=2)
    looked = reads_of.snapshot(OpenFiles([str(path)]), fetched=fetched)

    assert (looked.resident_bytes, looked.server_bytes, looked.num_requests) == (
        5000,
        7,
        2,
    )
    assert looked.reclaimed_bytes is not None
    assert looked.network_bytes is not None
    assert reads_of.snapshot(None).resident_bytes is None


def test_bytes_that_come_after_the_end_of_the_timed_steps_do_not_count():
    fetched = types.SimpleNamespace(bytes_fetched=10, num_requests=1)
    meter = Meter(
        (),
        Ranks(),
        fetched=lambda: types.SimpleNamespace(**vars(fetched)),
        record_bytes=100.0,
        state=tfpipe.State(epoch=2),
    )
    fetched.bytes_fetched = 30
    meter.end()
    fetched.bytes_fetched = 70

    ((reads,),) = meter.finish(lambda epoch: 5 * epoch)

    assert (reads.epoch, reads.consumed_bytes) == (2, 1000.0)
    assert reads.grown("server_bytes") == 20
