import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tests.support import damage
from tests.support.native_op import native_op, needs_native  # noqa: F401
from tests.support.presets import preset_over
from tfpipe.shards import records

pytestmark = needs_native

SMALL = {"image_size": 8, "batch_size": 4, "block_length": 3, "window_size": 10}


def both(preset, folder, **options):
    """The same pipeline, its records read by the native op and by TensorFlow."""
    return [
        preset_over(preset, folder, reading=reading, **(SMALL | options))
        for reading in ("native", "tensorflow")
    ]


def batches(pipeline, **build):
    return [
        {name: value.numpy() for name, value in batch.items()}
        for batch in pipeline.build(**build)
    ]


def assert_equal(found, expected, rows=None):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            some = ... if rows is None else rows(other)
            np.testing.assert_array_equal(one[name][some], other[name][some], name)


@pytest.mark.parametrize(
    ("preset", "options", "build"),
    [
        (tfpipe.imagenet_train, {}, {"epoch": 1, "num_epochs": 2, "start_step": 1}),
        (
            tfpipe.imagenet_train,
            {"shuffle": "full", "rank": 1, "num_ranks": 2, "dtype": "float32"},
            {},
        ),
        (tfpipe.imagenet_eval, {"batch_size": 7, "rank": 1, "num_ranks": 2}, {}),
    ],
)
def test_epochs_are_equal(data_dir, preset, options, build):
    native, stock = both(preset, data_dir, with_record_id=True, **options)

    assert native.paths["reading"].value == "native"
    assert_equal(batches(native, **build), batches(stock, **build))


def test_a_subset_is_equal(data_dir, tmp_path):
    numbers = np.array([3, 4, 11, 12, 13, 20, 22, 23])
    source = tfpipe.TFRecordSource(data_dir, "train")
    subset = tfpipe.Subset.of_records(source.index, "train", numbers)
    native, stock = both(tfpipe.imagenet_train, data_dir, subset=subset)

    assert_equal(batches(native), batches(stock))
