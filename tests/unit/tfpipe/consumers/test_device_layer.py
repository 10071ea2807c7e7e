"""Pipeline.device_layer: a Keras layer with the values of `on_device`."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tfpipe

SIZE = 4


def make(*ops, dtype="uint8"):
    source = tfpipe.SyntheticSource(
        batch_size=2, steps_per_epoch=1, image_size=SIZE, dtype=dtype
    )
    return tfpipe.Pipeline(source, [], device_ops=ops)


@pytest.fixture(scope="module", autouse=True)
def _keras():
    make().device_layer()  # Keras is imported once


@pytest.mark.parametrize(
    "ops",
    [
        [tfpipe.Normalize()],
        [tfpipe.Normalize.caffe()],
        [tfpipe.Normalize.inception(), tfpipe.ToNCHW()],
        [tfpipe.Normalize(), tfpipe.Cast("bfloat16")],
        [tfpipe.ToNCHW()],
        [],
    ],
    ids=str,
)
def test_layer_gives_what_the_training_step_would(ops):
    pipeline = make(*ops)
    batch = next(iter(pipeline.build()))
    expected = pipeline.on_device(batch)["image"]

    made = pipeline.device_layer()(batch["image"])

    assert made.dtype == expected.dtype
    np.testing.assert_allclose(
        tf.cast(made, tf.float32), tf.cast(expected, tf.float32), rtol=1e-5, atol=1e-5
    )


@dataclasses.dataclass(frozen=True)
class Own:
    """An op of a user."""

    def __call__(self, batch):
        return batch


def test_op_without_a_layer_is_refused_with_the_remedy():
    with pytest.raises(
        ValueError, match=r'cannot express Own\(\) .* for_keras\(device_ops="apply"\)'
    ):
        make(tfpipe.Normalize(), Own()).device_layer()
