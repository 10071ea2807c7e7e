"""Ranges hold the same records in the same order as the list that they stand for."""

import itertools

import hypothesis
import numpy as np
from hypothesis import strategies

from tfpipe.shards.ranges import RecordRanges, by_shard, join

_SIZES = strategies.lists(strategies.integers(0, 5), min_size=1, max_size=8)


def _ranges(pairs: list[tuple[int, int]]) -> RecordRanges:
    first, length = np.array(pairs, np.int64).reshape(-1, 2).T
    return RecordRanges(first, length)


@hypothesis.given(_SIZES, strategies.data())
def test_ranges_cut_at_the_ends_of_shards_hold_the_same_records(
    sizes: list[int], data: strategies.DataObject
) -> None:
    total = sum(sizes)
    hypothesis.assume(total)
    pairs = []
    for _ in range(data.draw(strategies.integers(1, 4))):
        first = data.draw(strategies.integers(0, total - 1))
        pairs.append((first, data.draw(strategies.integers(1, total - first))))

    shard, ranges = by_shard(_ranges(pairs), np.array(sizes, np.int64))

    expected = [number for a, length in pairs for number in range(a, a + length)]
    assert ranges.records().tolist() == expected
    assert (ranges.length > 0).all()
    shard_of_record = np.repeat(np.arange(len(sizes)), sizes)
    assert np.repeat(shard, ranges.length).tolist() == [
        int(shard_of_record[number]) for number in expected
    ]


def test_an_empty_shard_within_a_range_has_no_range() -> None:
    shard, ranges = by_shard(_ranges([(1, 4)]), np.array([2, 0, 0, 3], np.int64))

    assert shard.tolist() == [0, 3]
    assert (ranges.first.tolist(), ranges.length.tolist()) == ([1, 2], [1, 3])


@hypothesis.given(strategies.lists(strategies.integers(0, 9)), strategies.data())
def test_joined_and_cut_records_are_a_slice_of_the_list(
    records: list[int], data: strategies.DataObject
) -> None:
    joined = join(np.array(records, np.int64))

    assert joined.records().tolist() == records
    assert joined.num_records == len(records)
    breaks = sum(b != a + 1 for a, b in itertools.pairwise(records))
    assert len(joined.first) == (breaks + 1 if records else 0)
    start = data.draw(strategies.integers(0, len(records)))
    stop = data.draw(strategies.integers(0, len(records)))
    assert joined.cut(start, stop).records().tolist() == records[start:stop]
