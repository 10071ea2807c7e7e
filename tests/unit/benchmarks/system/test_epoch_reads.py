"""benchmarks.system.epoch_reads: bytes from storage, from made-up counters."""

import os
import pathlib

import pytest

from benchmarks.system import epoch_reads
from benchmarks.system.epoch_reads import EpochReads, Snapshot


def _reads(
    *,
    read: tuple[int | None, int | None] = (0, 0),
    resident: tuple[int | None, int | None] = (None, None),
    reclaimed: tuple[int | None, int | None] = (0, 0),
) -> EpochReads:
    before, after = (
        Snapshot(read_bytes=r, resident_bytes=m, reclaimed_bytes=s)
        for r, m, s in zip(read, resident, reclaimed, strict=True)
    )
    return EpochReads(
        epoch=0, host="a", consumed_bytes=1000.0, before=before, after=after
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
        epoch_reads.storage_bytes([_reads(**reads)], counts_reads=counts)
        for counts in (True, False)
    ]

    assert found == [counted, uncounted]


def test_ranks_of_a_host_add_up_and_share_its_page_cache():
    first = _reads(read=(0, 700), resident=(100, 900))
    second = _reads(read=(50, 350))

    assert epoch_reads.storage_bytes([first, second], counts_reads=True) == 800
    assert epoch_reads.storage_bytes([second, first], counts_reads=True) == 800
    assert epoch_reads.storage_bytes([second], counts_reads=True) == 300
    assert epoch_reads.resident_at_begin([second, first]) == 100
    assert epoch_reads.resident_at_begin([second]) is None


@pytest.mark.parametrize(
    ("text", "pages"),
    [
        ("pgsteal_kswapd 5\npgsteal_direct 6\npgsteal_anon 4\npgsteal_file 7\n", 7),
        ("pgsteal_kswapd 5\npgsteal_direct 6\n", 11),  # before Linux 5.8
    ],
)
def test_reclaimed_bytes_are_pages_of_files(text, pages):
    assert epoch_reads.parse_reclaimed(text) == pages * os.sysconf("SC_PAGESIZE")


def test_a_kernel_without_counters_of_reclaim_is_an_error():
    with pytest.raises(ValueError, match="has no pgsteal_file"):
        epoch_reads.parse_reclaimed("nr_free_pages 5\npgsteal_kswapd 5\n")


def test_a_snapshot_looks_at_the_files_only_if_asked(tmp_path: pathlib.Path):
    path = tmp_path / "shard"
    path.write_bytes(b"x" * 5000)

    looked = epoch_reads.snapshot([str(path)])

    assert looked.resident_bytes == 5000
    assert looked.reclaimed_bytes is not None
    assert epoch_reads.snapshot([]).resident_bytes is None
    assert epoch_reads.snapshot([str(tmp_path / "gone")]).resident_bytes is None
