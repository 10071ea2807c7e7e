"""converters.inputs.labels: one rule gives the classes of all readers their labels."""

from collections.abc import Mapping
from typing import Any

import pytest

from converters.inputs import labels
from converters.inputs.classes import ClassList
from converters.inputs.image import NO_CLASS, Image
from converters.inputs.listed import Listed
from converters.inputs.meaning import USUAL, Meaning
from tfpipe.location.location import Location

IMAGES = [Image(f"{n}.jpg", NO_CLASS, "x.tar", n, 1) for n in range(4)]


def listed(
    *labels: str, names: Mapping[int, str] = {}, several: Mapping[str, list[str]] = {}
) -> Listed:
    splits = {"train": dict.fromkeys(labels, IMAGES[:1])}
    classes = ClassList("labels.txt", names)
    return Listed(Location("in"), splits, classes=classes, several=several)


def given(source: Listed, **options: Any) -> dict[str, int]:
    return dict(labels.give_labels(source, Meaning(**options)).labels)


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        (("b", "a"), {}, {"a": 1, "b": 2}),
        (("b", "a"), {"label_base": 0}, {"a": 0, "b": 1}),
        (("10", "2", "0"), {}, {str(n): n for n in range(11)}),
        (("3", "2"), {}, {"1": 1, "2": 2, "3": 3}),
        (("0", "1"), {"label_base": 1}, {"0": 1, "1": 2}),
        (("1", "2"), {"label_base": 0}, {"0": 0, "1": 1, "2": 2}),
        (("10", "2"), {"label_type": "text"}, {"10": 1, "2": 2}),
        (("007", "12"), {}, {"007": 1, "12": 2}),
    ],
)
def test_classes_get_labels(names, options, expected) -> None:
    assert given(listed(*names), **options) == expected


@pytest.mark.parametrize(
    ("names", "lines", "expected"),
    [
        (("b", "a"), "0 b\n1 a\n", {"b": 0, "a": 1}),
        (("b", "a"), "b\na\n", {"b": 1, "a": 2}),
        (("0", "1"), "0 cat\n1 dog\n", {"cat": 0, "dog": 1}),  # names of the numbers
        (("5", "7"), "0 5\n1 7\n", {"5": 0, "7": 1}),  # labels of these very classes
    ],
)
def test_a_label_map_gives_labels_or_names(tmp_path, names, lines, expected) -> None:
    path = tmp_path / "map"
    path.write_text(lines)

    assert given(listed(*names), label_map=path) == expected


def test_names_replace_numbers() -> None:
    splits = {"train": {"10": IMAGES[:2], "2": IMAGES[2:]}}
    names = {2: "dog", 10: "cat"}
    source = Listed(Location("in"), splits, classes=ClassList("labels.txt", names))

    renamed = source.named()

    assert renamed.splits == {"train": {"cat": IMAGES[:2], "dog": IMAGES[2:]}}
    assert given(source) == {"dog": 1, "cat": 2}
    assert given(listed("1", names={0: "b", 1: "a"})) == {"b": 0, "a": 1}
    assert given(listed("1", names={0: "b", 1: "a"}), label_base=1) == {"b": 1, "a": 2}
    with pytest.raises(ValueError, match=r"labels.txt must name .* no name for 10"):
        source.with_list(ClassList("labels.txt", {2: "dog"})).named()
    with pytest.raises(ValueError, match="must name each class once"):
        given(listed("1", names={0: "a", 1: "a"}))


def test_classes_that_no_image_has_first_get_labels_and_names() -> None:
    source = listed("0", several={"0.jpg": ["0", "2"]}, names={0: "a", 1: "b", 2: "c"})

    assert source.class_names() == ["0", "2"]
    found = labels.give_labels(source, USUAL)
    assert found.labels == {"a": 0, "b": 1, "c": 2}
    assert found.listed.several == {"0.jpg": ["a", "c"]}
