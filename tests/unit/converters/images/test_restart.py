"""converters.images.lossless: JPEGs with restart markers, and the flag end to end."""

import dataclasses
import functools
import io
import itertools
import json
import pathlib
import shutil
import threading

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from converters import verify
from converters.images import jpeg_header, lossless, policy as image_policy
from converters.jobs import publish, rebuild
from converters.jobs.again import Again
from converters.options.job import ConvertOptions
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.trees import convert, make_tree
from tests.unit.tfpipe.native.test_native import photograph, random_crop_boxes
from tests.unit.tfpipe.ops.test_crop import CROP_BOXES, KINDS, gradient
from tfpipe.location.location import Location
from tfpipe.native import libraries
from tfpipe.ops.crop import crop_image
from tfpipe.shards import index, records
from tfpipe.shards.example import decode_example

pytestmark = needs_native

_SIZE = (240, 320)


def _photograph(**options):
    return photograph(_SIZE, **{"subsampling": 2, **options})


def _with_bytes(data, marker, offset, *values):
    """Replaces bytes after the first marker of this kind."""
    changed = bytearray(data)
    at = changed.index(marker) + offset
    changed[at : at + len(values)] = values
    return bytes(changed)


def _rgb():
    """A JPEG that stores RGB instead of luma and chroma, as its Adobe marker says."""
    image = PIL.Image.open(io.BytesIO(photograph()))
    out = io.BytesIO()
    image.save(out, "JPEG", keep_rgb=True)
    return out.getvalue()


def _segment(marker, content):
    length = (len(content) + 2).to_bytes(2, "big")
    return b"\xff" + bytes([marker]) + length + content


EXIF = PIL.Image.Exif()
EXIF[0x0112] = 6
PHOTOGRAPHS = {
    "420": _photograph(),
    "422": _photograph(subsampling=1),
    "444": _photograph(subsampling=0, quality=100),
    "optimized": _photograph(optimize=True),
    "with markers": _photograph(restart_marker_blocks=7),
    "with rows": _photograph(restart_marker_rows=2),
    "progressive": _photograph(progressive=True),
    "rgb": _rgb(),
    "metadata": _photograph(
        exif=EXIF, icc_profile=bytes(70_000), comment=b"said", dpi=(3, 5)
    ),
    "ycck": _with_bytes(gradient("CMYK", size=(61, 69)), b"Adobe", 11, 2),
    # The only component of a scan has rows of single blocks, whatever its sampling.
    "gray 2x2": _with_bytes(gradient("L", size=(61, 69)), b"\xff\xc0", 11, 0x22),
    "16-bit tables": _photograph(
        qtables=[[300] * 64, [17] * 64],
    ),
    "one block": gradient(size=(5, 7)),
    "wide": gradient(size=(3, 4000)),
    "high": gradient(size=(4000, 3)),
}
ALL = KINDS | PHOTOGRAPHS
each_jpeg = pytest.mark.parametrize("encoded", ALL.values(), ids=ALL)


@functools.cache
def _rewrite(encoded):
    rewritten, left = lossless.rewrite(encoded)
    assert left == ""
    return rewritten


def _segments(encoded):
    """Returns marker and content of the segments before the scan, and the scan."""
    found, at = [], 2
    while True:
        marker = encoded[at + 1]
        length = int.from_bytes(encoded[at + 2 : at + 4], "big")
        found.append((marker, encoded[at + 4 : at + 2 + length]))
        at += 2 + length
        if marker == 0xDA:
            return found, encoded[at:]


def _metadata(encoded):
    return [
        segment
        for segment in _segments(encoded)[0]
        if 0xE0 <= segment[0] <= 0xEF or segment[0] == 0xFE
    ]


def _mcus(encoded):
    """Returns MCUs per row and rows of MCUs, if all components share a scan."""
    (frame,) = (s for m, s in _segments(encoded)[0] if m in (0xC0, 0xC1))
    height, width = (int.from_bytes(frame[i : i + 2], "big") for i in (1, 3))
    samplings = [frame[7 + 3 * i] for i in range(frame[5])]
    across, down = max(s >> 4 for s in samplings), max(s & 15 for s in samplings)
    if len(samplings) == 1:
        across = down = 1
    return -(-width // (8 * across)), -(-height // (8 * down))


@each_jpeg
def test_one_restart_marker_a_row(encoded):
    rewritten = _rewrite(encoded)

    segments, scan = _segments(rewritten)
    width, height = _mcus(rewritten)
    assert [content for marker, content in segments if marker == 0xDD] == [
        width.to_bytes(2, "big")
    ]
    markers = [
        scan[i + 1] for i in range(len(scan) - 1) if scan[i] == 0xFF and scan[i + 1]
    ]
    assert markers == [0xD0 + i % 8 for i in range(height - 1)] + [0xD9]


@each_jpeg
def test_pixels_are_the_same_to_tensorflow_and_pillow(encoded):
    rewritten = _rewrite(encoded)

    for method in ("INTEGER_FAST", "INTEGER_ACCURATE"):
        for fancy in (False, True):
            one, other = (
                tf.io.decode_jpeg(
                    data, channels=3, dct_method=method, fancy_upscaling=fancy
                ).numpy()
                for data in (encoded, rewritten)
            )
            np.testing.assert_array_equal(one, other)
    before, after = (PIL.Image.open(io.BytesIO(data)) for data in (encoded, rewritten))
    assert before.mode == after.mode
    np.testing.assert_array_equal(np.asarray(before), np.asarray(after))


@each_jpeg
def test_metadata_are_kept_byte_for_byte(encoded):
    assert _metadata(_rewrite(encoded)) == _metadata(encoded)


def test_what_pillow_reads_of_the_metadata_is_the_same():
    encoded = PHOTOGRAPHS["metadata"]

    before, after = (
        PIL.Image.open(io.BytesIO(data)) for data in (encoded, _rewrite(encoded))
    )

    assert len(before.info["icc_profile"]) == 70_000
    for name in ("icc_profile", "exif", "comment", "dpi", "jfif_density"):
        assert before.info[name] == after.info[name]


@each_jpeg
def test_it_is_one_sequential_scan_and_rewriting_it_changes_nothing(encoded):
    rewritten = _rewrite(encoded)

    assert jpeg_header.read_header(rewritten).process in (
        jpeg_header.BASELINE,
        jpeg_header.EXTENDED,
    )
    assert rewritten.count(b"\xff\xda") == 1
    assert _rewrite(rewritten) == rewritten


def test_a_photograph_becomes_smaller():
    assert len(_rewrite(PHOTOGRAPHS["420"])) < 0.99 * len(PHOTOGRAPHS["420"])


def _incomplete():
    """A progressive image without its last scan."""
    encoded = PHOTOGRAPHS["progressive"]
    return encoded[: encoded.rindex(b"\xff\xda")] + jpeg_header.EOI


def _damaged():
    encoded = bytearray(PHOTOGRAPHS["420"])
    middle = len(encoded) // 2
    encoded[middle : middle + 4] = b"\xff\xd3\xff\xd1"
    return bytes(encoded)


LEFT = {
    "nothing": (b"", "damaged"),
    "text": (b"these are no pixels", "damaged"),
    "header": (PHOTOGRAPHS["420"][:300], "damaged"),
    "half": (PHOTOGRAPHS["420"][:9000], "damaged"),
    "half with an end": (PHOTOGRAPHS["420"][:9000] + jpeg_header.EOI, "damaged"),
    "scan": (_damaged(), "damaged"),
    "bits": (_with_bytes(PHOTOGRAPHS["420"], b"\xff\xc0", 4, 12), "precision"),
    "arithmetic": (_with_bytes(PHOTOGRAPHS["420"], b"\xff\xc0", 1, 0xC9), "arithmetic"),
    "bomb": (
        _with_bytes(PHOTOGRAPHS["420"], b"\xff\xc0", 5, 99, 99, 99, 99),
        "too_many_pixels",
    ),
    "incomplete": (_incomplete(), "incomplete"),
    "late": (
        PHOTOGRAPHS["420"][:-2] + _segment(0xFE, b"said") + jpeg_header.EOI,
        "late_markers",
    ),
}


@pytest.mark.parametrize(("encoded", "reason"), LEFT.values(), ids=LEFT)
def test_what_is_not_sound_is_left_as_it_is(encoded, reason, capfd):
    assert lossless.rewrite(encoded) == (encoded, reason)
    assert capfd.readouterr() == ("", "")


def test_threads_share_the_library():
    encoded = [*PHOTOGRAPHS.values(), *(data for data, _ in LEFT.values())]
    expected = [lossless.rewrite(data) for data in encoded]
    results = []

    def work():
        results.append([lossless.rewrite(data) for data in encoded])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == [expected] * 4


def _crops(encoded, window, size, crop_op, quality):
    return crop_image(
        tf.constant(encoded),
        tf.constant(window),
        size,
        flip=None,
        crop_op=crop_op,
        quality=quality,
    ).numpy()


# Sizes that are smaller than most crop boxes, and larger.
FORMATS = ((5, "fast"), (16, "exact"), (16, "fast"), (5, "exact"))


@pytest.mark.parametrize("kind", KINDS)
def test_both_ops_give_the_pixels_of_the_original(kind):
    rewritten = _rewrite(KINDS[kind])
    formats = itertools.cycle(FORMATS)
    for window, (size, quality) in zip(CROP_BOXES, formats, strict=False):
        expected = _crops(KINDS[kind], window, size, "stock", quality)
        for crop_op in ("native", "stock"):
            found = _crops(rewritten, window, size, crop_op, quality)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["420", "444", "progressive"])
def test_both_ops_give_the_pixels_of_the_original_photograph(kind):
    encoded = PHOTOGRAPHS[kind]
    rewritten = _rewrite(encoded)
    qualities = itertools.cycle(("fast", "exact"))
    for window, quality in zip(random_crop_boxes(_SIZE, 6), qualities, strict=False):
        expected = _crops(encoded, window, 40, "stock", quality)
        for crop_op in ("native", "stock"):
            found = _crops(rewritten, window, 40, crop_op, quality)
            np.testing.assert_array_equal(found, expected)


def _tree(folder):
    """Makes a tree of four plain images and one image of each other kind."""
    make_tree(folder, num_images=4)
    kinds = {
        "progressive": PHOTOGRAPHS["progressive"],
        "gray": KINDS["gray"],
        "turned": PHOTOGRAPHS["metadata"],
        "cmyk": KINDS["cmyk"],
        "damaged": _damaged(),
    }
    for name, data in kinds.items():
        (folder / "train" / "n01440764" / f"{name}.JPEG").write_bytes(data)
    png = io.BytesIO()
    PIL.Image.open(io.BytesIO(KINDS["4:4:4"])).save(png, "PNG")
    (folder / "train" / "n01440764" / "png.JPEG").write_bytes(png.getvalue())
    return folder


DECISIONS = {
    "rewritten": 4,
    "rewritten_progressive": 1,
    "rewritten_grayscale": 1,
    "rewritten_exif": 1,
    "converted_cmyk+rewritten": 1,
    "converted_png+rewritten": 1,
    "kept_corrupt+left_damaged": 1,
}
KEPT = image_policy.Policy(corrupt="keep")
POLICY = dataclasses.replace(KEPT, restart_rows=True)


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return _tree(tmp_path_factory.mktemp("raw"))


@pytest.fixture(scope="module")
def converted(raw, tmp_path_factory, native_op):  # noqa: F811
    """Summary and folder of a conversion without the flag and of one with it."""
    folder, found = tmp_path_factory.mktemp("converted"), {}
    for name, policy in (("plain", KEPT), ("rewritten", POLICY)):
        summary = convert(raw, folder / name, policy=policy, num_train_shards=2)
        found[name] = summary, folder / name
    return found


def _images(data_dir):
    found = {}
    for path in sorted(data_dir.glob("train-*-of-*")):
        for record in records.read(path, byte_offsets=(), on_bytes=lambda data: None):
            example = decode_example(record.data)
            name = example["image/filename"].values[0]
            found[name] = example["image/encoded"].values[0]
    return found


def test_records_of_a_conversion_have_the_same_pixels(converted):
    one, other = (_images(converted[name][1]) for name in ("plain", "rewritten"))

    assert len(one) == 10
    assert one.keys() == other.keys()
    for name in one:
        assert (one[name] == other[name]) == (name == b"damaged.JPEG")
        np.testing.assert_array_equal(
            tf.io.decode_jpeg(one[name], channels=3),
            tf.io.decode_jpeg(other[name], channels=3),
        )


def test_summary_and_index_say_what_was_done(converted, capsys):
    (plain, _), (summary, folder) = converted["plain"], converted["rewritten"]
    before, after = (_images(converted[name][1]) for name in ("plain", "rewritten"))
    saved = sum(map(len, before.values())) - sum(map(len, after.values()))

    assert summary["decisions"] == DECISIONS
    assert summary["rewritten"] == {"num_images": 9, "num_bytes_saved": saved}
    assert plain["rewritten"] == {"num_images": 0, "num_bytes_saved": 0}
    made_by = index.load(folder).made_by
    assert made_by["options"]["policy"]["restart_rows"] is True
    assert made_by["rewritten"] == summary["rewritten"]
    changes = (folder / publish.CHANGES_NAME).read_text().splitlines()
    assert [json.loads(line)["action"] for line in changes].count("rewritten") == 4
    assert len(changes) == 9


def test_verify_compares_pixels_with_the_source(converted, raw, tmp_path):
    _, folder = converted["rewritten"]
    source = pathlib.Path(shutil.copytree(raw, tmp_path / "raw"))

    def check():
        config = verify.VerifyOptions(
            data_dir=str(folder), level="source", input_dir=str(source), num_workers=1
        )
        return verify.verify(config)

    result = check()
    assert result.num_faults == 0
    assert result.details["num_not_comparable"] == 2

    other = source / "train" / "n01440764" / "turned.JPEG"
    other.write_bytes(_photograph(quality=10))
    short = source / "train" / "n01440764" / "gray.JPEG"
    short.write_bytes(short.read_bytes()[:50])
    faults = {fault.file: fault.fault for fault in check().faults}
    assert faults.keys() == {f"train/n01440764/{p.name}" for p in (other, short)}
    assert "pixels of the source" in faults["train/n01440764/turned.JPEG"]
    assert "must decode" in faults["train/n01440764/gray.JPEG"]


def test_repair_rewrites_again(converted, raw, tmp_path):
    folder = pathlib.Path(shutil.copytree(converted["rewritten"][1], tmp_path / "copy"))
    path = folder / "train-00001-of-00002"
    before = path.read_bytes()
    path.write_bytes(before[:-9])

    rebuild.rebuild(folder, Again(Location(str(raw))), [path.name], 1)

    assert path.read_bytes() == before


def test_another_run_goes_on_and_one_without_the_flag_does_not(
    raw, tmp_path, monkeypatch, converted
):
    options = {"num_train_shards": 2}
    # As if the run were cut off when all its shards are complete.
    monkeypatch.setattr(publish, "publish", lambda job, job_dir: None)
    convert(raw, tmp_path / "out", policy=POLICY, **options)
    monkeypatch.undo()

    with pytest.raises(ValueError, match=r"policy.restart_rows was True, is False"):
        convert(raw, tmp_path / "out", **options)
    convert(raw, tmp_path / "out", policy=POLICY, **options)

    one, other = (
        {path.name: path.read_bytes() for path in folder.glob("*") if path.is_file()}
        for folder in (tmp_path / "out", converted["rewritten"][1])
    )
    assert one == other


@pytest.mark.parametrize(
    ("described", "words"),
    [
        (
            b"of another machine",
            r"(invalid ELF|too short).* Run: \S*python\S* -m tfpipe.nati",
        ),
        (b"of another machine, cut", r"is damaged.* Run: \S*python\S* -m tfpipe.nati"),
    ],
)
def test_a_library_that_does_not_load_is_an_error(
    described, words, tmp_path, monkeypatch
):
    monkeypatch.setenv("TFPIPE_NATIVE_DIR", str(tmp_path))
    path = libraries.rewrite_library()
    path.write_bytes(b"of another machine")
    path.with_suffix(".json").write_text(json.dumps(libraries.describe(described)))

    with pytest.raises(ValueError, match=words):
        ConvertOptions(name="photos", output_dir="out", policy=POLICY)


def test_other_restart_intervals_are_decoded_alike():
    """The native op skips restart intervals that it does not need."""
    for options in (
        {"restart_marker_rows": 1},
        {"restart_marker_rows": 3},
        {"restart_marker_blocks": 1},
        {"restart_marker_blocks": 10},
        {"restart_marker_blocks": 33},
    ):
        encoded = _photograph(**options)
        for window in random_crop_boxes(_SIZE, 5):
            one, other = (
                _crops(encoded, window, 40, crop_op, "exact")
                for crop_op in ("native", "stock")
            )
            np.testing.assert_array_equal(one, other)
