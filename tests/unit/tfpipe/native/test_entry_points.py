"""tfpipe.native.entry_points: the crop op begins at them, and ignores bad ones."""

import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
import xxhash

import tfpipe
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.unit.tfpipe.native.test_native import photograph, random_crop_boxes
from tests.unit.tfpipe.ops.test_crop import CROP_BOXES, KINDS, encoded
from tfpipe.native import entry_points
from tfpipe.ops.crop import crop_image

pytestmark = needs_native

# Places of a table's parts, in bytes: see src/entry_points.h.
SIZE, DIGEST, HEAD, END = slice(8, 12), slice(12, 20), 30, -4
PHOTOGRAPH = photograph()
BOX = (150, 100, 60, 90)


def crop(jpeg, box, table, size=24, **options):
    return crop_image(
        jpeg,
        tf.constant(box),
        size,
        crop_op="native",
        entry_points=tf.constant(table),
        **options,
    ).numpy()


def sealed(table, jpeg):
    """The table with the digests that fit it and the JPEG."""
    table = bytearray(table)
    table[SIZE] = len(jpeg).to_bytes(4, "little")
    table[DIGEST] = xxhash.xxh64_intdigest(jpeg).to_bytes(8, "little")
    digest = xxhash.xxh64_intdigest(bytes(table[:END])) & 0xFFFFFFFF
    table[END:] = digest.to_bytes(4, "little")
    return bytes(table)


def table_of(jpeg, distance=0):
    table, reason = entry_points.find(jpeg, distance=distance)
    assert table
    assert not reason
    return table


@pytest.mark.parametrize("quality", ["fast", "exact"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "progressive" not in kind])
def test_pixels_are_the_same(kind, quality):
    for distance in (1, 60):
        table = table_of(KINDS[kind], distance)
        for box in CROP_BOXES:
            one, other = (
                crop(KINDS[kind], box, given, 9, quality=quality)
                for given in (b"", table)
            )
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "options",
    [
        {"quality": 100, "subsampling": 0},  # many stuffed zeros
        {"quality": 60, "subsampling": 2},
        {"optimize": True, "subsampling": 1},
    ],
    ids=str,
)
def test_pixels_of_a_photograph_are_the_same(options):
    jpeg = photograph(**options)
    tables = [table_of(jpeg, distance) for distance in (1, 500)]
    boxes = list(random_crop_boxes((240, 320), 12))
    batch = [[jpeg] * 12, tf.constant(boxes), 16]
    expected = crop_image(*batch, crop_op="native")
    for table in tables:
        given = tf.constant([table] * 12)
        found = crop_image(*batch, crop_op="native", entry_points=given)
        np.testing.assert_array_equal(found, expected)


# Most scans are longer than the pieces in which the op passes over them, 16 kB. With
# quality 100, blocks end by their last coefficient; with quality 2, at each look-up.
@pytest.mark.parametrize(
    ("mode", "quality"), [("L", 100), ("L", 2), ("RGB", 97), ("CMYK", 85), ("RGB", 2)]
)
def test_the_last_rows_of_a_long_scan_are_the_same(mode, quality):
    image = PIL.Image.open(io.BytesIO(photograph((560, 640), quality=95)))
    out = io.BytesIO()
    image.convert(mode).save(out, "JPEG", quality=quality)
    boxes = [(530, 30 * i, 25, 90) for i in range(12)]
    batch = [[out.getvalue()] * len(boxes), tf.constant(boxes), 16]
    expected = crop_image(*batch, crop_op="stock")
    for distance in (20, 1024):
        table = tf.constant([table_of(out.getvalue(), distance)] * len(boxes))
        found = crop_image(*batch, crop_op="native", entry_points=table)
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(crop_image(*batch, crop_op="native"), expected)


def test_the_codes_above_the_crop_box_are_not_read():
    table = table_of(PHOTOGRAPH, 200)
    scan = PHOTOGRAPH.index(b"\xff\xda") + 14
    damaged = bytearray(PHOTOGRAPH)
    damaged[scan : scan + 200] = bytes(200)

    found = crop(bytes(damaged), BOX, sealed(table, bytes(damaged)))
    np.testing.assert_array_equal(found, crop(PHOTOGRAPH, BOX, b""))
    plain = crop(bytes(damaged), BOX, b"")
    assert not np.array_equal(plain, found)
    # The table of the JPEG before it was damaged, of as many bytes, is ignored.
    np.testing.assert_array_equal(crop(bytes(damaged), BOX, table), plain)


def test_a_table_that_is_damaged_or_of_another_image_changes_nothing():
    table = table_of(PHOTOGRAPH, 200)
    other = photograph(quality=74)
    damaged = [
        table_of(other),
        table[:-1],
        table + b"\0",
        table[:HEAD],
        b"\1",
        table * 2,
    ]
    for at in [*range(HEAD + 4), len(table) // 2, len(table) - 1]:
        changed = bytearray(table)
        changed[at] ^= 4
        damaged.append(bytes(changed))
    count = len(damaged)
    batch = [[PHOTOGRAPH] * count, tf.constant([BOX] * count), 24]
    found = crop_image(*batch, crop_op="native", entry_points=tf.constant(damaged))
    expected = np.stack([crop(PHOTOGRAPH, BOX, b"")] * count)
    np.testing.assert_array_equal(found, expected)


def test_a_place_outside_of_the_image_is_left_to_libjpeg():
    table = bytearray(table_of(PHOTOGRAPH, 200))
    table[HEAD:END] = b"\xff" * (len(table) - HEAD + END)
    found = crop(PHOTOGRAPH, BOX, sealed(table, PHOTOGRAPH))
    np.testing.assert_array_equal(found, crop(PHOTOGRAPH, BOX, b""))


@pytest.mark.parametrize(
    ("jpeg", "reason"),
    [
        (photograph(progressive=True), "not_baseline"),
        (photograph(restart_marker_rows=1), "restart_markers"),
        (PHOTOGRAPH[:-2], "damaged"),
        (PHOTOGRAPH[:2000], "damaged"),
        (PHOTOGRAPH[:2000] + b"\xff\xd9", "damaged"),
        (b"", "damaged"),
        (b"\x89PNG", "damaged"),
    ],
)
def test_an_image_without_entry_points_says_why(jpeg, reason):
    assert entry_points.find(jpeg) == (b"", reason)


def test_a_table_is_small():
    table = table_of(PHOTOGRAPH)
    assert len(table) - HEAD + END < len(PHOTOGRAPH) * 9 / 256
    assert len(table_of(PHOTOGRAPH, (1 << 29) - 1)) == HEAD - END


@pytest.mark.parametrize("distance", [-1, 1 << 29])
def test_a_distance_out_of_range_is_refused(distance):
    with pytest.raises(ValueError, match="distance must be 0 to 2"):
        entry_points.find(PHOTOGRAPH, distance=distance)


def test_a_crop_takes_the_entry_points_of_the_example():
    example = encoded(PHOTOGRAPH, height=240, width=320)
    op = tfpipe.RandomCrop(image_size=32, crop_op="native")
    found = op(example | {"entry_points": tf.constant(table_of(PHOTOGRAPH))})

    assert found.keys() == op(example).keys()
    np.testing.assert_array_equal(found["image"], op(example)["image"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="entry_points must have"):
        op(example | {"entry_points": tf.constant([b""])})
