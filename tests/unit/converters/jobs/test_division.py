"""jobs.division: the images of each class, divided among splits."""

import collections
import itertools

import pytest

from converters.jobs import division
from tests.support.data.conversions import conversion
from tfpipe.shards.split_names import SPLITS

THREE = {"train": 0.8, "validation": 0.1, "test": 0.1}


def divide(num_images: int, wanted: dict[str, float], seed: int = 0) -> dict[str, str]:
    """Returns the split of each image."""
    names = [f"a/{number}.jpg" for number in range(num_images)]
    return dict.fromkeys(names, "train") | division.held_out(names, wanted, seed)


@pytest.mark.parametrize(
    ("num_images", "wanted", "counts"),
    [
        (0, THREE, (0, 0, 0)),
        (1, THREE, (1, 0, 0)),
        (2, THREE, (1, 1, 0)),
        (3, THREE, (1, 1, 1)),
        (4, THREE, (2, 1, 1)),
        (100, THREE, (80, 10, 10)),
        (15, THREE, (11, 2, 2)),
        (3, {"train": 0.02, "validation": 0.49, "test": 0.49}, (1, 1, 1)),
        (4, {"train": 0.02, "validation": 0.49, "test": 0.49}, (1, 1, 2)),
        (10, {"train": 0.02, "validation": 0.49, "test": 0.49}, (1, 4, 5)),
        (2, {"train": 0.9, "test": 0.1}, (1, 0, 1)),
        (5, {}, (5, 0, 0)),
    ],
)
def test_each_split_gets_its_fraction_and_at_least_one_image(
    num_images: int, wanted: dict[str, float], counts: tuple[int, int, int]
) -> None:
    found = collections.Counter(divide(num_images, wanted).values())

    assert tuple(found[split] for split in SPLITS) == counts


def test_any_class_with_an_image_for_each_split_is_in_each_split() -> None:
    parts = [0.01, 0.2, 0.33, 0.5, 0.98]
    for validation, test in itertools.product(parts, parts):
        if validation + test >= 1:
            continue
        wanted = {
            "train": 1 - validation - test,
            "validation": validation,
            "test": test,
        }
        for num_images in range(3, 40):
            found = divide(num_images, wanted)
            assert set(found.values()) == set(wanted), (num_images, wanted)
            assert len(found) == num_images


def test_the_choice_depends_on_names_and_seed_and_validation_not_on_test() -> None:
    two = divide(50, {"train": 0.9, "validation": 0.1})
    three = divide(50, THREE)
    names = list(three)[::-1]

    again = division.held_out(names, THREE, 0)

    assert dict.fromkeys(names, "train") | again == three
    assert divide(50, THREE, seed=1) != three
    assert [n for n in two if two[n] == "validation"] == [
        n for n in three if three[n] == "validation"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.8", r"must be words such as train=0.8.*got '0.8'"),
        ("train=x", r"got 'train=x'"),
        ("train=0.5,train=0.5", "must give train once, got it twice"),
        ("train=0.8,val=0.2", "must be of train, validation, test, got 'val'"),
        ("train=0.8,test=0.1", r"add up to 1.*got train=0.8,test=0.1.*to 0.9\."),
        ("train=0.8,test=0.3", r"add up to 1.*to 1\.1\."),
        ("train=0,test=1", "above 0 and below 1 each, got train=0"),
        ("train=1", "above 0 and below 1 each, got train=1"),
        ("validation=0.5,test=0.5", "must give train"),
        ("train=nan,test=0.5", "above 0 and below 1 each, got train=nan"),
    ],
)
def test_wrong_fractions_are_errors(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"--split_fractions .*{message}"):
        division.parse(text.split(","))


def test_fractions_that_add_up_but_for_rounding_are_right() -> None:
    thirds = division.parse(
        ["train=0.3333333", "validation=0.3333333", "test=0.3333333"]
    )

    assert list(thirds) == ["train", "validation", "test"]


def test_both_flags_together_are_refused() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        conversion(
            "folder",
            input_dir="in",
            output_dir="out",
            validation_fraction=0.1,
            split_fractions=THREE,
        )
