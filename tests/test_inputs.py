"""converters.inputs: an ImageNet-style tree as named images."""

import os
import pathlib
from collections.abc import Callable

import pytest

from converters import classes, inputs
from tests.conftest import SYNSETS, make_tree

CLASSES = classes.imagenet_classes()


def test_train_folders_and_flat_val_are_listed_in_order(tmp_path: pathlib.Path) -> None:
    make_tree(tmp_path, num_images=5, num_validation_images=2)

    tree = inputs.read_tree(tmp_path, CLASSES)

    assert [(i.name, i.class_index) for i in tree.splits["train"]] == [
        ("train/n01440764/n01440764_0.JPEG", 0),
        ("train/n01440764/n01440764_4.JPEG", 0),
        ("train/n01443537/n01443537_1.JPEG", 1),
        ("train/n01484850/n01484850_2.JPEG", 2),
        ("train/n01491361/n01491361_3.JPEG", 3),
    ]
    assert [(i.name, i.class_index) for i in tree.splits["validation"]] == [
        ("val/ILSVRC2012_val_00000001.JPEG", 0),
        ("val/ILSVRC2012_val_00000002.JPEG", 1),
    ]
    sizes = [(tmp_path / i.name).stat().st_size for i in tree.splits["train"]]
    assert [i.num_bytes for i in tree.splits["train"]] == sizes


def test_val_may_have_class_folders(tmp_path: pathlib.Path) -> None:
    make_tree(tmp_path, num_images=4)
    os.renames(tmp_path / "train" / SYNSETS[3], tmp_path / "val" / SYNSETS[3])

    tree = inputs.read_tree(tmp_path, CLASSES)

    assert [i.class_index for i in tree.splits["validation"]] == [3]
    assert len(tree.splits["train"]) == 3


def test_tree_without_val_has_one_split(tmp_path: pathlib.Path) -> None:
    make_tree(tmp_path, num_images=4)

    assert list(inputs.read_tree(tmp_path, CLASSES).splits) == ["train"]


def test_other_names_are_counted_and_case_does_not_matter(
    tmp_path: pathlib.Path,
) -> None:
    make_tree(tmp_path, num_images=4)
    folder = tmp_path / "train" / SYNSETS[0]
    (folder / "a.jpg").write_bytes(b"x")
    (folder / "b.Jpeg").write_bytes(b"x")
    (folder / "notes.txt").write_bytes(b"")

    tree = inputs.read_tree(tmp_path, CLASSES)

    assert len(tree.splits["train"]) == 6
    assert tree.num_ignored == 1


def _remove_train(root: pathlib.Path) -> None:
    os.rename(root / "train", root / "training")


def _empty_train(root: pathlib.Path) -> None:
    _remove_train(root)
    (root / "train").mkdir()


def _no_images(root: pathlib.Path) -> None:
    _empty_train(root)
    (root / "train" / SYNSETS[0]).mkdir()


def _unknown_class(root: pathlib.Path) -> None:
    (root / "train" / "cats").mkdir()


def _no_labels(root: pathlib.Path) -> None:
    (root / "synset_labels.txt").unlink()


def _short_labels(root: pathlib.Path) -> None:
    (root / "synset_labels.txt").write_text("n01440764\n")


def _long_labels(root: pathlib.Path) -> None:
    (root / "synset_labels.txt").write_text("n01440764\n" * 4)


def _wrong_label(root: pathlib.Path) -> None:
    (root / "synset_labels.txt").write_text("n01440764\nn0\nn01440764\n")


def _zero_bytes(root: pathlib.Path) -> None:
    (root / "train" / SYNSETS[1] / "n01443537_1.JPEG").write_bytes(b"")


def _dangling_link(root: pathlib.Path) -> None:
    (root / "train" / SYNSETS[1] / "gone.JPEG").symlink_to(root / "nowhere")


def _folder_named_like_an_image(root: pathlib.Path) -> None:
    (root / "train" / SYNSETS[1] / "x.JPEG").mkdir()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_remove_train, "train must hold a folder for each class.* got no such folder"),
        (_empty_train, "train must hold a folder for each class.* got no folder"),
        (_no_images, r"must hold images named \*\.JPEG.* got none"),
        (_unknown_class, "class folders that are not in the class list.* cats"),
        (_no_labels, "synset_labels.txt must give the synset of each file"),
        (_short_labels, "a line for each of the 3 images in .*val, got 1"),
        (_long_labels, "a line for each of the 3 images in .*val, got 4"),
        (_wrong_label, "line 2: n0 is not in the class list"),
        (_zero_bytes, "n01443537_1.JPEG must be a JPEG file, got 0 bytes"),
        (_dangling_link, "gone.JPEG cannot be read: No such file"),
        (_folder_named_like_an_image, "x.JPEG must be a file, got a folder"),
    ],
)
def test_bad_tree_is_an_error_that_names_the_place(
    tmp_path: pathlib.Path, damage: Callable[[pathlib.Path], None], message: str
) -> None:
    make_tree(tmp_path, num_images=8, num_validation_images=3)
    damage(tmp_path)

    with pytest.raises(ValueError, match=message):
        inputs.read_tree(tmp_path, CLASSES)


def test_missing_folder_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        ValueError, match=r"--input_dir must be a folder.*no such folder"
    ):
        inputs.read_tree(tmp_path / "nowhere", CLASSES)
