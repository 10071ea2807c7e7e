"""converters.inputs.archives.numbered: classes that are numbers."""

import pytest

from converters.inputs.archives import numbered
from converters.inputs.classtree import ClassTree, Place

PLACES = [Place(f"{n}.jpg", "x.tar", n, 1) for n in range(4)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["0", "10", "2"], True),
        (["7"], True),
        (["007"], False),
        (["-1"], False),
        (["1", "cat"], False),
        (["²"], False),
        (["9999999999"], False),
    ],
)
def test_numbers_are_told_from_names(names: list[str], expected: bool) -> None:
    assert numbered.are_numbers(names) == expected


def test_numbers_are_labels_and_those_without_images_get_one() -> None:
    assert numbered.labels(["10", "2", "0"], None) == {str(n): n for n in range(11)}
    assert numbered.labels(["3", "2"], None) == {"1": 1, "2": 2, "3": 3}
    assert numbered.labels(["0", "1"], 1) == {"0": 1, "1": 2}
    assert numbered.labels(["1", "2"], 0) == {"1": 0, "2": 1}
    with pytest.raises(ValueError, match="at most 1,000,000, got 1000001"):
        numbered.labels(["1000001"], None)


def test_names_replace_numbers() -> None:
    tree = ClassTree({"train": {"10": PLACES[:2], "2": PLACES[2:]}}, [])
    names = {2: "dog", 10: "cat"}

    found = numbered.named(tree, names, where="labels.txt")

    assert found.splits == {"train": {"cat": PLACES[:2], "dog": PLACES[2:]}}
    assert numbered.labels_of_names({0: "b", 1: "a"}, None) == {"b": 0, "a": 1}
    assert numbered.labels_of_names({0: "b", 1: "a"}, 1) == {"b": 1, "a": 2}
    with pytest.raises(ValueError, match=r"labels.txt must name .* no name for 10"):
        numbered.named(tree, {2: "dog"}, where="labels.txt")
    with pytest.raises(ValueError, match="must name each class once"):
        numbered.labels_of_names({0: "a", 1: "a"}, None)
