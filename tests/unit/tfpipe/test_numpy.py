"""Pipeline.to_numpy: types, values, and that nothing is copied."""

import gc

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tfpipe

DTYPES = {
    "uint8": np.uint8,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
def test_batches_are_dicts_of_arrays_that_cannot_be_written_to(data_dir, dtype):
    pipeline = tfpipe.imagenet_eval(
        data_dir, image_size=8, batch_size=4, dtype=dtype, with_record_id=True
    )

    first, last = pipeline.to_numpy()

    assert {name: (array.dtype, array.shape) for name, array in first.items()} == {
        "image": (np.dtype(DTYPES[dtype]), (4, 8, 8, 3)),
        "label": (np.int32, (4,)),
        "record_id": (np.int64, (4,)),
        "mask": (np.float32, (4,)),
    }
    assert last["mask"].tolist() == [1, 1, 1, 0]
    for array in first.values():
        assert type(array) is np.ndarray
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_values_are_those_of_build(data_dir):
    pipeline = tfpipe.imagenet_train(data_dir, image_size=8, batch_size=8, seed=2)

    for got, expected in zip(
        pipeline.to_numpy(epoch=1, start_step=1),
        pipeline.build(epoch=1, start_step=1),
        strict=True,
    ):
        for name, tensor in expected.items():
            assert got[name].tolist() == tensor.numpy().tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_the_memory_of_the_tensors(dtype):
    """The source gives one tensor again and again: a copy would be other memory."""
    source = tfpipe.SyntheticSource(batch_size=2, image_size=64, dtype=dtype)

    first, second = tfpipe.Pipeline(source, []).to_numpy(start_step=998)

    assert first["image"] is not second["image"]
    assert first["image"].ctypes.data == second["image"].ctypes.data
    assert not first["image"].flags.owndata


def test_arrays_outlive_the_iterator_and_the_batches_after_them(data_dir):
    pipeline = tfpipe.imagenet_train(data_dir, image_size=8, batch_size=4, seed=2)
    batches = pipeline.to_numpy()
    first = next(batches)
    kept = first["image"].copy()

    others = list(batches)
    del batches
    gc.collect()

    assert first["image"].tolist() == kept.tolist()
    assert all(other["image"].tolist() != kept.tolist() for other in others)


def test_strings_and_scalars():
    def source(state, num_epochs):
        return tf.data.Dataset.from_tensors({"name": ["a", "bc"], "number": 3})

    (element,) = tfpipe.Pipeline(source, []).to_numpy()

    assert element["name"].tolist() == [b"a", b"bc"]
    assert element["number"] == 3
    assert isinstance(element["number"], np.int32)


def test_wrong_arguments_are_those_of_build():
    pipeline = tfpipe.Pipeline(tfpipe.SyntheticSource(batch_size=2), [])

    with pytest.raises(ValueError, match="num_epochs must be a whole number >= 1"):
        pipeline.to_numpy(num_epochs=0)
