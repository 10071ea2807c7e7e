"""Windows through a shard cache, which a stand-in plays: what it is told, and when."""

import itertools

import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.cached import DECODE, as_list, make
from tfpipe.reading.order import EpochPosition
from tfpipe.reading.source import windows_of
from tfpipe.reading.windows import Windows
from tfpipe.shard_cache import open_cache
from tfpipe.shards.ranges import by_shard


class StandIn:
    """Notes what readers are asked for; `paths` are those of a folder."""

    def __init__(self, known, folder):
        self.paths = [str(folder / shard.name) for shard in known.shards]
        self.sizes = known.shard_sizes
        self.readers = []
        self.errors = []
        self.is_sound = True

    def reader(self, upcoming):
        self.readers.append(_Reader(self, upcoming))
        return self.readers[-1]

    def are_sound(self, ranges):
        return self.is_sound


class _Reader:
    def __init__(self, cache, upcoming):
        self.cache, self.upcoming = cache, upcoming
        self.read = []
        self.is_closed = False

    def next_window(self, ranges):
        # It asks for the order anew each time, which it may.
        planned = [found.records().tolist() for found in _first(self.upcoming(), 9)]
        assert planned[0] == ranges.records().tolist()
        if self.cache.errors:
            raise self.cache.errors.pop()
        self.read.append(planned)
        shard, _ = by_shard(ranges, self.cache.sizes)
        return [self.cache.paths[number] for number in shard]

    def close(self):
        self.is_closed = True


def _first(items, count):
    return list(itertools.islice(items, count))


@pytest.fixture
def source(data_dir):
    return tfpipe.TFRecordSource(data_dir, "train", seed=3, window_size=10)


@pytest.fixture
def cache(source, data_dir):
    return StandIn(source.split_index, data_dir)


def through(source, cache):
    known = source.split_index
    return Windows(
        order=source.order,
        rank=0,
        paths=cache.paths,
        origins=[f"s3://bucket/{shard.name}" for shard in known.shards],
        shard_sizes=known.shard_sizes,
        spans=known.spans,
        is_unchecked=known.is_unchecked,
        mtimes=known.mtimes,
        cache=cache,
    )


def test_windows_are_those_of_the_folder_with_the_place_they_come_from(source, cache):
    dataset = through(source, cache).dataset(EpochPosition(epoch=2, start=4), 2)

    plain = source(tfpipe.State(epoch=2, step=4), 2)
    assert dataset.cardinality() == plain.cardinality()
    for window, expected in zip(dataset, plain, strict=True):
        origin = window.pop("origin").numpy().tolist()
        assert list(window) == list(expected)
        for name, value in window.items():
            assert value.numpy().tolist() == expected[name].numpy().tolist(), name
        names = [path.decode().rpartition("/")[2] for path in window["path"].numpy()]
        assert [f"s3://bucket/{name}".encode() for name in names] == origin


def test_a_reader_knows_the_windows_of_later_epochs(source, cache):
    list(through(source, cache).dataset(EpochPosition(), 1))

    windows = [
        source.order.window(0, EpochPosition(epoch), number).ranges.records().tolist()
        for epoch in range(5)
        for number in range(3)
    ]
    (reader,) = cache.readers
    assert reader.read == [windows[number:][:9] for number in range(3)]


def test_each_iterator_has_a_reader_that_is_closed_with_it(source, cache):
    dataset = through(source, cache).dataset(EpochPosition(), None)
    first, second = iter(dataset), iter(dataset)
    next(first), next(second), next(second)

    assert [reader.is_closed for reader in cache.readers] == [False, False]
    del first
    assert [reader.is_closed for reader in cache.readers] == [True, False]
    assert list(dataset.take(1))
    assert [reader.is_closed for reader in cache.readers] == [True, False, True]
    del second


def test_each_iteration_of_a_continued_dataset_has_the_next_epochs(source, cache):
    place = EpochPosition(start=4)
    dataset = through(source, cache).dataset(place, 1, is_continued=True)

    plain = source.continued(tfpipe.State(step=4), 1)
    for _ in range(3):
        numbers, expected = (
            [window["first_record"].numpy().tolist() for window in windows]
            for windows in (dataset, plain)
        )
        assert numbers == expected
    assert [reader.is_closed for reader in cache.readers] == [True] * 3


def test_an_error_keeps_its_text_and_loses_no_window(source, cache):
    dataset = through(source, cache).dataset(EpochPosition(), 1)
    cache.errors.append(tfpipe.errors.RemoteError("s3://bucket/x: no answer in 5 s"))
    iterator = iter(dataset)

    text = r"RemoteError: s3://bucket/x: no answer in 5 s"
    with pytest.raises(tf.errors.UnknownError, match=text):
        next(iterator)

    plain = source(tfpipe.State(), 1)
    for expected in plain:
        found = next(iterator)["first_record"].numpy().tolist()
        assert found == expected["first_record"].numpy().tolist()


def test_a_record_damaged_in_the_store_is_named_by_its_place_there(
    source, cache, copy_dir
):
    shard = copy_dir / source.shards[1].name
    content = bytearray(shard.read_bytes())
    content[4] ^= 1  # the length in the first header
    shard.write_bytes(content)
    cache.paths = StandIn(source.split_index, copy_dir).paths
    cache.is_sound = False
    faults = tfpipe.FaultLog(1)
    windows = through(source, cache).dataset(EpochPosition(), 1)

    records = list(tfpipe.Interleave(faults=faults)(windows))

    # TensorFlow's reader would allocate what the header states.
    assert not any(window["has_right_lengths"] for window in windows)
    assert sum(bool(record["is_real"]) for record in records) == 23
    (fault,) = faults.faults
    assert (fault.shard, fault.byte_offset) == (f"s3://bucket/{shard.name}", 0)


def test_windows_say_whether_the_lengths_on_the_disk_are_right_now(copy_dir):
    source = tfpipe.TFRecordSource(copy_dir, "train", window_size=10)
    windows, order = windows_of(source), source.order
    shard = copy_dir / source.shards[1].name
    content = shard.read_bytes()

    for first_header in (content[:4] + b"X" + content[5:], content):
        shard.write_bytes(first_header)
        for number in range(3):
            window = order.window(0, EpochPosition(), number)
            has_wrong = first_header != content and 8 in window.ranges.records()
            assert windows.features(0, window)["has_right_lengths"] == (not has_wrong)


def test_a_cache_in_front_of_a_folder_changes_no_element(data_dir, tmp_path):
    """Nor does a cache in RAM, which the first epoch fills with what it reads."""
    decode, ram = tfpipe.Map(*DECODE), tfpipe.Cache("ram")
    cached = make(data_dir, decode, ram, shard_cache=tfpipe.ShardCache(tmp_path))
    plain = make(data_dir, decode)

    found, expected = (as_list(p.build(num_epochs=2)) for p in (cached, plain))

    assert found == expected


def test_what_a_cache_cannot_hold_is_refused_when_the_source_is_made(
    data_dir, tmp_path, monkeypatch
):
    monkeypatch.setattr(open_cache, "_MEMORY_BYTES", 10_000)
    small = tfpipe.ShardCache(tmp_path / "small", max_bytes=1000)

    with pytest.raises(ValueError, match=r"max_bytes must be >= \d+, got 1000: 3 win"):
        tfpipe.TFRecordSource(data_dir, shard_cache=small)
