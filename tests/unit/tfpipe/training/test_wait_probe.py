"""WaitProbe: passes the dataset on and adds up its reader's waits."""

import gc

import pytest
import tensorflow as tf

from tfpipe.training.callbacks import WaitProbe


def numbers():
    return tf.data.Dataset.range(10).map(lambda x: {"x": x}, num_parallel_calls=2)


def test_probe_passes_every_batch_on_and_asks_for_none_ahead():
    probe = WaitProbe()

    watched = probe.watch(numbers())

    gc.collect()  # nothing else holds the dataset
    assert watched.element_spec == {"x": tf.TensorSpec([], tf.int64)}
    assert watched.cardinality() == 10
    iterator = iter(watched)
    assert [int(next(iterator)["x"]) for _ in range(4)] == [0, 1, 2, 3]
    assert probe.take()[0] == 4
    assert [int(batch["x"]) for batch in iterator] == [4, 5, 6, 7, 8, 9]
    assert probe.take()[0] == 6
    assert probe.take() == (0, 0.0)


@pytest.mark.parametrize(
    "dataset",
    [
        tf.data.Dataset.from_tensors(({"b": 1, "a": (2.0, "c")}, [[3]])),
        tf.data.Dataset.from_tensors((tf.ragged.constant([[1], [2, 3]]), 4)),
        tf.data.Dataset.from_tensors(tf.sparse.eye(2)),
        tf.data.Dataset.range(5).batch(2),
    ],
    ids=["nested", "ragged", "sparse", "open shape"],
)
def test_probe_keeps_the_form_of_batches(dataset):
    probe = WaitProbe()

    watched = probe.watch(dataset)

    assert watched.element_spec == dataset.element_spec
    pairs = list(zip(watched, dataset, strict=True))
    assert probe.take()[0] == len(pairs) > 0
    for passed_on, batch in pairs:
        flat = (tf.nest.flatten(x, expand_composites=True) for x in (passed_on, batch))
        for a, b in zip(*flat, strict=True):
            assert tf.reduce_all(a == b)


def test_probe_measures_from_the_request_until_the_batch_is_there():
    now = tf.Variable(1000.0, dtype=tf.float64)

    def take_time(number):
        now.assign_add(tf.cast(number, tf.float64), read_value=False)
        return number

    options = tf.data.Options()
    options.experimental_optimization.map_parallelization = False
    dataset = tf.data.Dataset.range(2, 5).map(take_time).with_options(options)
    probe = WaitProbe(clock=now.read_value)

    batches = iter(probe.watch(dataset))

    next(batches)
    assert probe.take() == (1, 2.0)
    now.assign_add(100.0)  # a training step
    assert [int(batch) for batch in batches] == [3, 4]
    assert probe.take() == (2, 7.0)
