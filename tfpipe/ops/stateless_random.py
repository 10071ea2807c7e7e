"""Random numbers and crop boxes, each drawn from the seed of its example.

In: the seed of an example, or the seeds of a batch. Out: the values that
`tf.random.stateless_uniform` and `tf.image.stateless_sample_distorted_bounding_box`
draw from each seed. These functions take one seed a call; the native ops take a batch
of seeds.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfpipe.native import op as native_op


def uniform(seed: tf.Tensor, count: int, *, crop_op: str) -> tf.Tensor:
    """Draws numbers in [0, 1), as `tf.random.stateless_uniform` does.

    Args:
        seed: int64 [2] or [n, 2].
        count: Number of values to draw from each seed.
        crop_op: "native" or "stock".

    Returns:
        float32 [count] or [n, count].
    """
    if crop_op == "native":
        return native_op.load()[0].tfpipe_uniform(seed=seed, count=count)
    return each(
        # The op within tf.random.stateless_uniform: the function is ten ops, for any
        # range.
        lambda one: tf.raw_ops.StatelessRandomUniform(shape=[count], seed=one),
        [seed],
        tf.TensorSpec([count], tf.float32),
        is_batch=seed.shape.rank > 1,
    )


def random_crop_box(
    height: tf.Tensor,
    width: tf.Tensor,
    seed: tf.Tensor,
    *,
    area: tuple[float, float],
    ratio: tuple[float, float],
    max_attempts: int,
    crop_op: str,
) -> tf.Tensor:
    """Draws crop boxes as `crop.RandomCrop` describes them.

    Args:
        height: int32 [] or [n], height of each image in pixels.
        width: int32 [] or [n], width of each image in pixels.
        seed: int64 [2] or [n, 2].
        area: Smallest and largest share of the image's area.
        ratio: Smallest and largest width / height.
        max_attempts: Number of boxes to try.
        crop_op: "native" or "stock".

    Returns:
        int32 [4] or [n, 4], top, left, height, width in pixels.
    """
    if crop_op == "native":
        return native_op.load()[0].tfpipe_random_window(
            height=height,
            width=width,
            seed=seed,
            area=area,
            ratio=ratio,
            max_attempts=max_attempts,
        )

    def draw(height: tf.Tensor, width: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.stack([height, width, 3]),
            tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
            seed=seed,
            min_object_covered=0.0,
            aspect_ratio_range=ratio,
            area_range=area,
            max_attempts=max_attempts,
        )
        # A slice is four ops.
        return tf.gather(tf.concat([begin, size], 0), [0, 1, 3, 4])

    return each(
        draw,
        [height, width, seed],
        tf.TensorSpec([4], tf.int32),
        is_batch=seed.shape.rank > 1,
    )


def each(
    function: Callable[..., Any], values: Sequence[Any], spec: Any, *, is_batch: bool
) -> Any:
    """Calls a function of one example on an example, or on each example of a batch.

    Args:
        function: Takes as many arguments as there are `values`, tensors or dicts of
            tensors, and returns a tensor or a dict.
        values: The arguments for an example; for a batch each tensor is [n, ...].
        spec: Shapes and dtypes of the function's result for one example.
        is_batch: Whether `values` are those of a batch.

    Returns:
        The function's result; for a batch the results, stacked.
    """
    if not is_batch:
        return function(*values)
    # Other batches run at the same time. Examples in turns keep their pixels in the
    # cache of the processor, and wake no other thread.
    return tf.map_fn(
        lambda one: function(*one),
        tuple(values),
        parallel_iterations=1,
        fn_output_signature=spec,
    )
