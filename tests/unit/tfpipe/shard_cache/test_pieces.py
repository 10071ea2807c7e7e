"""Pieces: every record in one of them, and no wrong byte taken for a right one."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tfpipe import errors
from tfpipe.shard_cache import pieces as cuts
from tfpipe.shards import records
from tfpipe.shards.ranges import RecordRanges, by_shard

MOST_BYTES = 1000


@st.composite
def splits(draw):
    """Sizes of shards, byte offsets and bytes of shards of some records."""
    sizes = draw(st.lists(st.integers(0, 40), min_size=1, max_size=5))
    lengths = [
        draw(st.lists(st.integers(16, 400), min_size=size, max_size=size))
        for size in sizes
    ]
    offsets = [np.cumsum([0, *each])[:-1] for each in lengths]
    return (
        np.array(sizes, np.int64),
        np.concatenate(offsets).astype(np.int64),
        np.array([sum(each) for each in lengths], np.int64),
        np.concatenate(lengths).astype(np.int64),
    )


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(cuts, "_MOST_BYTES", MOST_BYTES)


@settings(deadline=None, max_examples=60)
@given(splits(), st.data())
def test_pieces_hold_each_record_once_and_ranges_find_them(split, data):
    sizes, offsets, num_bytes, lengths = split
    pieces = cuts.cut(sizes, offsets, num_bytes)
    owner = np.repeat(np.arange(len(pieces)), np.diff(pieces.first))
    shard_of_record = np.repeat(np.arange(len(sizes)), sizes)

    assert len(owner) == len(offsets)
    assert (pieces.shard[owner] == shard_of_record).all()
    total = np.bincount(owner, lengths, minlength=len(pieces))
    assert ((pieces.stop - pieces.start) == total).all()
    power = 1 << (int(np.diff(pieces.first).max(initial=1)) - 1).bit_length()
    in_shard = pieces.first[:-1] - (np.cumsum(sizes) - sizes)[pieces.shard]
    assert (in_shard % power == 0).all()
    for piece in range(len(pieces)):
        held = np.flatnonzero(owner == piece)
        assert pieces.record_sizes(piece) == lengths[held].tolist()
        assert pieces.first_in_shard(piece) == held[0] - np.searchsorted(
            shard_of_record, pieces.shard[piece]
        )
    if not len(offsets):
        return
    first = data.draw(st.lists(st.integers(0, len(offsets) - 1), min_size=1))
    first = np.array(first, np.int64)
    length = np.array([data.draw(st.integers(1, len(offsets) - f)) for f in first])
    ranges = RecordRanges(first, length)
    wanted = pieces.wanted(ranges)

    assert pieces.of(ranges).tolist() == sorted(set(owner[ranges.records()]))
    assert wanted.pieces.tolist() == pieces.of(ranges).tolist()
    shard, extents = by_shard(ranges, sizes)
    assert wanted.shard.tolist() == shard.tolist()
    expected = [
        (extent, piece, lengths[held][owner[held] == piece].sum())
        for extent, held in enumerate(
            np.split(extents.records(), np.cumsum(extents.length)[:-1])
        )
        for piece in np.unique(owner[held])
    ]
    found = zip(wanted.extent, wanted.piece, wanted.num_bytes, strict=True)
    assert [tuple(map(int, part)) for part in found] == [
        tuple(map(int, part)) for part in expected
    ]


def test_pieces_of_images_are_blocks_of_2_to_4_mb(monkeypatch):
    monkeypatch.undo()
    size = 110_000
    pieces = cuts.cut(np.array([100]), np.arange(100) * size, np.array([100 * size]))

    assert pieces.first.tolist() == [0, 32, 64, 96, 100]


@pytest.mark.parametrize(
    ("sizes", "offsets", "num_bytes"),
    [
        ([2], [0, 0], [100]),  # does not rise
        ([2], [0, 90], [100]),  # a record of 10 bytes
        ([2], [5, 50], [100]),  # begins late
        ([3], [0, 50], [100]),  # other number of records
        ([1, 1], [0, 50], [100, 100]),  # begins late in the second shard
    ],
)
def test_a_catalog_that_contradicts_the_index_is_refused(sizes, offsets, num_bytes):
    with pytest.raises(errors.BadIndexError, match="byte offsets"):
        cuts.cut(np.array(sizes), np.array(offsets), np.array(num_bytes))


def framed(data):
    return b"".join(records.frame([data]))


def test_any_changed_byte_of_a_piece_is_found():
    parts = [framed(b"first"), framed(b""), framed(b"the third")]
    content, sizes = b"".join(parts), [len(part) for part in parts]

    assert cuts.fault(memoryview(content), sizes) is None
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 4
        number, damage = cuts.fault(memoryview(changed), sizes)
        assert number == np.searchsorted(np.cumsum(sizes), place, side="right")
        assert "CRC" in damage


def test_a_whole_record_of_another_length_is_found():
    content = framed(b"longer") + framed(b"long")

    number, damage = cuts.fault(memoryview(content), [20, len(content) - 20])

    assert number == 0
    assert damage == "the record must have 20 bytes, its header says 22"
