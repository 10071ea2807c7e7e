"""The first sound record says which features there are; others say nothing."""

import re

import pytest

from tfpipe.shards import example, first_record
from tfpipe.shards.records import Record

WANTED = {"label": ("label_key", "int64", 1)}


def record_of(key: str, *, fault: str = "") -> tuple[str, Record]:
    data = b"".join(example.encode_example({key: example.int64_feature([3])}))
    return "train-0", Record(7, len(data), data, fault)


EMPTY = ("train-0", Record(0, 16, b"", ""))
UNREADABLE = ("train-0", Record(0, 16, b"\xff\xff", ""))


@pytest.mark.parametrize(
    "before", [record_of("other", fault="a wrong CRC"), EMPTY, UNREADABLE]
)
def test_records_without_sound_features_are_passed_over(before) -> None:
    first_record.require([before, record_of("label")], owner="Parse", wanted=WANTED)

    with pytest.raises(ValueError, match=r"Parse.label_key .*train-0 at byte 7"):
        first_record.require([before, record_of("class")], owner="Parse", wanted=WANTED)


def test_nothing_is_said_without_a_sound_record() -> None:
    records = [EMPTY] * first_record.MAX_LOOKED_AT + [record_of("other")]

    first_record.require(records, owner="Parse", wanted=WANTED)


FEATURES = {
    "box": example.int64_feature([1, 2]),
    "clas": example.int64_feature([3]),
    "image/encoded": example.bytes_feature(b"\xff\xd8" + b"0" * 40),
    "image/image": example.bytes_feature(b"JPEG"),
    "nothing": [b""],
    "score": example.float_feature([0.5]),
}


def test_a_feature_that_does_not_fit_is_named_with_the_remedy() -> None:
    data = b"".join(example.encode_example(FEATURES))
    shown = repr(b"\xff\xd8" + b"0" * 30)
    for key, argument, kind, count, said in (
        ("clas", "label_key", "int64", 1, ""),
        ("box", "label_key", "int64", None, ""),
        ("nothing", "extra", "int64", None, ""),
        ("zzz", "extra", "bytes", 1, "missing. The first"),
        ("class", "label_key", "int64", 1, "missing. Did you mean 'clas'? The"),
        ("scor", "extra", "int64", 1, "missing. The first"),  # of another kind
        ("boxe", "extra", "int64", 1, "missing. The first"),  # of another length
        ("boxe", "extra", "int64", None, "missing. Did you mean 'box'? The"),
        (
            *("image", "image_key", "bytes", 1),  # the larger one comes first
            "Did you mean 'image/encoded' or 'image/image'? The first",
        ),
        ("score", "extra", "int64", 1, "hold int64, got float such as 0.5. The first"),
        ("image/encoded", "extra", "int64", 1, f"got bytes such as {shown}. The first"),
        ("image/image", "label_key", "int64", 1, "b'JPEG'. A label is a whole number"),
        ("score", "label_key", "int64", 1, "float such as 0.5. The first"),
        ("box", "extra", "int64", 1, "must have 1 values, got 2. The first"),
        ("box", "label_key", "int64", 1, "got 2. For any number of labels write"),
    ):
        first = [("train-0", Record(7, len(data), data, ""))]
        wanted = {key: (argument, kind, count)}
        if not said:
            first_record.require(first, owner="Parse", wanted=wanted)
            continue
        with pytest.raises(ValueError, match=re.escape(said)) as raised:
            first_record.require(first, owner="Parse", wanted=wanted)
        assert str(raised.value).startswith(f"Parse.{argument} names {key!r}, which ")
        assert str(raised.value).endswith(
            "The first record, train-0 at byte 7, has 'box' (int64, 2), 'clas' "
            "(int64, 1), 'image/encoded' (bytes, 1), 'image/image' (bytes, 1), "
            "'nothing' (empty, 0), 'score' (float, 1)."
        )


def test_a_record_of_many_keys_is_listed_in_part() -> None:
    for num_keys, end in ((40, "'k39' (int64, 1)."), (42, "'k39' (int64, 1), 2 more.")):
        features = {f"k{n:02}": example.int64_feature([n]) for n in range(num_keys)}
        data = b"".join(example.encode_example(features))
        with pytest.raises(ValueError, match="is missing") as raised:
            first_record.require(
                [("train-0", Record(0, len(data), data, ""))],
                owner="Parse",
                wanted=WANTED,
            )
        assert str(raised.value).endswith(end)


def test_numbers_of_the_first_sound_records() -> None:
    text = b"".join(example.encode_example({"label": example.bytes_feature(b"cat")}))
    others = [UNREADABLE, EMPTY, record_of("other"), ("a", Record(0, 9, text, ""))]
    many = [record_of("label")] * first_record.MAX_LOOKED_AT

    assert [*first_record.values([*others, *many], "label")] == [[3]] * (
        first_record.MAX_LOOKED_AT - len(others)
    )


def test_rows_are_told_from_lists_of_labels() -> None:
    for rows, num_classes, is_one_hot in (
        ([[0, 1, 0], [1, 1, 0]], None, True),
        ([[0, 1, 0], [1, 1, 0]], 3, True),
        ([[0, 1, 0], [1, 1, 0]], 4, False),
        ([[0, 1]], None, False),  # two labels as well
        ([[0, 1]], 2, True),
        ([[1], [0]], None, False),
        ([[1, 1, 1]], None, True),
        ([[0, 0, 0]], None, True),
        ([[0, 1, 2]], None, False),
        ([[0, 1, -1]], None, False),
        ([[0, 1, 0], [1, 0]], None, False),
        ([[0, 1, 0], [1, 0]], 3, False),
        ([], None, False),
        ([], 0, False),
    ):
        case = rows, num_classes
        assert first_record.is_one_hot(rows, num_classes) is is_one_hot, case
