import concurrent.futures
import os
import random

import pytest
import tensorflow as tf

from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.odd_examples import ODD, drawn
from tests.support.data.trees import make_jpeg
from tfpipe.native import record_op
from tfpipe.ops.crop import crop_image
from tfpipe.shards import records

pytestmark = needs_native

KEYS = ["label", "height"]
JPEG = make_jpeg(0)
# A variant of another kind.
EMPTY_LIST = tf.raw_ops.EmptyTensorList(
    element_shape=tf.constant([], tf.int32), max_num_elements=1, element_dtype="int64"
)


def example(jpeg, **numbers):
    values = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=value))
        for name, value in numbers.items()
    }
    values["image"] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg]))
    features = tf.train.Features(feature=values)
    return tf.train.Example(features=features).SerializeToString(deterministic=True)


def broken(data, rng):
    """The data with a few bytes changed, mostly outside of the image."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(changed))
        changed[place] = rng.choice([changed[place] ^ 1 << rng.randrange(8), 0, 0xFF])
    return bytes(changed)


def all_examples():
    rng = random.Random(0)
    sound = [
        example(b"\xff\xd8" * 9, label=[n], height=[300]) for n in (0, -1, 1 << 40)
    ]
    pool = [*sound, *ODD.values()]
    changed = [broken(rng.choice(pool) or b"\x0a", rng) for _ in range(200)]
    return [*pool, *changed, *(drawn(rng) for _ in range(100))]


def by_tensorflow(data):
    scalar = tf.io.FixedLenFeature([], tf.int64)
    features = dict.fromkeys(KEYS, scalar) | {
        "image": tf.io.FixedLenFeature([], "string")
    }
    try:
        found = tf.io.parse_single_example(data, features)
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # in the message
        return None
    return found["image"].numpy(), *(int(found[key]) for key in KEYS)


def is_cut(data):
    """Whether a length goes beyond the end, where tf.io.parse_example stops."""
    try:
        tf.train.Example.FromString(data)
    except Exception as error:  # each implementation of protobuf has its own class
        return "DecodeError" in type(error).__name__
    return False


def image_bytes(encoded):
    """The bytes in a variant, which only the crop op reads otherwise."""
    proto = tf.make_tensor_proto(0).FromString(tf.io.serialize_tensor(encoded).numpy())
    # The length of the variant, below 128, and the variant.
    (inner,) = proto.variant_val.add().FromString(proto.tensor_content[1:]).tensors
    return bytes(tf.make_ndarray(inner))


def places(path, data):
    """Writes records; returns where they are."""
    framed = [b"".join(records.frame([one])) for one in data]
    path.write_bytes(b"".join(framed))
    sizes = tf.constant([len(one) for one in framed], tf.int64)
    return {
        "path": tf.fill([len(data)], str(path)),
        "byte_offset": tf.cumsum(sizes, exclusive=True),
        "num_bytes": sizes,
    }


def with_tensorflow(place, image_key, keys):
    """Reads all but the image with TensorFlow."""
    found = record_op.with_record(place, image_key)
    scalar = tf.io.FixedLenFeature([], tf.int64)
    parsed = tf.io.parse_example(found["record"], dict.fromkeys(keys, scalar))
    return parsed | {image_key: found[record_op.IMAGE]}


def by_the_op(place, number):
    one = {name: value[number] for name, value in place.items()}
    ways = [(record_op.read, one)]
    if number % 4 == 0:
        ways.append((record_op.read, one | {"held": record_op.hold(one)}))
        ways.append((with_tensorflow, one))
    found, said = [], []
    for read, where in ways:
        try:
            values = read(where, "image", KEYS)
        except tf.errors.OpError as error:
            said.append(error.message.partition("The record")[2].partition(" [Op")[0])
            continue
        found.append(
            (image_bytes(values["image"]), *(int(values[key]) for key in KEYS))
        )
    assert len({*found}) <= 1
    assert len(said) in (0, len(ways))
    assert len({*said[:2]}) <= 1
    return found[0] if found else None


def test_examples_are_read_as_tensorflow_reads_them(tmp_path):
    data = all_examples()
    place = places(tmp_path / "shard", data)

    found = [by_the_op(place, number) for number in range(len(data))]

    expected = [by_tensorflow(one) for one in data]
    assert sum(one is None for one in expected) > 30
    assert sum(one is not None for one in expected) > 30
    wrong = [
        (one, mine, other)
        for one, mine, other in zip(data, found, expected, strict=True)
        if mine != other and not (mine is None and is_cut(one))
    ]
    assert wrong == []


def test_records_of_every_size_have_the_right_crc(tmp_path):
    """The CRC is made in three parts of 2048 bytes; a changed bit is found in each."""
    noise = random.Random(1).randbytes(20000)
    sizes = [*range(0, 20), *range(6050, 6160), *range(12200, 12300, 7), 20000]
    data = [example(noise[:size], label=[size], height=[1]) for size in sizes]
    path = tmp_path / "shard"
    place = places(path, data)

    assert record_op.read(place, "image", KEYS)["label"].numpy().tolist() == sizes

    last = {name: value[-1] for name, value in place.items()}
    begin, sound = int(last["byte_offset"]), path.read_bytes()
    for offset in range(begin + 12, len(sound), 997):
        changed = bytearray(sound)
        changed[offset] ^= 1 << offset % 8
        path.write_bytes(changed)
        with pytest.raises(tf.errors.DataLossError, match="the CRC of the data"):
            record_op.read(last, "image", KEYS)


def test_a_crop_of_a_record_is_that_of_its_image(tmp_path):
    data = [example(make_jpeg(n), label=[n], height=[32]) for n in range(3)]
    place = places(tmp_path / "shard", data)
    boxes = tf.constant([[0, 0, 32, 40], [3, 5, 20, 9], [31, 39, 1, 1]])

    found = record_op.read(place, "image", KEYS)

    assert found["label"].numpy().tolist() == [0, 1, 2]
    expected = tf.constant([make_jpeg(n) for n in range(3)])
    images = [
        crop_image(encoded, boxes, 8, crop_op="native", jpeg_only=True).numpy()
        for encoded in (found["image"], expected)
    ]
    assert images[0].tolist() == images[1].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"byte_offset": -1}, "must be within the file"),
        ({"byte_offset": 1 << 60}, "must be within the file"),
        ({"num_bytes": 1 << 60}, "must be within the file"),
        ({"num_bytes": -1}, "must be within the file"),
        ({"num_bytes": 15}, "must be within the file"),
        ({"num_bytes": 20}, "its length must be 4, got"),
        ({"byte_offset": 1}, "header"),
    ],
)
def test_a_wrong_place_is_an_error(tmp_path, change, message):
    data = [example(JPEG, label=[1], height=[32])] * 2
    place = {n: v[0] for n, v in places(tmp_path / "shard", data).items()}
    place |= {
        name: tf.constant(value, place[name].dtype) for name, value in change.items()
    }

    with pytest.raises(tf.errors.DataLossError, match=message):
        record_op.read(place, "image", KEYS)
    held = place | {"held": record_op.hold(place)}
    with pytest.raises(tf.errors.DataLossError, match=message):
        record_op.read(held, "image", KEYS)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/no/such/file", "No such file"),
        ("/", "Is a directory"),
        ("/bin/sh/x", "Not a"),
    ],
)
def test_a_file_that_cannot_be_read_is_no_damage(path, message):
    place = {"path": [path], "byte_offset": [0], "num_bytes": [20]}
    place = {
        n: tf.constant(v, None if n == "path" else tf.int64) for n, v in place.items()
    }

    for read in (
        lambda: record_op.read(place, "image", KEYS),
        # A held record says why there is none, so that a cache can be asked for it.
        lambda: record_op.held_bytes(record_op.hold(place)),
        lambda: record_op.read(place | {"held": record_op.hold(place)}, "image", KEYS),
    ):
        with pytest.raises(tf.errors.UnavailableError, match=f"{path}.*{message}"):
            read()


def target(descriptor):
    """Returns the path of a descriptor, and nothing without such a descriptor."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:
        return ""


def test_a_process_holds_few_files(tmp_path):
    """The limit holds for all calls together, and for calls with more files."""
    data = [example(JPEG, label=[1], height=[32])]
    shards = [places(tmp_path / f"shard{n}", data) for n in range(200)]
    place = {n: tf.concat([shard[n] for shard in shards], 0) for n in shards[0]}

    def held():
        record_op.read_ahead(place["path"], [0] * 200, place["num_bytes"])
        assert len(record_op.read(place, "image", KEYS)["label"]) == 200
        # A new file takes the lowest number that is free, so none of them is counted
        # twice. To list the folder would take a number too.
        return sum(str(tmp_path) in target(number) for number in range(1000))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        counts = [count.result() for count in [pool.submit(held) for _ in range(16)]]
    assert 0 < max(counts) <= 64


def test_no_records_and_shapes_that_differ(tmp_path):
    place = places(tmp_path / "shard", [example(JPEG, label=[1], height=[32])] * 2)
    none = {name: value[:0] for name, value in place.items()}

    assert record_op.read(none, "image", KEYS)["label"].shape == [0]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        record_op.read(place | {"num_bytes": place["num_bytes"][:1]}, "image", KEYS)
    assert int(record_op.read_ahead(*(value[:0] for value in place.values()))) == 0
    assert record_op.hold(none).shape == [0]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        record_op.read(place | {"held": record_op.hold(none)}, "image", KEYS)
    with pytest.raises(tf.errors.DataLossError, match="holds no"):
        record_op.held_bytes(
            tf.raw_ops.EmptyTensorList(
                element_shape=tf.constant([], tf.int32),
                max_num_elements=1,
                element_dtype=tf.int64,
            )
        )
    size = int(place["num_bytes"][0])
    assert int(record_op.read_ahead(place["path"], [0, -5], [size, 9])) == size
