"""After an error that is no damage, the next call gives the records of the error.

The rule holds for errors of the place of the records, of the shard cache, and of files
that TensorFlow reads. Batches must not span windows. An error that stays gives way to
the next window.
"""

import errno
import os

import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.presets import preset_over
from tests.unit.tfpipe.reading.test_read_ahead import SMALL, assert_equal
from tfpipe.reading import windows
from tfpipe.shard_cache.open_cache import OpenCache
from tfpipe.stages import basic, stand_in

EMFILE = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
CUT_OFF = tfpipe.errors.RemoteError("The server broke off the connection.")


def failing_at(monkeypatch, owner, name, calls, error):
    """Lets some calls of a function fail, by their numbers."""
    function, number = getattr(owner, name), iter(range(10**6))

    def fail_at_times(*args, **options):
        if next(number) in calls:
            raise error
        return function(*args, **options)

    monkeypatch.setattr(owner, name, fail_at_times)


def read_on(dataset):
    """The batches of a dataset, and the number of errors; each error is asked again."""
    batches, num_errors = [], 0
    iterator = dataset.as_numpy_iterator()
    while num_errors < 10:
        try:
            batches.append(next(iterator))
        except StopIteration:
            break
        except tf.errors.OpError:
            num_errors += 1
    return batches, num_errors


@needs_native
@pytest.mark.parametrize("reading", ["native", "tensorflow"])
@pytest.mark.parametrize("is_cached", [False, True], ids=["local", "cached"])
def test_a_window_that_failed_comes_again(
    data_dir, tmp_path, monkeypatch, reading, is_cached
):
    options = SMALL | {"window_size": 8, "reading": reading, "with_record_id": True}
    if is_cached:
        options["shard_cache"] = tfpipe.ShardCache(tmp_path)
        where = (OpenCache, "local_paths", CUT_OFF)
    else:
        where = (windows.Windows, "features", EMFILE)
    dataset = preset_over(tfpipe.imagenet_train, data_dir, **options).build(epoch=1)
    expected = list(dataset.as_numpy_iterator())
    for calls in ({0}, {1}, {2}, {1, 2, 4}):
        with monkeypatch.context() as patched:
            failing_at(patched, *where[:2], calls, where[2])
            batches, num_errors = read_on(dataset)
        assert num_errors == len(calls), calls
        assert_equal(batches, expected)


@pytest.mark.parametrize("is_cached", [False, True], ids=["local", "cached"])
def test_a_window_that_tensorflow_cannot_read_comes_again(
    data_dir, tmp_path, monkeypatch, is_cached
):
    options = SMALL | {"window_size": 8, "reading": "tensorflow"}
    if is_cached:
        options["shard_cache"] = tfpipe.ShardCache(tmp_path / "cache")
    pipeline = preset_over(tfpipe.imagenet_train, data_dir, **options)
    expected = list(pipeline.build(epoch=1).as_numpy_iterator())
    with monkeypatch.context() as patched:
        # TensorFlow finds no record in a window: each is read alone, and fails once.
        patched.setattr(windows.Windows, "has_right_lengths", lambda *_: False)
        failing_at(patched, stand_in, "_read_records", {1, 3}, EMFILE)
        batches, num_errors = read_on(pipeline.build(epoch=1))
    assert num_errors == 2
    assert_equal(batches, expected)


@needs_native
@pytest.mark.parametrize("reading", ["native", "tensorflow"])
@pytest.mark.parametrize("is_lost", [False, True], ids=["damaged", "lost"])
def test_a_window_that_stays_bad_gives_way_to_the_next(
    copy_dir, monkeypatch, reading, is_lost
):
    monkeypatch.setattr(basic, "MOST_TRIES", 2)
    options = SMALL | {"window_size": 8, "reading": reading, "shuffle": "none"}
    pipeline = preset_over(tfpipe.imagenet_train, copy_dir, **options)
    expected = list(pipeline.build(epoch=1).as_numpy_iterator())
    shard = copy_dir / pipeline.source.index.splits["train"][0].name
    content = bytearray(shard.read_bytes())
    content[-100] ^= 1
    shard.write_bytes(content)
    if is_lost:
        shard.unlink()

    batches, num_errors = read_on(pipeline.build(epoch=1))

    assert num_errors
    assert len(batches) < len(expected)
    assert_equal(batches[-1:], expected[-1:])


@pytest.mark.parametrize("is_continued", [False, True])
def test_no_epoch_ends_as_if_a_window_that_stayed_bad_had_been_read(
    copy_dir, monkeypatch, is_continued
):
    monkeypatch.setattr(basic, "MOST_TRIES", 2)
    source = tfpipe.TFRecordSource(
        copy_dir, "train", window_size=8, batch_size=4, shuffle="none"
    )
    read = source.continued if is_continued else source
    iterator = iter(read(tfpipe.State(), 1))
    (copy_dir / source.shards[0].name).unlink()

    def fails(message):
        for _ in range(2):
            with pytest.raises(tf.errors.UnknownError, match=message):
                next(iterator)

    fails("No such file")
    assert [next(iterator)["first_record"][0] for _ in range(2)] == [8, 16]
    fails("got windows that failed 2 times")
