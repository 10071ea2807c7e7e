"""converters.inputs.classes: synsets, labels and names."""

import pathlib

import pytest

from converters.inputs import classes
from tests.support.data.trees import folder_at


def test_imagenet_has_1000_classes_from_label_1() -> None:
    result = classes.imagenet_classes()

    assert [item.label for item in result] == list(range(1, 1001))
    assert (result[0].synset, result[0].text) == ("n01440764", "tench")
    assert (result[-1].synset, result[-1].text) == ("n15075141", "toilet tissue")
    assert [item.synset for item in result] == sorted({item.synset for item in result})


def test_tree_without_a_list_has_the_classes_of_imagenet(
    tmp_path: pathlib.Path,
) -> None:
    assert classes.read_classes(folder_at(tmp_path)) == classes.imagenet_classes()


def test_own_list_gives_labels_in_its_order(tmp_path: pathlib.Path) -> None:
    (tmp_path / "synsets.txt").write_text("zebra\nant\n")
    (tmp_path / "synset_words.txt").write_text("ant\tan insect, small\n")

    assert classes.read_classes(folder_at(tmp_path)) == [
        classes.Class(1, "zebra", "zebra"),
        classes.Class(2, "ant", "an insect, small"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one synset a line, got none"),
        ("ant\nbee\nant\n", "each synset once, got ant 2 times"),
    ],
)
def test_bad_list_is_an_error(tmp_path: pathlib.Path, text: str, message: str) -> None:
    (tmp_path / "synsets.txt").write_text(text)

    with pytest.raises(ValueError, match=message):
        classes.read_classes(folder_at(tmp_path))
