import numpy as np
import pytest
import tensorflow as tf

from tfpipe.native import op, run

pytestmark = pytest.mark.skipif(not run.can_run(), reason="the native op is not built")

# More elements than TensorFlow makes a constant of: a function captures the tensor.
_CAPTURED = tf.random.stateless_uniform([300], [1, 2])


def _doubled(batch):
    image = tf.debugging.assert_non_negative(batch["image"], message="negative")
    with tf.control_dependencies([image]):
        return {"image": 2 * batch["image"], "sum": tf.reduce_sum(_CAPTURED)}


def _replaced(batch, results):
    assert set(results) == {"image", "sum"}
    assert results["image"].dtype == tf.int32
    return {"image": tf.zeros_like(batch["image"]), "sum": _CAPTURED[7]}


def _batches(*rows):
    return tf.data.Dataset.from_tensor_slices({"image": tf.constant(rows)})


def test_results_are_those_of_the_function_where_it_succeeds() -> None:
    doubled = run.graph(_doubled)
    dataset = _batches([1, 2], [-3, 4], [5, 6]).map(
        lambda batch: run.run(doubled, batch, otherwise=_replaced)
    )

    results = [
        (element["image"].tolist(), element["sum"])
        for element in dataset.as_numpy_iterator()
    ]

    total = np.float32(tf.reduce_sum(_CAPTURED))
    assert results == [
        ([2, 4], total),
        ([0, 0], _CAPTURED[7].numpy()),
        ([10, 12], total),
    ]
    assert dataset.element_spec["image"].shape == [2]


def test_a_failure_is_raised_without_another_function() -> None:
    doubled = run.graph(_doubled)
    dataset = _batches([1, 2], [-3, 4]).map(lambda batch: run.run(doubled, batch))

    with pytest.raises(tf.errors.InvalidArgumentError, match="negative"):
        list(dataset)


def test_a_failure_of_the_other_function_is_raised() -> None:
    doubled = run.graph(_doubled)

    def fail(batch, results):
        with tf.control_dependencies([tf.debugging.Assert(False, ["second"])]):
            return _replaced(batch, results)

    dataset = _batches([-3, 4]).map(lambda b: run.run(doubled, b, otherwise=fail))

    with pytest.raises(tf.errors.InvalidArgumentError, match="second"):
        list(dataset)


def test_many_calls_at_once_and_readers_that_go() -> None:
    """A reader that goes cancels what runs: nothing crashes, nothing is replaced."""
    doubled = run.graph(_doubled)
    dataset = (
        tf.data.Dataset.from_tensors({"image": tf.constant([1, 2])})
        .repeat(500)
        .map(
            lambda batch: run.run(doubled, batch, otherwise=_replaced),
            num_parallel_calls=8,
        )
    )

    for count in (1, 3, 500):
        taken = list(dataset.take(count).as_numpy_iterator())
        assert [element["image"].tolist() for element in taken] == [[2, 4]] * count


def test_without_the_native_op_the_function_is_called(monkeypatch) -> None:
    monkeypatch.setattr(op, "load", lambda: (None, "it is not built"))
    doubled = run.graph(_doubled)

    assert run.run(doubled, {"image": tf.constant([4])})["image"].numpy().tolist() == [
        8
    ]
    with pytest.raises(RuntimeError, match="it is not built"):
        run.run(doubled, {"image": tf.constant([4])}, otherwise=_replaced)
