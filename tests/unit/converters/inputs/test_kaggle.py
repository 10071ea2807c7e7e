"""converters.inputs.kaggle: ImageNet as Kaggle packs it."""

import contextlib
import os
import pathlib
from collections.abc import Callable

import pytest

from converters.inputs.image import read_image
from converters.inputs.reader import Workspace
from converters.jobs import again, run
from converters.jobs.job import Job
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.trees import SYNSETS, make_jpeg, make_tree
from tfpipe.shards import index

NUM_TRAIN, NUM_VALIDATION = 8, 3
XML = (
    "<annotation><size><width>40</width><height>32</height></size><object>"
    "<name>{0}</name><bndbox><xmin>4</xmin><ymin>4</ymin><xmax>20</xmax>"
    "<ymax>16</ymax></bndbox></object></annotation>"
)


def _usual(root: pathlib.Path) -> pathlib.Path:
    return make_tree(root, num_images=NUM_TRAIN, num_validation_images=NUM_VALIDATION)


def _kaggle(root: pathlib.Path) -> pathlib.Path:
    """The images of `_usual` in the layout of Kaggle, with test images and boxes."""
    images = _usual(root / "ILSVRC/Data/CLS-LOC")
    synsets = (images / "synset_labels.txt").read_text().split()
    (images / "synset_labels.txt").unlink()
    (images / "test").mkdir()
    (images / "test/ILSVRC2012_test_00000001.JPEG").write_bytes(make_jpeg(77))
    boxes = root / "ILSVRC/Annotations/CLS-LOC/train" / SYNSETS[0]
    boxes.mkdir(parents=True)
    (boxes / f"{SYNSETS[0]}_0.xml").write_text(XML.format(SYNSETS[0]))
    # Kaggle's list is in no order, and has several boxes of an image.
    lines = [
        f"ILSVRC2012_val_{number:08d},{synset} 1 2 3 4 {synset} 5 6 7 8 "
        for number, synset in reversed([*enumerate(synsets, start=1)])
    ]
    header = "ImageId,PredictionString"
    (root / "LOC_val_solution.csv").write_text("\n".join([header, *lines]) + "\n")
    mapping = "".join(f"{synset} fish {synset}, a name\n" for synset in SYNSETS)
    (root / "LOC_synset_mapping.txt").write_text(mapping)
    return root


def _job(root: pathlib.Path, out: pathlib.Path) -> Job:
    return conversions.make_job(
        conversion("imagenet", input_dir=str(root), output_dir=str(out))
    )


def test_images_and_labels_are_those_of_the_usual_layout(
    tmp_path: pathlib.Path,
) -> None:
    usual = _job(_usual(tmp_path / "usual"), tmp_path / "out")
    job = _job(_kaggle(tmp_path / "kaggle"), tmp_path / "out")

    for plan, expected in zip(job.plans, usual.plans, strict=True):
        assert list(plan.images) == list(expected.images)
    assert job.classes[0].text == f"fish {SYNSETS[0]}, a name"
    assert [c.label for c in job.classes] == [1, 2, 3, 4]
    assert len(job.boxes_of(f"train/{SYNSETS[0]}/{SYNSETS[0]}_0.JPEG")) == 1
    assert job.left_out == [
        {
            "name": "test/",
            "action": "ignored",
            "reason": "not_a_split",
            "detail": job.left_out[0]["detail"],
        }
    ]


def test_a_converted_set_finds_its_images_again(tmp_path: pathlib.Path) -> None:
    root = _kaggle(tmp_path / "kaggle")
    run.run(_job(root, tmp_path / "out"))
    rows = index.load_catalog(tmp_path / "out", "validation", ["filename", "synset"])

    made_by = index.load(tmp_path / "out").made_by
    with contextlib.ExitStack() as stack:
        workspace = Workspace(folder=tmp_path, stack=stack)
        found = again.list_again(made_by, str(root), (), (), workspace)

    for name, synset in zip(rows["filename"], rows["synset"], strict=True):
        (image,) = found.find_all([name]).values()
        number = int(name[-13:-5])
        assert read_image(found.folder, image) == make_jpeg(
            999 + number, width=40 + (number - 1) % 2
        )
        assert synset == SYNSETS[number - 1]


def _two_classes(root: pathlib.Path) -> None:
    path = root / "LOC_val_solution.csv"
    path.write_text(path.read_text().replace(f"{SYNSETS[1]} 5", f"{SYNSETS[2]} 5"))


def _lost_line(root: pathlib.Path) -> None:
    path = root / "LOC_val_solution.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))


def _other_header(root: pathlib.Path) -> None:
    path = root / "LOC_val_solution.csv"
    path.write_text(path.read_text().replace("ImageId", "Id"))


def _no_list(root: pathlib.Path) -> None:
    (root / "LOC_val_solution.csv").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_two_classes, "must give each image one class"),
        (_lost_line, "a line for each of the 3 images in val, got none for ILSVRC201"),
        (_other_header, "must begin with the line ImageId,PredictionString, got 'Id,P"),
        (_no_list, "no LOC_val_solution.csv"),
    ],
)
def test_a_damaged_list_is_an_error(
    tmp_path: pathlib.Path, damage: Callable[[pathlib.Path], None], message: str
) -> None:
    root = _kaggle(tmp_path / "kaggle")
    damage(root)

    with pytest.raises(ValueError, match=message):
        _job(root, tmp_path / "out")


@pytest.mark.parametrize("inside", ["", "ILSVRC", "ILSVRC/Data"])
def test_other_readers_name_the_reader_and_its_folder(
    tmp_path: pathlib.Path, inside: str
) -> None:
    root = _kaggle(tmp_path / "kaggle")
    message = "converters.imagenet reads the folder above ILSVRC"

    with pytest.raises(ValueError, match=message):
        conversions.make_job(
            conversion(
                "folder", input_dir=str(root / inside), output_dir=str(tmp_path / "out")
            )
        )
    if inside:
        with pytest.raises(ValueError, match=message):
            _job(root / inside, tmp_path / "out")


@pytest.mark.parametrize("name", ["test/", "validation/", "ILSVRC2012_img_test.tar"])
def test_other_splits_of_the_usual_layout_are_named(
    tmp_path: pathlib.Path, name: str
) -> None:
    root = _usual(tmp_path / "usual")
    if name.endswith("/"):
        os.mkdir(root / name)
    else:
        (root / name).write_bytes(b"")

    job = _job(root, tmp_path / "out")

    assert [line["name"] for line in job.left_out] == [name]
