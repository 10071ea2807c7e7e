"""Random numbers and windows, each from a seed of its own: of an example or a batch.

In: the seeds. Out: what `tf.random.stateless_uniform` and
`tf.image.stateless_sample_distorted_bounding_box` draw from each. Those take one seed a
call; the native ops take those of a batch.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from tfpipe import native


def uniform(seed: tf.Tensor, count: int, *, crop_op: str) -> tf.Tensor:
    """Numbers from 0 to 1, the end left out.

    Args:
        seed: int64 [2] or [n, 2].
        count: How many from each seed.
        crop_op: "native" or "stock".

    Returns:
        float32 [count] or [n, count].
    """
    if crop_op == "native":
        return native.load()[0].tfpipe_uniform(seed=seed, count=count)
    return each(
        lambda one: tf.random.stateless_uniform([count], one),
        [seed],
        tf.TensorSpec([count], tf.float32),
        is_batch=seed.shape.rank > 1,
    )


def random_window(
    height: tf.Tensor,
    width: tf.Tensor,
    seed: tf.Tensor,
    *,
    area: tuple[float, float],
    ratio: tuple[float, float],
    max_attempts: int,
    crop_op: str,
) -> tf.Tensor:
    """Windows as `crop.RandomCrop` describes them, of whose arguments the last are.

    Args:
        height: int32 [] or [n], of an image in pixels.
        width: int32 [] or [n].
        seed: int64 [2] or [n, 2].
        area: Smallest and largest share of the image's area.
        ratio: Smallest and largest width / height.
        max_attempts: Windows to try.
        crop_op: "native" or "stock".

    Returns:
        int32 [4] or [n, 4], top, left, height, width in pixels.
    """
    if crop_op == "native":
        return native.load()[0].tfpipe_random_window(
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
        return tf.concat([begin[:2], size[:2]], 0)

    return each(
        draw,
        [height, width, seed],
        tf.TensorSpec([4], tf.int32),
        is_batch=seed.shape.rank > 1,
    )


def each(
    function: Callable[..., tf.Tensor],
    values: Sequence[tf.Tensor],
    spec: tf.TensorSpec,
    *,
    is_batch: bool,
) -> tf.Tensor:
    """What a function that knows single examples gives, for one or for each of a batch.

    Args:
        function: Callable of as many tensors as there are `values`.
        values: Of an example, or [n, ...] each.
        spec: Of the result for an example.
        is_batch: Which of both they are.
    """
    if not is_batch:
        return function(*values)
    return tf.map_fn(
        lambda one: function(*one), tuple(values), fn_output_signature=spec
    )
