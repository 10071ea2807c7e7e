"""The digests of shards from their pieces in memory."""

import itertools

import numpy as np
import pytest
import xxhash

from tfpipe.shard_cache import pieces as cuts, publish

RECORD = 1000
SIZES = np.array([4, 0, 1, 3])


@pytest.fixture
def pieces(monkeypatch):
    """Pieces of a record each: 0 to 3 in shard 0, 4 in shard 2, 5 to 7 in shard 3."""
    monkeypatch.setattr(cuts, "_MOST_BYTES", RECORD)
    offsets = np.concatenate([np.arange(size) * RECORD for size in SIZES])
    return cuts.cut(SIZES, offsets, SIZES * RECORD)


CONTENT = [memoryview(bytes([n]) * RECORD) for n in range(8)]
RIGHT = {
    shard: xxhash.xxh3_128_hexdigest(b"".join(CONTENT[slice(*piece)]))
    for shard, piece in {0: (0, 4), 2: (4, 5), 3: (5, 8)}.items()
}


def test_pieces_in_any_order_give_the_digest_of_the_shard(pieces):
    for order in itertools.permutations(range(4)):
        digests = publish.Digests(pieces)
        mixed = [*order[:2], 6, *order[2:], 4, 7, 5]
        for piece in mixed:
            digests.add(piece, CONTENT[piece])
        assert {n: digests.take(n) for n in (0, 2, 3)} == RIGHT, order
        assert digests.take(0) is None
        assert not digests._waiting


def test_a_shard_without_all_pieces_has_no_digest(pieces):
    for missing in range(4):
        digests = publish.Digests(pieces)
        for piece in set(range(8)) - {missing}:
            digests.add(piece, CONTENT[piece])
        assert digests.take(0) is None, missing
        assert digests.take(3) == RIGHT[3]
        assert not digests._waiting


def test_a_piece_that_comes_again_counts_with_its_last_bytes(pieces):
    others = memoryview(b"\xff" * RECORD)
    for again in range(4):
        for first in range(again + 1, 5):  # as many pieces come before it
            digests = publish.Digests(pieces)
            for piece in range(first):
                digests.add(piece, others if piece == again else CONTENT[piece])
            digests.add(again, CONTENT[again])
            for piece in range(first, 4):
                digests.add(piece, CONTENT[piece])
            assert digests.take(0) in (RIGHT[0], None), (again, first)
            for piece in range(first):
                digests.add(piece, CONTENT[piece])
            digests.add(again, others)
            for piece in range(first, 4):
                digests.add(piece, CONTENT[piece])
            assert digests.take(0) != RIGHT[0], (again, first)
            assert not digests._waiting


def test_few_bytes_wait(pieces, monkeypatch):
    monkeypatch.setattr(publish, "_WAITING_BYTES", 2 * RECORD)
    digests = publish.Digests(pieces)
    for piece in (1, 6, 7, 5, 0, 2, 3, 4):  # 1 is forgotten when 7 comes
        digests.add(piece, CONTENT[piece])
        assert len(digests._waiting) <= 2
    assert [digests.take(n) for n in (0, 2, 3)] == [None, RIGHT[2], RIGHT[3]]
