"""converters.jobs.duplicates: copies are left out before the plan is made."""

import pathlib

import pytest

from converters.inputs.image import Image
from converters.jobs import duplicates
from tests.support.data.conversions import read_ilsvrc
from tests.support.data.trees import make_jpeg, make_tree
from tfpipe.location.location import Location


@pytest.fixture
def tree_dir(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two copies in one class, one in another, one in the validation split."""
    folder = make_tree(tmp_path, num_images=4, num_validation_images=1)
    same = make_jpeg(99)
    for name in ("n01440764/a", "n01440764/b", "n01443537/c"):
        (folder / "train" / f"{name}.JPEG").write_bytes(same)
    (folder / "val" / "ILSVRC2012_val_00000001.JPEG").write_bytes(same)
    return folder


@pytest.mark.parametrize(
    ("which", "left_out"),
    [
        # The validation image, of class n01440764, is kept.
        ("same_class", ["train/n01440764/a.JPEG", "train/n01440764/b.JPEG"]),
        (
            "all",
            [
                "train/n01440764/a.JPEG",
                "train/n01440764/b.JPEG",
                "train/n01443537/c.JPEG",
            ],
        ),
    ],
)
def test_copies_are_left_out(
    tree_dir: pathlib.Path, which: str, left_out: list[str]
) -> None:
    tree = read_ilsvrc(tree_dir)

    unique = duplicates.drop(Location(str(tree_dir)), tree.splits, which, num_workers=1)

    assert [reject["name"] for reject in unique.rejects] == left_out
    assert {reject["detail"] for reject in unique.rejects} == {
        "equal to val/ILSVRC2012_val_00000001.JPEG"
    }
    kept = {image.name for images in unique.splits.values() for image in images}
    everything = {image.name for images in tree.splits.values() for image in images}
    assert kept == everything - set(left_out)


def test_files_that_are_read_in_pieces_have_the_same_copies(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files above 2 GiB are read in pieces: one system call cannot read them."""
    contents = {"a": b"1234567890", "b": b"1234567890", "c": b"1234567891", "d": b""}
    found = []
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        found.append(Image(name, 0, name, 0, len(content)))
    monkeypatch.setattr(duplicates, "_PIECE_BYTES", 3)

    unique = duplicates.drop(Location(str(tmp_path)), {"train": found}, "all", 1)

    assert [reject["name"] for reject in unique.rejects] == ["b"]


@pytest.mark.parametrize("which", ["same_class", "all"])
def test_the_copy_of_test_stays_before_validation_before_train(
    tmp_path: pathlib.Path, which: str
) -> None:
    splits = {}
    for split in ("train", "validation", "test"):
        (tmp_path / split).write_bytes(b"the same")
        splits[split] = [Image(split, 0, split, 0, 8)]

    unique = duplicates.drop(Location(str(tmp_path)), splits, which, 1)

    assert {split: len(images) for split, images in unique.splits.items()} == {
        "train": 0,
        "validation": 0,
        "test": 1,
    }
