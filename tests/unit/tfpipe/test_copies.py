"""Copies of a pipeline, and of the state of an iterator, go on as the original does."""

import copy
import pickle
import time

import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.presets import preset_over


def ids(batches):
    return [batch["record_id"].tolist() for batch in batches]


@pytest.mark.parametrize("kind", ["skip", "ram", "shard_cache"])
def test_pickles_deep_copies_and_checkpoints(data_dir, tmp_path, kind):
    options = {
        "skip": {"on_error": "skip"},
        "ram": {"cache": tfpipe.Cache("ram")},
        "shard_cache": {"shard_cache": tfpipe.ShardCache(tmp_path / "cache")},
    }[kind]
    small = {"image_size": 8, "batch_size": 4, "window_size": 8, "with_record_id": True}
    pipeline = preset_over(tfpipe.imagenet_train, data_dir, **small, **options)
    dataset = pipeline.build()
    iterator = iter(dataset)
    first = ids([{"record_id": next(iterator)["record_id"].numpy()}])
    path = save(iterator, tmp_path / "checkpoint")
    rest = ids(iterator_batches(iterator))

    again = iter(dataset)
    tf.train.Checkpoint(iterator=again).restore(path)
    assert ids(iterator_batches(again)) == rest
    for other in (pickle.loads(pickle.dumps(pipeline)), copy.deepcopy(pipeline)):
        assert other == pipeline
        assert other.fingerprint == pipeline.fingerprint
        assert ids(other.build().as_numpy_iterator()) == first + rest
    batches = pipeline.to_numpy()
    for other in (pickle.loads(pickle.dumps(batches)), copy.deepcopy(batches)):
        assert len(other) == len(batches)
        assert ids(other) == first + rest


def save(iterator, path):
    """Saves the place of an iterator, through a shard cache once all windows are read.

    Windows are read ahead by a thread, and TensorFlow cannot save an open window.
    """
    end = time.monotonic() + 60
    while True:
        try:
            return tf.train.Checkpoint(iterator=iterator).save(path)
        except tf.errors.UnimplementedError:
            assert time.monotonic() < end


def iterator_batches(iterator):
    return ({"record_id": batch["record_id"].numpy()} for batch in iterator)
