"""Every kind of file in one tree: converted, reported, and decodable."""

import io
import json
import os
import pathlib
import struct

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tests.support.data.trees import convert, make_jpeg
from tfpipe.shards import index

SYNSET = "n01440764"


def _saved(kind: str, mode: str = "RGB", **options: object) -> bytes:
    pixels = np.linspace(0, 255, 24 * 36 * 3).reshape(24, 36, 3).astype(np.uint8)
    out = io.BytesIO()
    PIL.Image.fromarray(pixels).convert(mode).save(out, kind, **options)
    return out.getvalue()


def _ycck() -> bytes:
    """A CMYK JPEG whose Adobe marker says that it is YCCK."""
    data = _saved("JPEG", "CMYK")
    place = data.index(b"Adobe") + 11
    return data[:place] + b"\x02" + data[place + 1 :]


def _rotated(orientation: int) -> bytes:
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    return _saved("JPEG", exif=exif)


def _sixteen_bit_png() -> bytes:
    out = io.BytesIO()
    pixels = np.arange(24 * 36, dtype=np.uint16).reshape(24, 36) * 70
    PIL.Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def _bomb() -> bytes:
    """A small JPEG that says it has 20,000 x 20,000 pixels."""
    data = bytearray(make_jpeg(1))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", 20_000, 20_000)
    return bytes(data)


FILES = {
    "plain.JPEG": (make_jpeg(0), "kept"),
    "gray.JPEG": (make_jpeg(2, mode="L"), "kept_grayscale"),
    "png.JPEG": (_saved("PNG"), "converted_png"),
    "sixteen.JPEG": (_sixteen_bit_png(), "converted_png"),
    "palette.JPEG": (_saved("PNG", "P"), "converted_png"),
    "gif.JPEG": (_saved("GIF"), "converted_gif"),
    "webp.JPEG": (_saved("WEBP"), "converted_webp"),
    "cmyk.JPEG": (_saved("JPEG", "CMYK"), "converted_cmyk"),
    "ycck.JPEG": (_ycck(), "converted_ycck"),
    "progressive.JPEG": (_saved("JPEG", progressive=True), "kept_progressive"),
    "one.JPEG": (make_jpeg(3, height=1, width=1), "kept"),
    "truncated.JPEG": (make_jpeg(4)[:-40], "skipped_truncated"),
    "zero.JPEG": (b"", "skipped_zero_byte"),
    "text.JPEG": (b"these are no pixels", "skipped_not_an_image"),
    "bomb.JPEG": (_bomb(), "skipped_too_many_pixels"),
    "a name, with 'quotes\" and\nlines.JPEG": (make_jpeg(5), "kept"),
    "写真 фото.JPEG": (make_jpeg(6), "kept"),
    os.fsdecode(b"caf\xe9.JPEG"): (make_jpeg(7), "kept"),
    **{f"turned{n}.JPEG": (_rotated(n), "kept_exif") for n in range(2, 9)},
}


@pytest.fixture(scope="module")
def converted(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[pathlib.Path, dict[str, object]]:
    """The data set made of all files, and the summary."""
    raw_dir = tmp_path_factory.mktemp("hostile")
    folder = raw_dir / "train" / SYNSET
    folder.mkdir(parents=True)
    for name, (data, _) in FILES.items():
        (folder / name).write_bytes(data)
    (folder / "loop.JPEG").symlink_to("loop.JPEG")
    (folder / "gone.JPEG").symlink_to("nowhere.JPEG")
    (folder / "x.JPEG").mkdir()
    out = raw_dir.with_name("converted")
    return out, convert(raw_dir, out)


def test_every_decision_is_counted(
    converted: tuple[pathlib.Path, dict[str, object]],
) -> None:
    _, summary = converted

    expected: dict[str, int] = {}
    for _, decision in FILES.values():
        expected[decision] = expected.get(decision, 0) + 1
    ignored = {"ignored_dangling_link": 2, "ignored_not_a_file": 1}
    assert summary["decisions"] == expected | ignored


def test_every_image_that_is_not_stored_as_it_was_is_named(
    converted: tuple[pathlib.Path, dict[str, object]],
) -> None:
    out, _ = converted

    reported, ignored = {}, {}
    for name in ("changes.jsonl", "rejects.jsonl"):
        for line in (out / name).read_text().splitlines():
            item = json.loads(line)
            if item["action"] == "ignored":
                ignored[item["name"]] = item["reason"]
                continue
            reason = item.get("reason")
            reported[item["name"]] = f"skipped_{reason}" if reason else item["action"]
    assert reported == {
        f"train/{SYNSET}/{name}": decision
        for name, (_, decision) in FILES.items()
        if not decision.startswith("kept")
    }
    assert ignored == {
        f"train/{SYNSET}/loop.JPEG": "dangling_link",
        f"train/{SYNSET}/gone.JPEG": "dangling_link",
        f"train/{SYNSET}/x.JPEG/": "not_a_file",
    }


def test_every_stored_record_decodes(
    converted: tuple[pathlib.Path, dict[str, object]],
) -> None:
    out, summary = converted
    spec = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/height": tf.io.FixedLenFeature([], tf.int64),
        "image/width": tf.io.FixedLenFeature([], tf.int64),
    }

    count = 0
    for record in tf.data.TFRecordDataset(sorted(map(str, out.glob("train-*")))):
        example = tf.io.parse_single_example(record, spec)
        height, width = int(example["image/height"]), int(example["image/width"])
        image = tf.io.decode_and_crop_jpeg(
            example["image/encoded"], [0, 0, height, width], channels=3
        )
        assert image.shape == (height, width, 3)
        assert tf.io.decode_jpeg(example["image/encoded"]).shape[:2] == (height, width)
        count += 1
    assert count == summary["num_records"] == 21


def test_names_are_in_the_catalog(
    converted: tuple[pathlib.Path, dict[str, object]],
) -> None:
    out, _ = converted

    names = index.load_catalog(out, "train", ["filename"])["filename"].tolist()
    stored = {name.rpartition("/")[2] for name in names}
    assert "a name, with 'quotes\" and\nlines.JPEG" in stored
    assert "写真 фото.JPEG" in stored
    assert r"caf\udce9.JPEG" in stored
