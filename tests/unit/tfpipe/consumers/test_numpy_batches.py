"""Pipeline.to_numpy: types, values, epochs, and that nothing is copied unasked."""

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


@pytest.mark.parametrize("is_applied", [True, False])
def test_device_ops_are_applied_on_the_host_if_asked_for(data_dir, is_applied):
    pipeline = tfpipe.imagenet_train(data_dir, image_size=8, batch_size=12)
    batches = pipeline.to_numpy(apply_device_ops=is_applied)

    for epoch in range(2):
        for got, built in zip(batches, pipeline.build(epoch=epoch), strict=True):
            expected = pipeline.on_device(built) if is_applied else built
            np.testing.assert_array_equal(got["image"], expected["image"])
    assert len(batches) == 2


def test_values_are_those_of_build_and_the_next_loop_shuffles_again(data_dir):
    pipeline = tfpipe.imagenet_train(data_dir, image_size=8, batch_size=8, seed=2)
    batches = pipeline.to_numpy(epoch=1, start_step=1)

    for epoch, step in ((1, 1), (2, 0)):
        built = pipeline.build(epoch=epoch, start_step=step)
        for got, expected in zip(batches, built, strict=True):
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


def test_arrays_outlive_the_iterator_and_the_batches_after_them():
    def source(state, num_epochs):
        numbers = tf.data.Dataset.range(6)
        return numbers.map(lambda number: {"image": tf.fill([4096], number)})

    batches = iter(tfpipe.Pipeline(source, []).to_numpy())
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


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_can_be_written_to_if_asked_for(dtype):
    source = tfpipe.SyntheticSource(batch_size=2, steps_per_epoch=2, dtype=dtype)

    first, second = tfpipe.Pipeline(source, []).to_numpy(writable=True)
    kept = second["image"].copy()
    first["image"][...] = 0

    assert first["image"].dtype == np.dtype(DTYPES[dtype])
    assert not first["image"].any()
    assert (second["image"] == kept).all()  # both were one tensor


def test_strings_can_be_written_to_if_asked_for():
    def source(state, num_epochs):
        return tf.data.Dataset.from_tensors({"name": ["a", "bc"], "number": 3})

    (element,) = tfpipe.Pipeline(source, []).to_numpy(writable=True)
    element["name"][0] = b"other"
    element["number"][...] = 4

    assert element["name"].tolist() == [b"other", b"bc"]


def three_steps_an_epoch(state, num_epochs):
    """Epoch e is 3 * e, 3 * e + 1, 3 * e + 2."""
    begin, end = 3 * state.epoch + state.step, 3 * (state.epoch + (num_epochs or 99))
    return tf.data.Dataset.range(begin, end)


@pytest.mark.parametrize(
    ("arguments", "loops"),
    [
        ({}, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
        ({"epoch": 2, "start_step": 1}, [[7, 8], [9, 10, 11], [12, 13, 14]]),
        ({"num_epochs": 2}, [[*range(6)], [*range(6, 12)], [*range(12, 18)]]),
        ({"state": tfpipe.State(epoch=3, step=2)}, [[11], [12, 13, 14], [15, 16, 17]]),
    ],
    ids=str,
)
def test_each_loop_over_the_batches_is_the_next_epoch(arguments, loops):
    batches = tfpipe.Pipeline(three_steps_an_epoch, []).to_numpy(**arguments)

    for loop in loops:
        assert len(batches) == len(loop)
        assert [int(number) for number in batches] == loop


def test_a_loop_that_is_broken_off_is_followed_by_the_next_epoch():
    pipeline = tfpipe.Pipeline(three_steps_an_epoch, [])
    one, endless = pipeline.to_numpy(), pipeline.to_numpy(num_epochs=None)

    assert [next(iter(one)) for _ in range(3)] == [0, 3, 6]
    assert [next(iter(endless)) for _ in range(3)] == [0, 3, 6]


def test_batches_without_a_length_say_why():
    def source(state, num_epochs):
        return tf.data.Dataset.range(3).filter(lambda number: number > 1)

    synthetic = tfpipe.Pipeline(tfpipe.SyntheticSource(batch_size=2), [])
    with pytest.raises(TypeError, match="num_epochs=None, which is endless"):
        len(synthetic.to_numpy(num_epochs=None))
    with pytest.raises(TypeError, match=r"unknown cardinality. Put AssertCardinality"):
        len(tfpipe.Pipeline(source, []).to_numpy())
