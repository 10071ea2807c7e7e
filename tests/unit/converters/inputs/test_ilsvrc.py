"""converters.inputs.ilsvrc: an ImageNet-style tree as named images."""

import json
import os
import pathlib
import tracemalloc
from collections.abc import Callable

import pytest

from converters.inputs import classes, ilsvrc
from converters.inputs.image import NO_CLASS, catalog_name, read_image, whole_file
from converters.jobs.again import Again
from tests.support.data.conversions import read_ilsvrc, read_listed
from tests.support.data.trees import SYNSETS, make_tree
from tfpipe.location.location import Location
from tfpipe.shards import index
from tfpipe.shards.sql import read_files

CLASSES = classes.imagenet_classes()


def test_train_folders_and_flat_val_are_listed_in_order(tmp_path: pathlib.Path) -> None:
    make_tree(tmp_path, num_images=5, num_validation_images=2)

    tree = read_ilsvrc(tmp_path)

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


@pytest.mark.parametrize("name", ["validation", "Val_set"])
def test_a_validation_split_of_another_name_is_warned_about(
    tmp_path: pathlib.Path, name: str
) -> None:
    for split in ("train", name):
        (tmp_path / split / "n01440764").mkdir(parents=True)
        (tmp_path / split / "n01440764" / "1.JPEG").write_bytes(b"x")
    reader = ilsvrc.IlsvrcReader(input_dir=str(tmp_path))

    (line,) = read_listed(reader).warnings
    assert "is called as the validation split, and is not read: rename it" in line
    (tmp_path / name).rename(tmp_path / "val")
    assert read_listed(reader).warnings == []


def test_val_may_have_class_folders(tmp_path: pathlib.Path) -> None:
    make_tree(tmp_path, num_images=4)
    os.renames(tmp_path / "train" / SYNSETS[3], tmp_path / "val" / SYNSETS[3])

    tree = read_ilsvrc(tmp_path)

    assert [i.class_index for i in tree.splits["validation"]] == [3]
    assert len(tree.splits["train"]) == 3


def test_tree_without_val_has_one_split(tmp_path: pathlib.Path) -> None:
    make_tree(tmp_path, num_images=4)

    assert list(read_ilsvrc(tmp_path).splits) == ["train"]


def test_other_names_are_counted_and_case_does_not_matter(
    tmp_path: pathlib.Path,
) -> None:
    make_tree(tmp_path, num_images=4)
    folder = tmp_path / "train" / SYNSETS[0]
    (folder / "a.jpg").write_bytes(b"x")
    (folder / "b.Jpeg").write_bytes(b"x")
    (folder / "notes.txt").write_bytes(b"")

    tree = read_ilsvrc(tmp_path)

    assert len(tree.splits["train"]) == 6
    assert tree.ignored == {"other_name": 1}


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


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_remove_train, "train must hold a folder for each class.*got no such folder"),
        (_empty_train, "train must hold a folder for each class.*got no folder"),
        (_no_images, r"must hold images named \*\.JPEG.* got none"),
        (_unknown_class, "class folders that are not in the class list.* cats"),
        (_no_labels, "synset_labels.txt must give the synset of each"),
        (_short_labels, "a line for each of the 3 images in .*val, got 1"),
        (_long_labels, "a line for each of the 3 images in .*val, got 4"),
        (
            _wrong_label,
            "n0, the class of val/ILSVRC2012_val_00000002.JPEG, is not in the class",
        ),
    ],
)
def test_bad_tree_is_an_error_that_names_the_place(
    tmp_path: pathlib.Path, damage: Callable[[pathlib.Path], None], message: str
) -> None:
    make_tree(tmp_path, num_images=8, num_validation_images=3)
    damage(tmp_path)

    with pytest.raises(ValueError, match=message):
        read_ilsvrc(tmp_path)


def test_missing_folder_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        ValueError, match=r"--input_dir must be a folder.*no such folder"
    ):
        read_ilsvrc(tmp_path / "nowhere")


def test_names_without_a_file_are_counted_and_empty_files_are_listed(
    tmp_path: pathlib.Path,
) -> None:
    make_tree(tmp_path, num_images=4)
    folder = tmp_path / "train" / SYNSETS[0]
    (folder / "empty.JPEG").write_bytes(b"")
    (folder / "gone.JPEG").symlink_to(tmp_path / "nowhere")
    (folder / "loop.JPEG").symlink_to(folder / "loop.JPEG")
    (folder / "x.JPEG").mkdir()
    os.mkfifo(folder / "pipe.JPEG")
    (folder / "._n01440764_0.JPEG").write_bytes(b"x")

    tree = read_ilsvrc(tmp_path)

    assert tree.ignored == {"dangling_link": 2, "not_a_file": 2, "other_name": 1}
    found = {image.name: image.num_bytes for image in tree.splits["train"]}
    assert len(found) == 5
    assert found["train/n01440764/empty.JPEG"] == 0


def test_link_to_a_file_is_an_image(tmp_path: pathlib.Path) -> None:
    make_tree(tmp_path, num_images=4)
    folder = tmp_path / "train" / SYNSETS[0]
    (folder / "link.JPEG").symlink_to(folder / f"{SYNSETS[0]}_0.JPEG")

    images = read_ilsvrc(tmp_path).splits["train"]

    assert read_image(Location(str(tmp_path)), images[0]) == read_image(
        Location(str(tmp_path)), images[1]
    )


@pytest.mark.parametrize("with_line", [True, False])
def test_label_list_may_have_lines_for_names_without_a_file(
    tmp_path: pathlib.Path, with_line: bool
) -> None:
    make_tree(tmp_path, num_images=4, num_validation_images=3)
    (tmp_path / "val" / "ILSVRC2012_val_00000000.JPEG").symlink_to("nowhere")
    labels = tmp_path / "synset_labels.txt"
    if with_line:
        labels.write_text(SYNSETS[3] + "\n" + labels.read_text())

    images = read_ilsvrc(tmp_path).splits["validation"]

    assert [image.class_index for image in images] == [0, 1, 2]


ODD_NAMES = [
    b"two words.JPEG",
    b"q\"uo'te\\.JPEG",
    b"line\nbreak.JPEG",
    "\u65e5\u672c \U0001f600.JPEG".encode(),
    b"latin-1 \xe9\xff.JPEG",
]


def test_any_name_is_listed_read_planned_and_found_again(
    tmp_path: pathlib.Path,
) -> None:
    make_tree(tmp_path, num_images=4)
    folder = tmp_path / "train" / SYNSETS[0]
    for number, name in enumerate(ODD_NAMES):
        (folder / os.fsdecode(name)).write_bytes(bytes([number]))

    images = read_ilsvrc(tmp_path).splits["train"]

    odd = {os.fsencode(i.name).split(b"/")[-1]: i for i in images if i.num_bytes == 1}
    assert [read_image(Location(str(tmp_path)), odd[name]) for name in ODD_NAMES] == [
        bytes([number]) for number in range(len(ODD_NAMES))
    ]
    by_name = Again(Location(str(tmp_path))).find_all(
        [catalog_name(image.name) for image in images]
    )
    assert [*by_name.values()] == [i._replace(class_index=NO_CLASS) for i in images]


def test_any_name_survives_duckdb_as_its_catalog_name(tmp_path: pathlib.Path) -> None:
    names = [catalog_name(os.fsdecode(name)) for name in ODD_NAMES]
    fragment = tmp_path / "fragment"
    fragment.write_text("".join(json.dumps({"filename": n}) + "\n" for n in names))

    with index.catalog_connection() as connection:
        columns = "columns = {filename: 'VARCHAR'}, format = 'newline_delimited'"
        query = f"FROM {read_files('json', [fragment], columns)}"
        rows = connection.execute(query).fetchall()

    assert [name for (name,) in rows] == names
    assert names[-1] == "latin-1 \\udce9\\udcff.JPEG"
    assert names[:-1] == [name.decode() for name in ODD_NAMES[:-1]]


@pytest.mark.parametrize("in_tar", [False, True])
def test_an_image_takes_300_bytes_at_most(in_tar: bool) -> None:
    """Sizes and offsets are large, because Python shares small integers."""
    file = ilsvrc.TRAIN_TAR
    count = 5_000
    tracemalloc.start()
    try:
        images = []
        for number in range(count):
            prefix = f"train/n{number % 1000:08d}/"
            name = f"n{number % 1000:08d}_{number}.JPEG"
            image = whole_file(prefix + name, 10**5 + number)
            if in_tar:
                image = image._replace(file=file, offset=10**11 + number)
            images.append(image)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert len(images) == count
    assert used / count < 300
