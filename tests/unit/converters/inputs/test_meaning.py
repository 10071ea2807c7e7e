"""converters.inputs.meaning: the rules of labels and classes, as tables."""

import doctest

import pytest

from converters.inputs import meaning


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (["0", "1", "10"], "number"),
        (["7"], "number"),
        (["cat", "dog"], "text"),
        (["007", "008"], "text"),
        (["007", "12"], "text"),  # a leading zero makes all of them names
        (["1.10", "1.9"], "text"),
        (["1", "1.5"], "text"),
        (["-1"], "text"),
        (["true", "false"], "text"),
        (["01/02/2020"], "text"),
        (["\u0661"], "text"),  # a digit, and no plain integer
        ([], "text"),
    ],
)
def test_all_labels_decide_about_their_type(labels: list[str], kind: str) -> None:
    assert meaning.label_type(labels, None) == kind
    assert meaning.label_type(labels, "text") == "text"


def test_words_among_numbers_are_an_error_that_counts_both() -> None:
    labels = [*map(str, range(12)), "unknown", "other"]

    with pytest.raises(
        ValueError, match=r"got 12 that are numbers \('0', '1', '2', "
    ) as raised:
        meaning.label_type(labels, None)
    assert "2 that are names ('unknown', 'other')" in str(raised.value)
    assert "--label_type=text" in str(raised.value)
    assert meaning.label_type(labels, "text") == "text"
    with pytest.raises(
        ValueError, match="--label_type=number needs labels that are wh"
    ):
        meaning.label_type(labels, "number")


@pytest.mark.parametrize(
    ("numbers", "base", "labels", "reason"),
    [
        ([0, 2], None, {"0": 0, "1": 1, "2": 2}, "a label is 0"),
        ([2, 1], None, {"1": 1, "2": 2}, "no label is 0"),
        ([3], None, {"1": 1, "2": 2, "3": 3}, "no label is 0"),
        ([1, 2], 0, {"0": 0, "1": 1, "2": 2}, "--label_base=0"),
        ([0, 1], 1, {"0": 1, "1": 2}, "--label_base=1"),
        ([1, 2], 1, {"1": 1, "2": 2}, "--label_base=1"),
    ],
)
def test_numbers_stay_the_labels(
    numbers: list[int], base: int | None, labels: dict[str, int], reason: str
) -> None:
    assert meaning.numbers_as_labels(numbers, base) == (labels, reason)


def test_a_number_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="must be at most 1,000,000, got 1000001"):
        meaning.numbers_as_labels([1, 1_000_001], None)


@pytest.mark.parametrize(
    ("splits", "parts"),
    [
        ({"train": {"a": [1], "b": [1]}, "test": {"a": [1]}}, []),
        ({"train": {"a": [1]}}, []),
        ({"test": {"a": [1]}}, []),
        (
            {"train": {"n1/images": [1, 2]}, "validation": {"images": [1]}},
            ["1 class of the validation split is no class of train, the first is 'ima"],
        ),
        (
            {"train": {"Test/cat": [1], "Test/dog": [1], "x/cat": [1], "x/dog": [1]}},
            ["The folders Test, x hold the same classes, and Test/cat and x/cat are "],
        ),
        (
            {"train": {"d/train/a": [1], "d/test/a": [1], "e": [1, 2]}},
            ["The folders d/test, d/train hold the same classes, and d/train/a and d/"],
        ),
        (
            {"train": {"d/train/a": [1], "d/test/b": [1], "e": [1, 2]}},
            ["The folders d/test, d/train are called as splits, and are parts of cla"],
        ),
        (
            {"train": {f"{a}/{s}": [1] for a in "ab" for s in ("test", "Train")}},
            ["The folders a/Train, a/test are called as splits, and are parts of cla"],
        ),
        ({"train": {"Cat": [1], "cat": [1]}}, ["'Cat' and 'cat' are classes of their"]),
        (
            {"train": {"caf\xe9": [1], "cafe\u0301": [1]}},
            ["'cafe\\u0301' and 'caf\\xe"],
        ),
        ({"train": {"a b": [1], " a  b": [1]}}, ["' a  b' and 'a b' are classes of"]),
        (
            {"train": {"0.0": [1], "10.0": [1]}},
            ["The labels, such as 0.0, are taken f"],
        ),
        ({"train": {"0.0": [1], "1.5": [1]}}, []),
        ({"train": {"a/x": [1, 2], "b/y": [1, 2]}}, []),
        ({"train": {"a": [1, 2], "a/old": [1]}}, ["The class 'a/old' has one image, "]),
    ],
)
def test_splits_that_do_not_fit_together_have_a_line_each(
    splits: dict[str, dict[str, list[int]]], parts: list[str]
) -> None:
    lines = meaning.disagreements(splits, None)

    assert len(lines) == len(parts)
    for line, part in zip(lines, parts, strict=True):
        assert line.startswith(part)


def test_examples_of_the_docstrings_hold() -> None:
    results = doctest.testmod(meaning)

    assert results.attempted == 8
    assert results.failed == 0
