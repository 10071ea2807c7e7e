import numpy as np
import pytest
import tensorflow as tf

import tfpipe


def make_batch(num_images, *, height=32, width=48):
    """Images of one color each: image i is (5 * i, 20, 200)."""
    pixels = np.empty((num_images, height, width, 3), np.uint8)
    pixels[:] = [[[[5 * number, 20, 200]]] for number in range(num_images)]
    return {"image": pixels, "label": np.arange(num_images)}


@pytest.mark.parametrize(
    ("num_images", "options", "columns", "rows"),
    [
        (5, {}, 5, 1),
        (16, {}, 8, 2),
        (5, {"num_columns": 2}, 2, 3),
        (20, {"max_images": 4}, 4, 1),
        (40, {}, 8, 4),  # 32 at most
        (1, {}, 1, 1),
    ],
)
def test_sheet_has_room_for_rows_of_captioned_images(
    num_images, options, columns, rows
):
    sheet = tfpipe.contact_sheet(make_batch(num_images), **options)

    assert sheet.size == (columns * (48 + 4) + 4, rows * (32 + 4 + 14) + 4)


def test_images_are_on_the_sheet_in_order():
    sheet = tfpipe.contact_sheet(make_batch(3), num_columns=2)

    assert sheet.getpixel((4, 4)) == (0, 20, 200)
    assert sheet.getpixel((4 + 52 + 47, 4 + 31)) == (5, 20, 200)
    assert sheet.getpixel((4, 4 + 50)) == (10, 20, 200)
    assert sheet.getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_normalized_batch_looks_like_the_pixels(dtype):
    batch = make_batch(4)
    normalized = tfpipe.Normalize()({"image": tf.constant(batch["image"])})["image"]
    batch["image"] = tf.cast(normalized, dtype)

    sheet = tfpipe.contact_sheet(batch)

    difference = np.array(sheet.getpixel((4 + 3 * 52, 4))) - (15, 20, 200)
    assert np.abs(difference).max() <= (1 if dtype == "bfloat16" else 0)


def test_values_out_of_range_are_clipped():
    batch = {"image": np.full((1, 32, 48, 3), [-100, 0, 100.0]), "label": [0]}

    sheet = tfpipe.contact_sheet(batch)

    assert sheet.getpixel((4, 4)) == (0, 116, 255)


def test_caption_shows_the_name_of_the_class():
    batch = make_batch(1)

    plain = tfpipe.contact_sheet(batch)
    named = tfpipe.contact_sheet(batch, class_names=["cat"])
    without_name = tfpipe.contact_sheet(batch, class_names=[])

    assert named.tobytes() != plain.tobytes()
    assert without_name.tobytes() == plain.tobytes()


def test_caption_is_cut_to_the_width_of_the_image():
    batch = make_batch(2)

    sheet = np.asarray(tfpipe.contact_sheet(batch, class_names=["very long " * 9] * 2))

    caption = sheet[4 + 32 + 1 : -4]
    assert (caption[:, 4 : 4 + 48] < 255).any()
    assert (caption[:, 4 + 48 : 4 + 52] == 255).all()  # the gap between the two


@pytest.mark.parametrize(
    ("shape", "got"),
    [
        ((2, 32, 48), r"\[2, 32, 48\]"),
        ((2, 32, 48, 1), r"\[2, 32, 48, 1\]"),
        ((32, 48, 3), r"\[32, 48, 3\]"),
        ((0, 32, 48, 3), r"\[0, 32, 48, 3\]"),
    ],
)
def test_other_shapes_are_refused(shape, got):
    batch = {"image": np.zeros(shape, np.uint8), "label": np.zeros(shape[:1], int)}

    with pytest.raises(ValueError, match=rf"\[batch, height, width, 3\].*got {got}"):
        tfpipe.contact_sheet(batch)
