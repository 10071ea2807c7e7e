"""Trees as other tools lay them out: their splits, their classes, and what is no class.

A line of the table is a layout: the files, the splits with their classes, the names
that are left out, or the error.
"""

import pathlib
from collections.abc import Sequence

import pytest

from converters.inputs.classtree import TreeReader
from converters.inputs.listed import Listed
from converters.inputs.meaning import USUAL, Meaning, disagreements
from tests.support.data.conversions import read_listed

LAYOUTS = {
    "Roboflow": (
        ("train/cat/1.jpg", "valid/cat/2.jpg", "test/cat/3.jpg", "README.roboflow.txt"),
        {"train": ["cat"], "validation": ["cat"], "test": ["cat"]},
        ["README.roboflow.txt"],
    ),
    "Kaggle's test images without classes": (
        ("train/cat/1.jpg", "test/3.jpg"),
        {"train": ["cat"]},
        ["test/"],
    ),
    "one folder above the splits": (
        ("data/train/cat/1.jpg", "data/val/cat/2.jpg", "README.txt"),
        {"train": ["cat"], "validation": ["cat"]},
        ["README.txt"],
    ),
    "two folders above the splits": (
        ("a/b/train/cat/1.jpg", "a/b/test/cat/2.jpg", "a/note.txt", "a/b/other/x.jpg"),
        {"train": ["cat"], "test": ["cat"]},
        ["a/b/other/", "a/note.txt"],
    ),
    "one folder above the classes": (
        ("data/cat/1.jpg", "data/dog/2.jpg"),
        {"train": ["data/cat", "data/dog"]},
        [],
    ),
    "folders of an archive that have the name of their split": (
        ("train/train/cat/1.jpg", "test/test/cat/2.jpg", "test/note.txt"),
        {"train": ["cat"], "test": ["cat"]},
        ["test/note.txt"],
    ),
    "a class with the name of its split": (
        ("test/test tube/1.jpg", "train/test tube/2.jpg"),
        {"train": ["test tube"], "test": ["test tube"]},
        [],
    ),
    "a class that is called train": (
        ("train/1.jpg", "car/2.jpg", "bus/3.jpg"),
        {"train": ["bus", "car", "train"]},
        [],
    ),
    "an archive of macOS": (
        ("train/cat/1.jpg", "test/cat/2.jpg", "__MACOSX/train/cat/._1.jpg"),
        {"train": ["cat"], "test": ["cat"]},
        ["__MACOSX"],
    ),
    "one folder and folders of systems": (
        (
            *("data/train/cat/1.jpg", "data/test/cat/2.jpg", "@eaDir/cat/1.jpg"),
            *("$RECYCLE.BIN/1.jpg", "lost+found/1.jpg", ".DS_Store", "desktop.ini"),
        ),
        {"train": ["cat"], "test": ["cat"]},
        ["$RECYCLE.BIN", ".DS_Store", "@eaDir", "desktop.ini", "lost+found"],
    ),
    "images beside the classes": (
        ("cat/1.jpg", "dog/2.jpg", "3.jpg", "cat/Thumbs.db"),
        {"train": ["cat", "dog"]},
        ["3.jpg", "cat/Thumbs.db"],
    ),
}


def _write(root: pathlib.Path, names: Sequence[str]) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")


def _read(root: pathlib.Path, meaning: Meaning = USUAL) -> Listed:
    return read_listed(TreeReader(input_dir=str(root)), meaning)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_understood(tmp_path: pathlib.Path, layout: str) -> None:
    names, splits, left_out = LAYOUTS[layout]
    _write(tmp_path, names)

    tree = _read(tmp_path)

    found = {split: [*classes] for split, classes in tree.splits.items()}
    assert found == splits
    assert sorted(item.name for item in tree.left_out) == left_out


@pytest.mark.parametrize(
    ("names", "number"),
    [
        (("train/cat/1.jpg", "unlabeled/2.jpg"), 1),
        (("train/cat/1.jpg", "other/cat/2.jpg", "other/dog/3.jpg"), 1),
        (("train/1.jpg", "train/steam/2.jpg", "car/3.jpg"), 0),
        (("train/1.jpg", "car/new/2.jpg"), 0),
    ],
)
def test_a_split_among_classes_is_warned_about(
    tmp_path: pathlib.Path, names: Sequence[str], number: int
) -> None:
    _write(tmp_path, (*names, "car/4.jpg", "car/5.jpg", "train/steam/6.jpg"))

    all_lines = disagreements(_read(tmp_path).splits, None)

    lines = [line for line in all_lines if "is called as a split" in line]
    assert len(lines) == number
    for line in lines:
        assert line.startswith("The folder train is called as a split, and is a part")
        assert line.endswith("convert the folder alone, with --split=train.")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("images/1.jpg", "a.json"), "got all images in one folder images/"),
        (("val/1.jpg", "labels.txt"), "got all images in one folder val/"),
        (("Train/1.jpg", "Train/2.jpg"), "got all images in one folder Train/"),
        (("train/images/1.jpg", "val/images/2.jpg"), "got all images in one folder im"),
        (("train/1.jpg", "train/metadata.csv", "test/2.jpg"), "converters.table"),
        (("train/cat.1.jpg", "test1/1.jpg"), "must hold a folder for each class"),
        (("train/1.jpg", "test/2.jpg"), "a class and no split, say --no_split_names"),
        (("train/a/1.jpg", "Training/a/2.jpg"), "must hold one train split"),
    ],
)
def test_a_layout_without_classes_is_refused(
    tmp_path: pathlib.Path, names: Sequence[str], message: str
) -> None:
    _write(tmp_path, names)

    with pytest.raises(ValueError, match=message):
        _read(tmp_path)


def test_a_class_of_one_image_at_any_depth_below_a_class_is_warned_about(
    tmp_path: pathlib.Path,
) -> None:
    _write(tmp_path, ("cat/1.jpg", "cat/2.jpg", "cat/a/b/3.jpg", "dog/4.jpg"))

    (line,) = disagreements(_read(tmp_path).splits, None)

    assert line.startswith("The class 'cat/a/b' has one image, and lies in the folder")
    assert "--class_depth=1 takes the folders" in line


def test_the_only_folder_is_a_class_if_the_user_says_so(tmp_path: pathlib.Path) -> None:
    for name in ("images", "val"):
        _write(tmp_path / "of" / name, (f"{name}/1.jpg",))

        tree = _read(tmp_path / "of" / name, Meaning(class_depth=1))

        assert [*tree.splits["train"]] == [name]


def test_folders_above_that_lead_to_themselves_end(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").symlink_to(tmp_path / "a", target_is_directory=True)

    with pytest.raises(ValueError, match="must hold a folder for each class"):
        _read(tmp_path)
