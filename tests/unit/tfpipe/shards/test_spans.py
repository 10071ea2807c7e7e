"""Spans of records: those of all offsets, read in parts, and only when asked for."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tfpipe import errors
from tfpipe.shards import spans
from tfpipe.shards.spans import RecordSpans

SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any)


class Catalog:
    """Records of random sizes; notes the shards that were read."""

    def __init__(self, shard_sizes, scale=1):
        self.sizes = np.array(shard_sizes, np.int64)
        ends = np.cumsum(self.sizes)
        count = int(ends[-1])
        self.num_bytes = np.random.default_rng(count).integers(16, 99, count) * scale
        stops = np.append(0, np.cumsum(self.num_bytes))
        self.shard = np.repeat(np.arange(len(self.sizes)), self.sizes)
        begins = stops[ends - self.sizes]
        self.offsets = stops[:-1] - begins[self.shard]
        self.shard_bytes = stops[ends] - begins
        self.read_shards = []

    def read(self, shards):
        self.read_shards += shards.tolist()
        return self.offsets[np.isin(self.shard, shards)]

    def spans(self):
        return RecordSpans(
            shard_sizes=self.sizes, shard_bytes=self.shard_bytes, read=self.read
        )


@hypothesis.settings(max_examples=50, deadline=None)
@hypothesis.given(SIZES, st.integers(1, 20), st.sampled_from([1, 2**32]), st.data())
def test_spans_are_those_of_all_records(sizes, most, scale, data):
    catalog = Catalog(sizes, scale)
    record = st.integers(0, len(catalog.offsets) - 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans, "_MOST_AT_ONCE", most)
        read = catalog.spans()
        for _ in range(3):
            ids = np.array(data.draw(st.lists(record, max_size=9)), np.int64)
            assert read.num_bytes(ids).tolist() == catalog.num_bytes[ids].tolist()
            assert read.byte_offsets(ids).tolist() == catalog.offsets[ids].tolist()
        wanted = set(catalog.shard[ids].tolist())
        assert wanted <= set(catalog.read_shards)
        assert read.all_byte_offsets().tolist() == catalog.offsets.tolist()

    assert len(set(catalog.read_shards)) == len(catalog.read_shards)


def test_a_read_brings_more_neighbors_each_time_and_no_other_shard(monkeypatch):
    monkeypatch.setattr(spans, "_MOST_AT_ONCE", 20)
    catalog = Catalog([5] * 12)
    read = catalog.spans()

    reads = []
    for record in (0, 59, 20, 24):
        read.byte_offsets(np.array([record]))
        reads.append(catalog.read_shards.copy())
        catalog.read_shards.clear()

    assert reads == [[0], [11], [4, 5], []]


@pytest.mark.parametrize("change", ["missing", "late", "equal", "beyond"])
def test_offsets_that_contradict_the_shards_are_refused(change):
    catalog = Catalog([3, 0, 4])
    if change == "missing":
        catalog.offsets, catalog.shard = catalog.offsets[:-1], catalog.shard[:-1]
    elif change == "late":
        catalog.offsets[3] = 4
    elif change == "equal":
        catalog.offsets[1] = catalog.offsets[2]
    else:
        catalog.offsets[6] = catalog.shard_bytes[2]

    with pytest.raises(errors.BadIndexError, match=r"shards 0 to 2 .* must rise"):
        catalog.spans().num_bytes(np.array([0, 4]))
