"""Graphs are made once for ops that cannot change, and in every build for others."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tfpipe.stages import interleave, traced


def test_a_function_is_traced_once_for_equal_values():
    calls = []

    def add(number, tensor):
        calls.append(number)
        return tensor + number

    results = [
        traced.traced(add, number)(tf.constant(1)).numpy() for number in (2, 2, 3)
    ]

    assert results == [3, 3, 4]
    assert calls == [2, 3]


def test_a_function_is_traced_for_every_kind_of_tensor():
    def double(tensor):
        return {"doubled": tensor["x"] * 2}

    for value in (tf.constant([1, 2]), tf.constant([1.5])):
        result = traced.traced(double)({"x": value})["doubled"]
        assert result.dtype == value.dtype
        assert result.numpy().tolist() == (2 * value.numpy()).tolist()


def test_only_ops_of_tfpipe_are_known_to_stay_the_same():
    ours = (tfpipe.Parse(label_base=1), tfpipe.Normalize(mean=[1, 2, 3]))

    assert traced.is_fixed(ours)
    assert {ours: 1}[tfpipe.Parse(label_base=1), tfpipe.Normalize(mean=[1, 2, 3])] == 1
    assert traced.is_fixed([tfpipe.Reseed(tfpipe.Flip(), 1)])
    assert not traced.is_fixed([tfpipe.Flip(), tf.identity])
    assert not traced.is_fixed([tfpipe.Reseed(dict, 1)])
    assert traced.is_fixed([tfpipe.EachExample(tfpipe.Flip(), tfpipe.ToNCHW())])
    assert not traced.is_fixed([tfpipe.EachExample(tfpipe.Flip(), dict)])


def test_an_op_of_a_user_may_change_between_two_builds():
    offsets = [1]

    def add(example):
        return example | {"x": example["record_id"] + offsets[0]}

    log = tfpipe.FaultLog(1, locate=lambda number: ("shard", number))
    stage = tfpipe.Map(add, faults=log)
    numbers = tf.data.Dataset.range(3).map(lambda x: {"record_id": x})

    before = [int(example["x"]) for example in stage(numbers)]
    offsets[0] = 10
    after = [int(example["x"]) for example in stage(numbers)]

    assert (before, after) == ([1, 2, 3], [10, 11, 12])


@dataclasses.dataclass(frozen=True)
class DoubleIfOdd:
    """An op of a user with control flow of Python, which AutoGraph makes a graph of."""

    def __call__(self, example):
        if example["x"] % 2 == 1:
            example = example | {"x": 2 * example["x"]}
        return example


def test_autograph_converts_the_ops_of_users_alone(monkeypatch):
    statuses = set()

    def note(op, example):
        statuses.add(tf.__internal__.autograph.control_status_ctx().status.name)
        return example

    monkeypatch.setattr(tfpipe.Flip, "__call__", note)
    stage = tfpipe.Map(DoubleIfOdd(), tfpipe.Flip())
    numbers = tf.data.Dataset.range(4).map(lambda x: {"x": x})

    assert [int(example["x"]) for example in stage(numbers)] == [0, 2, 2, 6]
    assert statuses == {"DISABLED"}


@pytest.mark.parametrize("is_batched", [False, True])
def test_autograph_converts_the_ops_of_users_beside_a_log(is_batched):
    log = tfpipe.FaultLog(1, locate=lambda number: ("shard", number))
    op = AddToTheSmall() if is_batched else DoubleIfOdd()
    examples = tf.data.Dataset.range(4).map(lambda x: {"x": x, "record_id": x})
    if is_batched:
        examples = examples.batch(2)

    made = tfpipe.Map(op, faults=log)(examples)

    found = np.concatenate([np.ravel(example["x"]) for example in made])
    assert found.tolist() == ([10, 11, 2, 3] if is_batched else [0, 2, 2, 6])


@dataclasses.dataclass(frozen=True)
class AddToTheSmall:
    """The same for batches."""

    def __call__(self, batch):
        if tf.reduce_max(batch["x"]) < 2:
            batch = batch | {"x": batch["x"] + 10}
        return batch


def test_a_second_build_makes_no_graph_of_windows_again(data_dir, monkeypatch):
    calls = []

    def count(name):
        real = getattr(interleave, name)

        def counted(*values):
            calls.append(name)
            return real(*values)

        monkeypatch.setattr(interleave, name, counted)

    count("read_extents")
    count("_completed")
    source = tfpipe.TFRecordSource(data_dir, "train")
    pipeline = tfpipe.Pipeline(source, [tfpipe.Interleave()])

    for epoch in range(3):
        assert len(list(pipeline.build(epoch=epoch))) == 24
    assert calls == ["read_extents", "_completed"]
