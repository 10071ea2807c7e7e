"""Features of an example that are found and replaced without decoding the others."""

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies

from tests.support.data.odd_examples import ODD
from tfpipe import errors
from tfpipe.shards import example

_FEATURES = strategies.sampled_from(
    [
        example.bytes_feature(b""),
        example.bytes_feature(b"x" * 120),
        example.bytes_feature(b"\x0a" * 20_000),
        example.int64_feature([]),
        example.int64_feature([3, -1]),
        example.float_feature([0.5] * 40),
    ]
)
_KEYS = ("", "a", "image/encoded", "\u00e9", "y" * 127, "y" * 128, "z" * 300)
_EXAMPLES = strategies.dictionaries(strategies.sampled_from(_KEYS), _FEATURES)


@hypothesis.given(_EXAMPLES, strategies.data())
def test_replaced_features_leave_all_others_byte_for_byte(
    features: dict[str, example.Buffers], data: strategies.DataObject
) -> None:
    keys = [*features]
    keys = data.draw(strategies.lists(strategies.sampled_from(keys))) if keys else []
    new = {key: data.draw(_FEATURES) for key in keys}
    content = b"".join(example.encode_example(features))

    found = example.locate(content)

    assert b"".join(found.replaced({})) == content
    assert set(found.entries) == set(features)
    decoded = example.decode_example(content)
    assert {key: found.feature(key) for key in new} == {k: decoded[k] for k in new}
    made = b"".join(found.replaced(new))
    assert made == b"".join(example.encode_example(features | new))


def test_other_forms_of_an_example_are_brought_into_the_usual_one() -> None:
    entries = {
        key: b"".join(example.encode_entry(key, example.bytes_feature(value)))
        for key, value in {"b": b"old", "a": b"1", "z" * 200: b"2", "": b"3"}.items()
    }
    twice = b"".join(example.encode_entry("b", example.bytes_feature(b"new")))
    # Unsorted keys, a key that is there twice, and features in two messages.
    first = b"".join(entries.values())
    content = b"".join(
        [
            example.example_head(len(first)),
            first,
            example.example_head(len(twice)),
            twice,
        ]
    )

    found = example.locate(content)

    assert found.feature("b").values == [b"new"]
    made = b"".join(found.replaced({"b": example.bytes_feature(b"other")}))
    wanted = example.decode_example(content) | {
        "b": example.Feature("bytes", [b"other"])
    }
    assert example.decode_example(made) == wanted


@hypothesis.given(_EXAMPLES, strategies.data())
def test_damaged_examples_are_refused_or_read_as_they_decode(
    features: dict[str, example.Buffers], data: strategies.DataObject
) -> None:
    content = bytearray(b"".join(example.encode_example(features)))
    hypothesis.assume(content)
    place = data.draw(strategies.integers(0, len(content) - 1))
    content[place] = data.draw(strategies.integers(0, 255))
    content = content[: data.draw(strategies.integers(0, len(content)))]

    try:
        decoded = example.decode_example(bytes(content))
    except errors.BadRecordError:
        decoded = None
    try:
        found = example.locate(bytes(content))
    except errors.BadRecordError:
        assert decoded is None
        return
    if decoded is not None:
        made = b"".join(found.replaced({}))
        assert example.decode_example(made) == decoded


@pytest.mark.parametrize("content", [b"\xff", b"\x0a\x05", b"\x0a\x03\x0a\x05\x0a"])
def test_bytes_that_are_no_example_are_refused(content: bytes) -> None:
    with pytest.raises(errors.BadRecordError, match=r"not a tf\.train\.Example"):
        example.locate(content)


def test_fields_that_no_example_has_are_passed_over() -> None:
    wanted = {"a": example.Feature("bytes", [b"x"])}
    entry = b"".join(example.encode_entry("a", example.bytes_feature(b"x")))
    # Field 9 as a varint, 8 bytes, a string, and 4 bytes.
    others = (b"\x48\x05", b"\x49" + bytes(8), b"\x4a\x02ab", b"\x4d" + bytes(4))
    data = example.example_head(len(entry)) + entry
    for other in others:
        for content in (other + data, data + other):
            assert example.decode_example(content) == wanted
            assert example.locate(content).feature("a") == wanted["a"]
    for cut in (b"\x49" + bytes(7), b"\x4d" + bytes(3)):
        with pytest.raises(errors.BadRecordError, match="ends beyond its message"):
            example.decode_example(cut)


def _by_tensorflow(content: bytes) -> dict[str, list[object]] | None:
    """The values of an example as `tf.io.parse_example` reads them."""
    kinds = {"image": tf.string, "height": tf.int64, "label": tf.int64}
    keys = {
        key: tf.io.FixedLenSequenceFeature([], kind, allow_missing=True)
        for key, kind in kinds.items()
    }
    try:
        parsed = tf.io.parse_single_example(content, keys)
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # in the message
        return None
    return {key: value.numpy().tolist() for key, value in parsed.items()}


@pytest.mark.parametrize("name", ODD)
def test_examples_decode_as_tensorflow_parses_them(name: str) -> None:
    wanted = _by_tensorflow(ODD[name])
    kinds = {"image": "bytes", "height": "int64", "label": "int64"}
    try:
        decoded = example.decode_example(ODD[name])
        found = example.locate(ODD[name])
        located = {key: found.feature(key) for key in found.entries}
    except errors.BadRecordError:
        assert wanted is None
        return

    assert located == decoded
    known = kinds.keys() & decoded.keys()
    wrong_kind = any(decoded[key].kind not in (kinds[key], "empty") for key in known)
    if wanted is None:
        assert wrong_kind
    else:
        empty = example.Feature("empty", [])
        assert {key: decoded.get(key, empty).values for key in kinds} == wanted
        assert not wrong_kind
