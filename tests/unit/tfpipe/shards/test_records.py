import pathlib
import struct

import google_crc32c
import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies

from tests.support.data.trees import make_jpeg
from tfpipe import errors
from tfpipe.shards import image_record, records
from tfpipe.shards.example import (
    Feature,
    decode_example,
    encode_example,
    int64_feature,
)

RECORD = image_record.ImageRecord(
    encoded=make_jpeg(0),
    height=32,
    width=40,
    label=7,
    synset="n01484850",
    text="great white shark, white shark",
    filename="n01484850_2.JPEG",
)
WITH_BOXES = image_record.ImageRecord(
    encoded=make_jpeg(1),
    height=32,
    width=40,
    label=300,
    synset="n02165105",
    text="tiger beetle",
    filename="n02165105_9.JPEG",
    boxes=[(0.0, 0.1, 0.5, 1.0), (0.25, 0.3, 0.75, 0.9)],
)
NOT_ASCII = image_record.ImageRecord(
    encoded=b"\xff\xd8" + bytes(range(256)) * 80,  # lengths of several varint bytes
    height=1,
    width=65535,
    label=-1,
    synset="",
    text="crème brûlée, 焼きプリン",
    filename="crème.JPEG",
)

WITH_MORE = image_record.ImageRecord(
    encoded=make_jpeg(1),
    height=32,
    width=40,
    label=[7, 3],
    synset="n02165105",
    text="tiger beetle",
    filename="n02165105_9.JPEG",
    boxes=WITH_BOXES.boxes,
    box_labels=[3, 7],
    features={"extra/score": int64_feature([9]), "image/a": int64_feature([])},
)


def to_example(record: image_record.ImageRecord) -> tf.train.Example:
    """The record as TensorFlow's protobuf classes spell it."""
    labels = record.label if isinstance(record.label, list) else [record.label]
    box_labels = record.box_labels or labels * len(record.boxes)
    sides = {
        f"image/object/bbox/{side}": [box[number] for box in record.boxes]
        for number, side in enumerate(("xmin", "ymin", "xmax", "ymax"))
    }
    ints = {
        "image/height": [record.height],
        "image/width": [record.width],
        "image/channels": [3],
        "image/class/label": labels,
        "image/object/bbox/label": box_labels,
        "image/object/class/label": box_labels,
    }
    if record.features:
        ints |= {"extra/score": [9], "image/a": []}
    strings = {
        "image/colorspace": b"RGB",
        "image/class/synset": record.synset.encode(),
        "image/class/text": record.text.encode(),
        "image/format": b"JPEG",
        "image/filename": record.filename.encode(),
        "image/encoded": record.encoded,
    }
    features = {
        **{k: tf.train.Feature(float_list={"value": v}) for k, v in sides.items()},
        **{k: tf.train.Feature(int64_list={"value": v}) for k, v in ints.items()},
        **{k: tf.train.Feature(bytes_list={"value": [v]}) for k, v in strings.items()},
    }
    assert len(features) == 16 + len(record.features or ())
    return tf.train.Example(features=tf.train.Features(feature=features))


def write_shard(path: pathlib.Path, datas: list[bytes]) -> pathlib.Path:
    path.write_bytes(b"".join(b"".join(records.frame([data])) for data in datas))
    return path


@pytest.mark.parametrize(
    "record",
    [RECORD, WITH_BOXES, NOT_ASCII, WITH_MORE],
    ids=["no boxes", "boxes", "not ascii", "more"],
)
def test_encoded_image_equals_what_protobuf_serializes(record):
    encoded = b"".join(image_record.encode_image(record))

    assert encoded == to_example(record).SerializeToString(deterministic=True)


def test_an_image_that_cannot_be_encoded_is_refused():
    number = int64_feature([1])
    for changes, said in (
        (
            {"box_labels": [1]},
            r"for each of the 2 boxes of n02165105_9.JPEG, got \[1\]",
        ),
        ({"label": [1, 2]}, "for each of the 2 boxes of .*, got None"),
        ({"features": {"image/encoded": number}}, "before image/encoded, got image/en"),
        ({"features": {"a": number, "z": number}}, "before image/encoded, got z"),
    ):
        with pytest.raises(ValueError, match=said):
            image_record.encode_image(WITH_BOXES._replace(**changes))


def test_encoded_jpeg_is_not_copied():
    assert any(piece is RECORD.encoded for piece in image_record.encode_image(RECORD))


def test_readers_of_the_inception_format_find_all_their_keys():
    string = tf.io.FixedLenFeature([], tf.string)
    integer = tf.io.FixedLenFeature([], tf.int64)
    floats = tf.io.VarLenFeature(tf.float32)

    parsed = tf.io.parse_single_example(
        b"".join(image_record.encode_image(WITH_BOXES)),
        {
            "image/height": integer,
            "image/width": integer,
            "image/colorspace": string,
            "image/channels": integer,
            "image/class/label": tf.io.FixedLenFeature([1], tf.int64),
            "image/class/synset": string,
            "image/class/text": string,
            "image/object/bbox/xmin": floats,
            "image/object/bbox/xmax": floats,
            "image/object/bbox/ymin": floats,
            "image/object/bbox/ymax": floats,
            "image/object/bbox/label": tf.io.VarLenFeature(tf.int64),
            "image/format": string,
            "image/filename": string,
            "image/encoded": string,
        },
    )

    values = {
        key: (tf.sparse.to_dense(value) if "bbox" in key else value).numpy()
        for key, value in parsed.items()
    }
    assert values.pop("image/encoded") == WITH_BOXES.encoded
    assert {k: getattr(v, "tolist", lambda v=v: v)() for k, v in values.items()} == {
        "image/height": 32,
        "image/width": 40,
        "image/colorspace": b"RGB",
        "image/channels": 3,
        "image/class/label": [300],
        "image/class/synset": b"n02165105",
        "image/class/text": b"tiger beetle",
        "image/object/bbox/xmin": pytest.approx([0.0, 0.25]),
        "image/object/bbox/xmax": pytest.approx([0.5, 0.75]),
        "image/object/bbox/ymin": pytest.approx([0.1, 0.3]),
        "image/object/bbox/ymax": pytest.approx([1.0, 0.9]),
        "image/object/bbox/label": [300, 300],
        "image/format": b"JPEG",
        "image/filename": b"n02165105_9.JPEG",
    }


def test_frame_equals_what_tensorflow_writes(tmp_path):
    pieces = [b"", b"one", b"two" * 1000]
    with tf.io.TFRecordWriter(str(tmp_path / "reference")) as writer:
        writer.write(b"".join(pieces))

    framed = b"".join(records.frame(pieces))

    assert framed == (tmp_path / "reference").read_bytes()


def test_scan_yields_offset_length_and_crc_of_each_record(tmp_path):
    datas = [b"a", b"", b"c" * 100]
    shard = write_shard(tmp_path / "shard", datas)

    footers = [records.frame([data])[-1] for data in datas]
    crcs = [int.from_bytes(footer, "little") for footer in footers]
    expected = [(0, 17, crcs[0]), (17, 16, crcs[1]), (33, 116, crcs[2])]
    assert list(records.scan(shard)) == expected


def test_scan_agrees_with_tensorflow_on_converted_shards(data_dir):
    shard = data_dir / "train-00001-of-00003"
    content = shard.read_bytes()

    scanned = [
        content[offset + records.HEADER_BYTES : offset + size - records.FOOTER_BYTES]
        for offset, size, _ in records.scan(shard)
    ]

    assert scanned == list(tf.data.TFRecordDataset(str(shard)).as_numpy_iterator())


def test_scan_of_an_empty_shard_yields_nothing(tmp_path):
    assert list(records.scan(write_shard(tmp_path / "shard", []))) == []


# Of records at 0, 17 and 33, in a shard of 149 bytes.
@pytest.mark.parametrize(
    ("keep", "flip", "fault"),
    [
        (148, None, r"record 2 at byte 33 is cut short \(the shard has 148 bytes"),
        (45, None, r"record 2 at byte 33 is cut short"),  # nothing but the header
        (44, None, r"record 2 at byte 33 header is damaged"),  # a part of the header
        (16, None, r"record 0 at byte 0 is cut short"),
        (149, 17, r"record 1 at byte 17 header is damaged"),  # its length
        (149, 17 + 8, r"record 1 at byte 17 header is damaged"),  # its CRC
    ],
)
def test_scan_names_shard_record_and_offset_of_damage(tmp_path, keep, flip, fault):
    shard = write_shard(tmp_path / "train-00000-of-00001", [b"a", b"", b"c" * 100])
    content = bytearray(shard.read_bytes()[:keep])
    if flip is not None:
        content[flip] ^= 1
    shard.write_bytes(content)

    with pytest.raises(errors.BadRecordError, match=f"{shard.name}: {fault}"):
        list(records.scan(shard))


def test_records_before_the_damage_are_yielded(tmp_path):
    shard = write_shard(tmp_path / "shard", [b"a", b"b"])
    shard.write_bytes(shard.read_bytes()[:-1])
    scan = records.scan(shard)

    assert next(scan)[:2] == (0, 17)
    with pytest.raises(errors.BadRecordError):
        next(scan)


def test_read_yields_what_was_written_and_every_byte(tmp_path):
    datas = [b"a", b"", b"c" * 100]
    shard = write_shard(tmp_path / "shard", datas)
    seen = bytearray()

    read = list(records.read(shard, on_bytes=seen.extend))

    assert [record.data for record in read] == datas
    assert [r[:2] for r in read] == [place[:2] for place in records.scan(shard)]
    assert not any(record.fault for record in read)
    assert seen == shard.read_bytes()


@pytest.mark.parametrize("function", [records.scan, records.read])
def test_a_disk_that_fails_names_the_shard(tmp_path, monkeypatch, function):
    def fails(descriptor, num_bytes, offset):
        raise OSError(5, "Input/output error")

    shard = write_shard(tmp_path / "shard", [b"a"])
    monkeypatch.setattr(records, "pread", fails)
    with pytest.raises(OSError, match=f"Input/output error: '{shard}'"):
        list(function(shard))


def test_read_of_an_empty_shard_yields_nothing(tmp_path):
    assert list(records.read(write_shard(tmp_path / "shard", []))) == []


# Of records at 0, 17 and 33, in a shard of 149 bytes.
@pytest.mark.parametrize(
    ("flip", "byte_offsets", "expected"),
    [
        (12, [], [(0, 17, "CRC of the data"), (17, 16, ""), (33, 116, "")]),
        (16, [], [(0, 17, "CRC of the data"), (17, 16, ""), (33, 116, "")]),
        (17, [0, 17, 33], [(0, 17, ""), (17, 16, "header"), (33, 116, "")]),
        (17, [], [(0, 17, ""), (17, 132, "the last 132 bytes")]),
        # A catalog that leads nowhere.
        (17, [0, 17, 17], [(0, 17, ""), (17, 132, "the last 132 bytes")]),
        (17, [0, 17, 150], [(0, 17, ""), (17, 132, "the last 132 bytes")]),
        (33, [0, 17, 33], [(0, 17, ""), (17, 16, ""), (33, 116, "header")]),
    ],
)
def test_read_goes_on_after_damage(tmp_path, flip, byte_offsets, expected):
    shard = write_shard(tmp_path / "shard", [b"a", b"", b"c" * 100])
    content = bytearray(shard.read_bytes())
    content[flip] ^= 1
    shard.write_bytes(content)

    read = list(records.read(shard, byte_offsets=byte_offsets))

    assert [record[:2] for record in read] == [place[:2] for place in expected]
    for record, (_, _, fault) in zip(read, expected, strict=True):
        assert bool(record.fault) == bool(fault)
        assert fault in record.fault


def test_read_says_how_much_of_a_cut_record_there_is(tmp_path):
    shard = write_shard(tmp_path / "shard", [b"a", b"c" * 100])
    shard.write_bytes(shard.read_bytes()[:-6])

    *_, last = records.read(shard, byte_offsets=[0, 17])

    assert (last.byte_offset, last.num_bytes, last.data) == (17, 110, b"")
    assert "must have 116 bytes, got 110" in last.fault


def test_read_takes_no_record_that_no_image_has(tmp_path):
    """A file of a few bytes on disk that seems to have gigabytes."""
    length = struct.pack("<Q", 3 << 30)
    with open(tmp_path / "shard", "wb") as shard:
        shard.write(length + records._masked(google_crc32c.value(length)))
        shard.seek((3 << 30) + 16)
        shard.write(b"".join(records.frame([b"next"])))

    first, second = records.read(tmp_path / "shard")

    assert (first.num_bytes, first.data) == ((3 << 30) + 16, b"")
    assert "of which at most 2147479552 are read" in first.fault
    assert (second.data, second.fault) == (b"next", "")


@pytest.mark.parametrize("record", [RECORD, WITH_BOXES, NOT_ASCII])
def test_decode_example_equals_what_protobuf_parses(record):
    data = b"".join(image_record.encode_image(record))

    decoded = decode_example(data)

    features = tf.train.Example.FromString(data).features.feature
    assert decoded.keys() == features.keys()
    for key, feature in decoded.items():
        assert f"{feature.kind}_list" == features[key].WhichOneof("kind")
        assert feature.values == list(
            getattr(features[key], f"{feature.kind}_list").value
        )


def test_decode_example_takes_lists_that_are_not_packed():
    ints = b"\x1a\x04\x08\x05\x08\x07"  # two varint fields
    floats = b"\x12\x05\x0d\x00\x00\x80\x3f"  # one fixed32 field
    nothing = b""
    pieces = {"i": [ints], "f": [floats], "n": [nothing]}
    data = b"".join(encode_example(pieces))

    assert decode_example(data) == {
        "i": Feature("int64", [5, 7]),
        "f": Feature("float", [1.0]),
        "n": Feature("empty", []),
    }
    assert len(tf.train.Example.FromString(data).features.feature) == 3


@hypothesis.settings(max_examples=300, deadline=None, derandomize=True)
@hypothesis.given(
    junk=strategies.binary(max_size=60),
    position=strategies.integers(0, 900),
    length=strategies.integers(0, 900),
)
def test_decode_example_of_damaged_bytes_raises_nothing_but_bad_record(
    junk, position, length
):
    data = b"".join(image_record.encode_image(WITH_BOXES))
    start = 0 if position == 0 else position * len(data) // 900
    damaged = data[:start] + junk + data[start + length :]
    for candidate in (junk, damaged):
        try:
            decoded = decode_example(candidate)
        except errors.BadRecordError:
            continue  # anything else fails the test
        assert all(isinstance(key, str) for key in decoded)
