"""tfpipe.profiling.dataset_nodes: how a stage runs, and what AUTOTUNE chose."""

import dataclasses

import pytest
import tensorflow as tf

import tfpipe
from tests.support.data.artificial import Busy, Sleep, keep_even
from tfpipe.profiling import dataset_nodes


def chosen_iterator(**options):
    dataset = tf.data.Dataset.range(100).map(Busy(1), num_parallel_calls=-1)
    options_ = tf.data.Options()
    for name, value in options.items():
        setattr(options_.autotune, name, value)
    iterator = iter(dataset.prefetch(3).with_options(options_))
    next(iterator)
    return iterator


@pytest.mark.skipif(
    not dataset_nodes.can_tell_buffers(),
    reason="TensorFlow 2.16 has no get_model_proto",
)
def test_chosen_parallelism_is_told():
    chosen = dataset_nodes.chosen_parallelism(chosen_iterator())

    knobs = {name.partition("(")[0]: values for name, values in chosen.items()}
    assert knobs["Prefetch"]["buffer_size"] == 3
    assert knobs["ParallelMapV2"]["parallelism"] >= 1
    with pytest.raises(ValueError, match="autotune"):
        dataset_nodes.chosen_parallelism(chosen_iterator(enabled=False))


def test_chosen_parallelism_says_which_tensorflow_tells(monkeypatch):
    monkeypatch.delattr(tf.data.experimental, "get_model_proto", raising=False)

    with pytest.raises(NotImplementedError, match=r"from TensorFlow 2\.17 on, this is"):
        dataset_nodes.chosen_parallelism(chosen_iterator())


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (tfpipe.Map(Busy(1), num_parallel_calls=3), (3, "parallel")),
        (tfpipe.Batch(2), (1, "serial")),
        (tfpipe.Prefetch(buffer_size=2), (1, "buffered")),
        (lambda d: d.map(Busy(1), num_parallel_calls=5), (5, "parallel")),
        (lambda d: d.map(Busy(1)), (6, "parallel")),  # tf.data makes it parallel
        (lambda d: d.map(Sleep(1)), (1, "serial")),
        (lambda d: d.map(Sleep(1)).prefetch(1), (1, "buffered")),
        (keep_even, (1, "serial")),
    ],
)
def test_a_stage_tells_how_it_runs(stage, expected):
    before = tf.data.Dataset.range(10)

    added = dataset_nodes.added(before, stage(before))
    how = dataset_nodes.concurrency(stage, added, num_threads=6)

    assert dataclasses.astuple(how) == expected
