import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tfpipe.cache import cacheable
from tfpipe.stages.interleave import RECORD_SPEC

PARSE = tfpipe.Parse(label_base=1)


def parse_little(example):
    """Gives the features that `Parse` gives, by a graph of a tenth of its size."""
    size = tf.strings.length(example["record"])
    return {name: example[name] for name in ("record_id", "is_real", "epoch_seed")} | {
        "encoded": example["record"],
        "seed": tf.stack([example["epoch_seed"], example["record_id"]]),
        "mask": tf.cast(example["is_real"], tf.float32),
        **{"height": size, "width": size, "label": size},
    }


def weigh(example):
    return example | {"weight": 2.0 - example["mask"]}


def cut_mask(example):
    return example | {"mask": example["mask"] * 0.5}


def renumber(example):
    return example | {"record_id": example["record_id"] + 1}


def reseed(example):
    return example | {"seed": example["seed"] + 1}


def swap_seed(example):
    return example | {"seed": tf.reverse(example["seed"], [0])}


def stack_seed_anew(example):
    return example | {"seed": tf.stack(tf.unstack(example["seed"])[::-1])}


GENERATOR = tf.random.Generator.from_seed(1)


def draw_with_generator(example):
    return example | {"noise": GENERATOR.normal([])}


def draw_in_numpy(example):
    noise = tf.numpy_function(np.random.rand, [], tf.float64)
    return example | {"noise": tf.ensure_shape(noise, [])}


def draw_in_stateless_numpy(example):
    noise = tf.numpy_function(np.random.rand, [], tf.float64, stateful=False)
    return example | {"noise": tf.ensure_shape(noise, [])}


def draw_in_python(example):
    noise = tf.py_function(lambda: np.random.rand(), [], tf.float64)
    return example | {"noise": tf.ensure_shape(noise, [])}


def draw_within_a_condition(example):
    noise = tf.cond(
        example["height"] > 5,
        lambda: tf.map_fn(lambda x: x + tf.random.normal([]), tf.zeros([3])),
        lambda: tf.zeros([3]),
    )
    return example | {"noise": noise}


COUNTER = tf.Variable(0.0)


def read_a_variable(example):
    return example | {"count": COUNTER + 1.0}


def tell_the_time(example):
    return example | {"time": tf.timestamp()}


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (weigh, "computes from mask or is_real"),
        (cut_mask, "changes mask"),
        (renumber, "changes record_id"),
        (reseed, "changes seed"),
        (swap_seed, "changes seed"),
        (stack_seed_anew, "changes seed"),
        (draw_with_generator, "which uses .*RngReadAndSkip"),
        (draw_in_numpy, "uses PyFunc"),
        (draw_in_stateless_numpy, "uses PyFuncStateless"),
        (draw_in_python, "uses EagerPyFunc"),
        (draw_within_a_condition, "which uses RandomStandardNormal"),
        (read_a_variable, "which uses ReadVariableOp"),
        (tell_the_time, "which uses Timestamp"),
    ],
)
def test_op_whose_result_is_not_of_the_record_alone_is_refused(op, message):
    with pytest.raises(ValueError, match=message) as caught:
        cacheable.repeatable([parse_little, op], RECORD_SPEC)

    assert op.__name__ in str(caught.value)


@pytest.mark.parametrize("name", ["is_real", "epoch_seed"])
def test_change_of_what_the_window_says_is_refused(name):
    def change(example):
        value = example[name]
        return example | {name: tf.logical_not(value) if name == "is_real" else -value}

    with pytest.raises(ValueError, match=f"changes {name}"):
        cacheable.repeatable([change], RECORD_SPEC)


def pass_on(example):
    mask = tf.cast(tf.identity(example["mask"]), tf.float16)
    record_id = tf.ensure_shape(tf.identity(example["record_id"]), [])
    return example | {"mask": mask, "record_id": record_id}


def check(example):
    tf.debugging.assert_positive(example["height"])
    label = tf.cond(example["label"] > 3, lambda: 1, lambda: 2)
    return example | {"label": label}


@pytest.mark.parametrize("op", [pass_on, check, tfpipe.OneHot(1000)])
def test_op_that_makes_the_same_each_time_may_stand_before_a_cache(op):
    made = cacheable.repeatable([parse_little, op], RECORD_SPEC)

    assert {"record_id", "seed", "mask", "label"} <= set(made)


@dataclasses.dataclass(frozen=True)
class Measure:
    """Calls Python, which gives the same for the same image."""

    repeatable = True

    def __call__(self, example):
        size = tf.numpy_function(len, [example["encoded"]], tf.int64)
        return example | {"num_bytes": tf.ensure_shape(size, [])}


def test_op_may_say_itself_that_it_is_repeatable(data_dir):
    source = tfpipe.TFRecordSource(data_dir, "train", shuffle="none")
    stages = [tfpipe.Interleave(), tfpipe.Map(PARSE, Measure()), tfpipe.Cache("ram")]
    pipeline = tfpipe.Pipeline(source, stages)

    sizes = [
        [int(example["num_bytes"]) for example in pipeline.build(epoch=epoch)]
        for epoch in range(2)
    ]

    assert sizes[0] == sizes[1]
    assert min(sizes[0]) > 100
