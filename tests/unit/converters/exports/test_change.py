"""A copy of a record: another image in it, and every other feature as it was."""

import io
from typing import Any

import numpy as np
import PIL.Image
import pytest

from converters.exports.change import Change
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.trees import make_jpeg
from tfpipe import errors
from tfpipe.shards import example, image_record

pytestmark = needs_native

BOXES = ((0.0, 0.25, 0.5, 1.0), (0.125, 0.0, 1.0, 0.5))


def _record(encoded: bytes, **fields: Any) -> bytes:
    values = {
        "height": 32,
        "width": 40,
        "label": 7,
        "synset": "n1",
        "text": "crane",
        "filename": "a.JPEG",
        "boxes": BOXES,
    }
    record = image_record.ImageRecord(encoded=encoded, **values | fields)
    return b"".join(image_record.encode_image(record))


def _pixels(encoded: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(PIL.Image.open(io.BytesIO(encoded)))


def _changed(change: Change, data: bytes, *, seed: str = "0") -> tuple[Any, Any]:
    made = change(data, (32, 40), seed=seed)
    return made, example.decode_example(b"".join(made.data))


def test_distinct_copies_differ_in_bytes_and_in_nothing_else() -> None:
    jpeg = make_jpeg(1)
    before = example.decode_example(_record(jpeg))
    copies = set()
    for seed in "abc":
        made, after = _changed(Change(), _record(jpeg), seed=seed)
        encoded = after.pop("image/encoded").values[0]
        copies.add(encoded)
        assert (_pixels(encoded) == _pixels(jpeg)).all()
        assert made[1:] == (32, 40, made.digest, "recoded", b"")
        assert after == {k: v for k, v in before.items() if k != "image/encoded"}

    assert len(copies | {jpeg}) == 4
    _, after = _changed(Change(), _record(jpeg), seed="a")
    assert after["image/encoded"].values[0] in copies


def test_boxes_follow_their_mirrored_image() -> None:
    jpeg = make_jpeg(1)  # 40 pixels are 5 whole blocks
    decisions = set()
    for seed in map(str, range(12)):
        made, after = _changed(Change(mirror=True), _record(jpeg), seed=seed)
        pixels = _pixels(after["image/encoded"].values[0])
        boxes = [after[f"image/object/bbox/{side}"].values for side in ("xmin", "xmax")]
        decisions.add(made.decision)
        if made.decision == "mirrored":
            assert (pixels == _pixels(jpeg)[:, ::-1]).all()
            assert boxes == [[0.5, 0.0], [1.0, 0.875]]
        else:
            assert (pixels == _pixels(jpeg)).all()
            assert boxes == [[0.0, 0.125], [0.5, 1.0]]
    assert decisions == {"mirrored", "recoded"}

    # A side that ends within a block.
    record, odd = _record(make_jpeg(1, width=41)), set()
    for seed in map(str, range(12)):
        made, after = _changed(Change(mirror=True), record, seed=seed)
        odd.add(made.decision)
        assert after["image/object/bbox/xmin"].values == [0.0, 0.125]
    assert odd == {"recoded_not_mirrored", "recoded"}


def test_sizes_follow_an_enlarged_image() -> None:
    change = Change(kind="enlarged", factor=1.5, quality=90)
    made, after = _changed(change, _record(make_jpeg(1)))

    assert _pixels(after["image/encoded"].values[0]).shape == (48, 60, 3)
    assert after["image/height"].values == [48]
    assert after["image/width"].values == [60]
    assert (made.height, made.width, made.decision) == (48, 60, "enlarged")
    other, _ = _changed(change, _record(make_jpeg(1)), seed="1")
    assert other.digest != made.digest


def test_records_of_other_tools_and_images_that_are_no_jpeg() -> None:
    out = io.BytesIO()
    PIL.Image.open(io.BytesIO(make_jpeg(1))).save(out, "PNG")
    features = {
        "image": example.bytes_feature(out.getvalue()),
        "label": example.int64_feature([3]),
        "own/thing": example.float_feature([0.5, 2]),
    }
    data = b"".join(example.encode_example(features))

    kept, after = _changed(Change(), data)
    assert kept.decision == "kept_not_jpeg"
    assert after == example.decode_example(data)
    large, after = _changed(Change(kind="enlarged", factor=2, quality=90), data)
    assert (large.height, large.width) == (64, 80)
    assert after["own/thing"].values == [0.5, 2.0]
    assert sorted(after) == sorted(features)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xff", "not a tf.train.Example"),
        (b"".join(example.encode_example({"a": example.int64_feature([1])})), "has no"),
        (
            b"".join(example.encode_example({"image": example.int64_feature([1])})),
            "is not one string of bytes",
        ),
    ],
)
def test_what_is_no_image_is_a_bad_record(data: bytes, message: str) -> None:
    with pytest.raises(errors.BadRecordError, match=message):
        Change()(data, (1, 1), seed="0")


def test_an_image_that_must_be_decoded_and_cannot_be_is_a_bad_record() -> None:
    cut = _record(make_jpeg(1)[:200])
    for change in (
        Change(kind="enlarged", factor=2, quality=90),
        Change(kind="reencoded", quality=90),
    ):
        with pytest.raises(errors.BadRecordError):
            change(cut, (32, 40), seed="0")

    made, after = _changed(Change(), cut)
    assert made.decision == "kept_damaged"
    assert after == example.decode_example(cut)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"kind": "enlarged", "factor": 1.0, "quality": 90},
            "--enlarge must be above 1",
        ),
        ({"kind": "enlarged", "factor": float("nan"), "quality": 90}, "--enlarge must"),
        ({"kind": "enlarged", "factor": 3.0}, "--quality is for images"),
        ({"quality": 90}, "--quality is for images"),
        ({"kind": "reencoded", "quality": 101}, "--quality must be 1 to 100"),
        (
            {"kind": "reencoded", "quality": 90, "mirror": True},
            "--mirror is for copies",
        ),
    ],
)
def test_changes_that_do_not_fit_together(fields: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Change(**fields)
