"""Every file of the input is stored, or named in rejects.jsonl with the reason."""

import json
import os
import pathlib
import shutil
import tarfile

import pytest

from converters.inputs import boxes, classes, ilsvrc, tars
from converters.inputs.image import read_image
from tests.support.data import conversions
from tests.support.data.conversions import conversion, read_ilsvrc
from tests.support.data.trees import (
    SYNSETS,
    convert,
    folder_at,
    make_jpeg,
    make_tree,
    read_boxes,
)
from tests.unit.converters.inputs.test_boxes import make_xml
from tests.unit.converters.inputs.test_tars import write_tar
from tfpipe.location.location import Location
from tfpipe.shards import index

CLASSES = classes.imagenet_classes()


def _stored(out: pathlib.Path) -> set[str]:
    splits = index.load(out).splits
    rows = (index.load_catalog(out, split, ["filename"]) for split in splits)
    return {name for columns in rows for name in columns["filename"]}


def _named(out: pathlib.Path) -> dict[str, str]:
    path = out / "rejects.jsonl"
    lines = map(json.loads, path.read_text().splitlines() if path.exists() else ())
    return {line["name"]: line["reason"] for line in lines}


def _files(root: pathlib.Path) -> set[str]:
    """Returns every path below a folder that is not a folder itself."""
    return {
        os.path.relpath(os.path.join(path, name), root)
        for path, folders, names in os.walk(root)
        for name in (*names, *(f for f in folders if os.path.islink(f"{path}/{f}")))
    }


def test_each_file_of_an_imagenet_tree_is_stored_or_named(
    tmp_path: pathlib.Path,
) -> None:
    root = make_tree(tmp_path / "raw", num_images=4, num_validation_images=2)
    of_class = root / "train" / SYNSETS[0]
    for name in ("deep/a/1.JPEG", "deep/2.JPEG", "deep/notes.txt"):
        (of_class / name).parent.mkdir(parents=True, exist_ok=True)
        (of_class / name).write_bytes(make_jpeg(1))
    (of_class / "deep" / "round").symlink_to(of_class)
    (of_class / "gone.JPEG").symlink_to("nowhere")
    (of_class / "empty.JPEG").write_bytes(b"")
    (of_class / "picture.png").write_bytes(b"x")
    (of_class / ".hidden").write_bytes(b"x")
    (root / "train" / "loose.JPEG").write_bytes(make_jpeg(2))
    (root / "val" / "readme.txt").write_text("x")

    summary = convert(root, tmp_path / "out", num_train_shards=1)

    named, prefix = _named(tmp_path / "out"), f"train/{SYNSETS[0]}"
    lists = {"synset_labels.txt"}
    assert _stored(tmp_path / "out") | named.keys() | lists == _files(root)
    assert named == {
        "train/loose.JPEG": "other_name",
        f"{prefix}/.hidden": "other_name",
        f"{prefix}/deep/2.JPEG": "in_subfolder",
        f"{prefix}/deep/a/1.JPEG": "in_subfolder",
        f"{prefix}/deep/notes.txt": "in_subfolder",
        f"{prefix}/deep/round": "in_subfolder",
        f"{prefix}/empty.JPEG": "zero_byte",
        f"{prefix}/gone.JPEG": "dangling_link",
        f"{prefix}/picture.png": "other_name",
        "val/readme.txt": "other_name",
    }
    assert summary["decisions"]["ignored_in_subfolder"] == 4


def test_each_file_of_a_class_tree_is_stored_or_named(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "raw"
    names = ("train/a/1.jpg", "train/b/1.jpg", "train/c/1.jpg", "train/a/note.txt")
    others = ("train/loose.txt", "raw/x/1.jpg", "1.jpg", "val/a/1.jpg")
    for number, name in enumerate((*names, *others)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(make_jpeg(number))
    (root / "train" / "empty").mkdir()
    (root / "train" / "a" / "round").symlink_to(root / "train")
    out = tmp_path / "out"
    config = conversion(
        "folder",
        input_dir=str(root),
        output_dir=str(out),
        num_workers=1,
        fsync=False,
        classes=("a", "b"),
    )

    conversions.convert(config)

    assert _stored(out) == {"train/a/1.jpg", "train/b/1.jpg", "val/a/1.jpg"}
    assert _named(out) == {
        "1.jpg": "no_class_folder",
        "raw/": "not_a_split",
        "train/a/note.txt": "other_name",
        "train/a/round/": "link_loop",
        "train/c/1.jpg": "other_class",
        "train/empty/": "empty_folder",
        "train/loose.txt": "other_name",
    }


def _linked_tar(path: pathlib.Path, data: bytes, *, linked_bytes: int = 0) -> None:
    """A file, a hard link to it, a symbolic link, and a file after them."""
    with tarfile.open(path, "w") as tar:
        for name, kind, content in [
            ("./a.JPEG", tarfile.REGTYPE, data),
            ("sub/b.JPEG", tarfile.LNKTYPE, b""),
            ("c.JPEG", tarfile.SYMTYPE, b""),
            ("d.JPEG", tarfile.REGTYPE, data[::-1]),
            ("e.JPEG", tarfile.LNKTYPE, b""),
        ]:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(content)
            if kind == tarfile.LNKTYPE:
                # Some programs note the size of the file; no bytes follow.
                info.size = linked_bytes
                info.linkname = "a.JPEG" if name.startswith("sub") else "gone.JPEG"
            tar.addfile(info)
            tar.fileobj.write(content + bytes(-len(content) % 512))  # type: ignore[union-attr]
            tar.offset = tar.fileobj.tell()  # type: ignore[union-attr]


@pytest.mark.parametrize("linked_bytes", [0, 700])
def test_hard_link_in_a_tar_is_the_file_that_it_links_to(
    tmp_path: pathlib.Path, linked_bytes: int
) -> None:
    root = make_tree(tmp_path, num_images=4)
    shutil.rmtree(root / "train" / SYNSETS[1])
    tar = root / "train" / f"{SYNSETS[1]}.tar"
    _linked_tar(tar, b"x" * 700, linked_bytes=linked_bytes)

    tree = read_ilsvrc(root)

    found = {
        image.name.rpartition("/")[2]: read_image(Location(str(root)), image)
        for image in tree.splits["train"]
        if SYNSETS[1] in image.name
    }
    assert found == dict.fromkeys(("a.JPEG", "b.JPEG", "d.JPEG"), b"x" * 700)
    assert [(name, reason.slug) for name, reason in tree.left_out] == [
        (f"train/{SYNSETS[1]}.tar/c.JPEG", "not_a_file"),
        (f"train/{SYNSETS[1]}.tar/e.JPEG", "not_a_file"),
    ]


def test_hard_link_in_a_streamed_tar_is_the_file_that_it_links_to(
    tmp_path: pathlib.Path,
) -> None:
    _linked_tar(tmp_path / "x.tar", b"x" * 700)

    found = dict(tars.stream_files(folder_at(tmp_path), "x.tar"))

    linked = dict.fromkeys(("./a.JPEG", "sub/b.JPEG", "d.JPEG"), b"x" * 700)
    assert found == linked | {"c.JPEG": None, "e.JPEG": None}


def test_linked_folder_of_boxes_is_read_once(tmp_path: pathlib.Path) -> None:
    xml = make_xml([(SYNSETS[0], 1, 2, 30, 40)])
    aside = tmp_path / "aside" / SYNSETS[0]
    aside.mkdir(parents=True)
    (aside / f"{SYNSETS[0]}_1.xml").write_bytes(xml)
    (aside / "round").symlink_to(aside)
    root = tmp_path / "raw"
    (root / "bbox").mkdir(parents=True)
    (root / "bbox" / SYNSETS[0]).symlink_to(aside)

    found = read_boxes(root)

    assert (found.num_boxes, found.decisions) == (1, {"bbox_kept": 1})


def test_link_to_nowhere_in_the_place_of_boxes_is_an_error(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "bbox").symlink_to("nowhere")

    with pytest.raises(OSError, match="bbox"):
        read_boxes(tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_each_annotation_and_box_that_is_left_out_is_named(
    tmp_path: pathlib.Path, packed: bool
) -> None:
    root = make_tree(tmp_path / "raw", num_images=4)
    one, other = SYNSETS[:2]
    files = [
        (f"{one}_0.xml", make_xml([(one, 1, 2, 30, 40), (one, 5, 5, 5, 9)])),
        (f"{one}_8.xml", make_xml([(other, 1, 2, 30, 40)])),
        (f"{one}_9.xml", make_xml([(one, 1, 2, 30, 40)], width=0)),
        ("n99999999_1.xml", make_xml([])),
        ("readme.txt", b"x"),
    ]
    where = boxes.TAR_NAMES[1] if packed else "bbox"
    if packed:
        write_tar(root / where, files)
    else:
        (root / where).mkdir()
        for name, data in files:
            (root / where / name).write_bytes(data)

    summary = convert(root, tmp_path / "out", num_train_shards=1)

    assert _named(tmp_path / "out") == {
        f"{where}/{one}_0.xml": "bbox_dropped_empty",
        f"{where}/{one}_8.xml": "bbox_dropped_other_synset",
        f"{where}/{one}_9.xml": "bbox_dropped_no_size",
        f"{where}/n99999999_1.xml": "bbox_file_of_other_class",
        f"{where}/readme.txt": "bbox_file_not_read",
    }
    assert summary["decisions"]["bbox_kept"] == 1


def _validation_link(root: pathlib.Path) -> None:
    (root / "val").symlink_to("nowhere")


def _validation_file(root: pathlib.Path) -> None:
    (root / "val").write_text("x")


def _validation_tar_link(root: pathlib.Path) -> None:
    (root / ilsvrc.VALIDATION_TAR).symlink_to("nowhere")


@pytest.mark.parametrize(
    "damage", [_validation_link, _validation_file, _validation_tar_link]
)
def test_validation_split_that_cannot_be_read_is_an_error_and_not_left_out(
    tmp_path: pathlib.Path, damage: object
) -> None:
    root = make_tree(tmp_path, num_images=4)
    damage(root)  # type: ignore[operator]

    with pytest.raises((OSError, ValueError), match=r"val"):
        read_ilsvrc(root)
