import functools

import numpy as np
import PIL.Image
import PIL.ImageEnhance
import PIL.ImageOps
import pytest
import tensorflow as tf

from tests.support.data.trees import make_jpeg
from tfpipe.ops import pil_functions

random = np.random.default_rng(0)
IMAGES = {
    "smooth": tf.image.decode_jpeg(make_jpeg(0)).numpy(),
    "noise": random.integers(0, 256, (33, 47, 3), dtype=np.uint8),
    "narrow": random.integers(100, 103, (20, 31, 3), dtype=np.uint8),
    "flat": np.full((9, 8, 3), 7, np.uint8),
    "black and white": random.integers(0, 2, (17, 16, 3), dtype=np.uint8) * 255,
    "tiny": random.integers(0, 256, (2, 2, 3), dtype=np.uint8),
}


def enhanced(name, factor):
    return lambda image: getattr(PIL.ImageEnhance, name)(image).enhance(factor)


def transformed(*matrix):
    return lambda image: image.transform(
        image.size, PIL.Image.Transform.AFFINE, matrix, fillcolor=(128, 128, 128)
    )


FACTORS = (0.0, 0.1, 0.37, 1.0, 1.72, 1.9)
SHIFTS = (3.0, -5.0, 2.4, -2.6, 400.0, -400.0)
call = functools.partial

# Function, the same in Pillow.
CASES = [
    (pil_functions.autocontrast, PIL.ImageOps.autocontrast),
    (pil_functions.equalize, PIL.ImageOps.equalize),
    (pil_functions.invert, PIL.ImageOps.invert),
    *[
        (call(pil_functions.posterize, bits=b), call(PIL.ImageOps.posterize, bits=b))
        for b in (1, 3, 8)
    ],
    *[
        (
            call(pil_functions.solarize, threshold=t),
            call(PIL.ImageOps.solarize, threshold=t),
        )
        for t in (0, 1, 128, 230, 255, 256)
    ],
    *[
        (call(getattr(pil_functions, name), factor=f), enhanced(name.capitalize(), f))
        for name in ("brightness", "contrast", "color", "sharpness")
        for f in FACTORS
    ],
    *[
        (call(pil_functions.affine, matrix=matrix, fill=128), transformed(*matrix))
        for v in (0.27, -0.3)
        for matrix in ([1, v, 0, 0, 1, 0], [1, 0, 0, v, 1, 0])
    ],
    *[
        (
            call(pil_functions.translate, up=0.0, left=v, fill=128),
            transformed(1, 0, v, 0, 1, 0),
        )
        for v in SHIFTS
    ],
    *[
        (
            call(pil_functions.translate, up=v, left=0.0, fill=128),
            transformed(1, 0, 0, 0, 1, v),
        )
        for v in SHIFTS
    ],
]


@pytest.mark.parametrize("name", IMAGES)
def test_functions_equal_pillow(name):
    image = IMAGES[name]
    for function, pillow in CASES:
        result = function(tf.constant(image))

        assert result.dtype == tf.uint8
        np.testing.assert_array_equal(
            result, pillow(PIL.Image.fromarray(image)), err_msg=str(function)
        )


@pytest.mark.parametrize("degrees", [30.0, -27.0, 3.3, 0.0])
def test_rotate_equals_pillow_but_for_ties_between_two_pixels(degrees):
    for name, image in IMAGES.items():
        result = pil_functions.rotate(tf.constant(image), degrees, fill=128)

        pillow = PIL.Image.fromarray(image).rotate(degrees, fillcolor=(128, 128, 128))
        differs = np.any(result.numpy() != np.asarray(pillow), axis=-1)
        assert differs.mean() <= 0.005, name


@pytest.mark.parametrize(("addition", "expected"), [(0, 127), (99, 226), (127, 254)])
def test_solarize_add_brightens_dark_values(addition, expected):
    image = tf.constant([[[0, 127, 128], [1, 200, 255]]], tf.uint8)

    result = pil_functions.solarize_add(image, addition)

    assert result.numpy().tolist() == [
        [[addition, expected, 128], [1 + addition, 200, 255]]
    ]


@pytest.mark.parametrize(("top", "left"), [(0, 0), (2, 1), (3, 5)])
def test_paste_replaces_a_rectangle(top, left):
    image = IMAGES["noise"][:6, :7]
    patch = np.full((3, 2, 3), 1, np.uint8)

    result = pil_functions.paste(tf.constant(image), tf.constant(patch), top, left)

    expected = image.copy()
    expected[top : top + 3, left : left + 2] = 1
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("half", [0, 1])
def test_functions_do_the_same_in_a_graph_of_unknown_size(half):
    # The last case of each function; a graph of all takes 2 seconds.
    last = {getattr(case[0], "func", case[0]): case for case in CASES}
    cases = list(last.values())[half::2]
    image = IMAGES["smooth"]
    spec = tf.TensorSpec([None, None, 3], tf.uint8)
    dataset = tf.data.Dataset.from_generator(lambda: [image], output_signature=spec)

    dataset = dataset.map(lambda image: tuple(function(image) for function, _ in cases))

    (results,) = dataset.as_numpy_iterator()
    for result, (_, pillow) in zip(results, cases, strict=True):
        np.testing.assert_array_equal(result, pillow(PIL.Image.fromarray(image)))
