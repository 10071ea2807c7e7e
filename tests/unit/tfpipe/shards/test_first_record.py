"""The first sound record says which features there are; others say nothing."""

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
