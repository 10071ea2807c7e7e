"""converters.inputs.boxes and expected: bounding boxes, and all of ILSVRC-2012."""

import gc
import pathlib
import tracemalloc
from collections.abc import Callable, Sequence

import pytest

from converters.inputs import boxes, classes
from converters.inputs.image import Image
from converters.inputs.labels import Labelled
from converters.inputs.listed import Listed
from converters.jobs import expected as expected_inputs
from tests.support.data import conversions
from tests.support.data.conversions import conversion, read_ilsvrc
from tests.support.data.trees import SYNSETS, convert, make_tree, read_boxes
from tests.unit.converters.inputs.test_tars import write_tar
from tfpipe.location.location import Location
from tfpipe.shards import index
from tfpipe.shards.example import decode_example

CLASSES = classes.imagenet_classes()
FIRST = f"{SYNSETS[0]}_1"


def make_xml(
    corners: Sequence[tuple[str, float, float, float, float]],
    *,
    width: int = 200,
    height: int = 100,
) -> bytes:
    """An annotation as ILSVRC has it: name, then xmin, ymin, xmax, ymax of each."""
    objects = "".join(
        f"<object><name>{name}</name><bndbox><xmin>{x}</xmin><ymin>{y}</ymin>"
        f"<xmax>{x2}</xmax><ymax>{y2}</ymax></bndbox></object>"
        for name, x, y, x2, y2 in corners
    )
    return (
        f"<annotation><filename>%s</filename><size><width>{width}</width>"
        f"<height>{height}</height><depth>3</depth></size>{objects}</annotation>"
    ).encode()


def read(root: pathlib.Path, xml: bytes, *, stem: str = FIRST) -> boxes.Boxes:
    """Reads one annotation from a folder."""
    path = root / "bbox" / SYNSETS[0] / f"{stem}.xml"
    path.parent.mkdir(parents=True)
    path.write_bytes(xml)
    return read_boxes(root)


@pytest.mark.parametrize(
    ("corners", "expected", "decisions"),
    [
        ((20, 10, 100, 90), (0.1, 0.1, 0.5, 0.9), {"bbox_kept": 1}),
        (
            (100, 90, 20, 10),
            (0.1, 0.1, 0.5, 0.9),
            {"bbox_kept": 1, "bbox_swapped_corners": 1},
        ),
        ((-5, 0, 300, 50), (0, 0, 1, 0.5), {"bbox_clamped": 1, "bbox_kept": 1}),
        ((20, 10, 20, 90), None, {"bbox_dropped_empty": 1}),
        ((20, 90, 100, 90), None, {"bbox_dropped_empty": 1}),
        ((210, 10, 300, 90), None, {"bbox_dropped_empty": 1}),  # outside
    ],
)
def test_box_is_relative_ordered_and_clamped(
    tmp_path: pathlib.Path,
    corners: tuple[float, float, float, float],
    expected: tuple[float, ...] | None,
    decisions: dict[str, int],
) -> None:
    found = read(tmp_path, make_xml([(SYNSETS[0], *corners)]))

    wanted = [] if expected is None else [pytest.approx(expected)]
    assert found.of(f"train/{SYNSETS[0]}/{FIRST}.JPEG") == wanted
    assert found.decisions == decisions


def test_boxes_of_another_class_are_dropped_but_not_of_an_unknown_name(
    tmp_path: pathlib.Path,
) -> None:
    corners = (20, 10, 100, 90)
    names = (SYNSETS[1], SYNSETS[0], "Scottish_deerhound")

    found = read(tmp_path, make_xml([(name, *corners) for name in names]))

    assert len(found.of(f"{FIRST}.JPEG")) == 2
    assert found.decisions == {"bbox_dropped_other_synset": 1, "bbox_kept": 2}


def test_boxes_without_a_size_are_dropped(tmp_path: pathlib.Path) -> None:
    found = read(tmp_path, make_xml([(SYNSETS[0], 1, 1, 2, 2)], width=0))

    assert found.num_boxes == 0
    assert found.decisions == {"bbox_dropped_no_size": 1}


def test_files_of_other_classes_are_counted(tmp_path: pathlib.Path) -> None:
    xml = make_xml([("n99999999", 1, 1, 2, 2)])

    found = read(tmp_path, xml, stem="n99999999_1")

    assert found.num_boxes == 0
    assert found.decisions == {"bbox_file_of_other_class": 1}


def test_other_images_have_none_and_so_has_an_input_without_boxes(
    tmp_path: pathlib.Path,
) -> None:
    empty = read_boxes(tmp_path)
    found = read(tmp_path, make_xml([(SYNSETS[0], 1, 1, 2, 2)]))

    assert (empty.num_boxes, dict(empty.decisions), empty.of(FIRST)) == (0, {}, [])
    assert found.of(f"{SYNSETS[0]}_2.JPEG") == []


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_tar_and_folder_give_the_same_boxes(tmp_path: pathlib.Path, mode: str) -> None:
    stems = [f"{SYNSETS[n % 4]}_{n}" for n in range(20)]
    files = [
        (
            f"./{stem[:9]}/{stem}.xml",
            make_xml([(stem[:9], n, k, 100 + n, 90) for k in range(n % 3)]),
        )
        for n, stem in enumerate(stems)
    ]
    for name, data in files:
        path = tmp_path / "folder" / "Annotation" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "tar").mkdir()
    suffix = ".gz" if mode == "w:gz" else ""
    name = f"ILSVRC2012_bbox_train_v2.tar{suffix}"
    write_tar(tmp_path / "tar" / name, files, mode=mode)

    one, other = (read_boxes(tmp_path / kind) for kind in ("folder", "tar"))

    assert [one.of(stem) for stem in stems] == [other.of(stem) for stem in stems]
    assert [len(one.of(stem)) for stem in stems] == [n % 3 for n in range(20)]
    assert one.num_boxes == other.num_boxes == one.decisions["bbox_kept"] == 19
    assert one.of(stems[5])[1] == pytest.approx((0.025, 0.01, 0.525, 0.9))


def _damaged(root: pathlib.Path) -> None:
    (root / "bbox" / f"{FIRST}.xml").write_bytes(b"<annotation><object>")


def _no_corner(root: pathlib.Path) -> None:
    xml = make_xml([(SYNSETS[0], 1, 2, 3, 4)]).replace(b"xmax", b"right")
    (root / "bbox" / f"{FIRST}.xml").write_bytes(xml)


def _twice(root: pathlib.Path) -> None:
    for folder in ("a", "b"):
        (root / "bbox" / folder).mkdir()
        (root / "bbox" / folder / f"{FIRST}.xml").write_bytes(make_xml([]))


def _two_sources(root: pathlib.Path) -> None:
    (root / "Annotation").mkdir()


def _cut_tar(root: pathlib.Path) -> None:
    (root / "bbox").rmdir()
    path = root / "ILSVRC2012_bbox_train_v2.tar.gz"
    write_tar(path, [(f"{FIRST}.xml", make_xml([]))], mode="w:gz")
    path.write_bytes(path.read_bytes()[:-30])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_damaged, r"bbox/n01440764_1.xml in .* must be an annotation.*no element"),
        (_no_corner, r"n01440764_1.xml in .* must be an annotation.*could not convert"),
        (_twice, r"one XML file an image, got a second one for n01440764_1"),
        (_two_sources, r"the bounding boxes once, got bbox and Annotation"),
        (_cut_tar, r"bbox_train_v2.tar.gz is damaged or cut short"),
    ],
)
def test_bad_annotations_are_an_error(
    tmp_path: pathlib.Path, damage: Callable[[pathlib.Path], None], message: str
) -> None:
    (tmp_path / "bbox").mkdir()
    damage(tmp_path)

    with pytest.raises(ValueError, match=message):
        read_boxes(tmp_path)


def test_boxes_take_little_memory(tmp_path: pathlib.Path) -> None:
    xml = make_xml([(SYNSETS[0], 1, 2, 3, 4)])
    count = 300
    files = [(f"{SYNSETS[0]}_{n}.xml", xml) for n in range(count)]
    write_tar(tmp_path / "ILSVRC2012_bbox_train_v2.tar", files)
    read_boxes(tmp_path)  # imports and caches are not measured

    tracemalloc.start()
    try:
        found = read_boxes(tmp_path)
        gc.collect()  # garbage in cycles is no memory of boxes
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert found.num_boxes == count
    assert used / count < 60


_Images = tuple[list[Image], list[Image]]


def _check(
    expected: str,
    train: list[Image],
    validation: list[Image],
    *,
    num_boxes: int,
    num_classes: int = 1000,
) -> None:
    """Checks images, whose classes are numbers, as ILSVRC-2012."""
    splits: dict[str, dict[str, list[Image]]] = {"train": {}, "validation": {}}
    for images, classes_of in zip((train, validation), splits.values(), strict=True):
        for image in images:
            name = CLASSES[image.class_index].synset
            classes_of.setdefault(name, []).append(image)
    listed = Listed(Location("raw"), splits, boxes=_boxes(num_boxes))
    labels = {each.synset: each.label for each in CLASSES[:num_classes]}
    expected_inputs.check_expected(expected, Labelled(listed, labels, ""))


@pytest.fixture(scope="module")
def whole() -> _Images:
    """Made-up train and validation images with the counts of ILSVRC-2012."""
    train: list[Image] = []
    for number in range(1000):
        train += [Image("t", number, "t", 0, 1)] * (1281 + (number < 167))
    names = (f"val/ILSVRC2012_val_{n + 1:08d}.JPEG" for n in range(50_000))
    validation = [
        Image(name, number % 1000, name, 0, 1) for number, name in enumerate(names)
    ]
    return train, validation


def _boxes(num_boxes: int) -> boxes.Boxes:
    none = read_boxes(pathlib.Path("/nowhere"))
    none.sides.extend([0.0] * (4 * num_boxes))
    return none


def test_whole_data_set_is_as_expected(whole: _Images) -> None:
    train, validation = whole
    _check("ilsvrc2012", train, validation, num_boxes=615_299)


def test_missing_images_classes_and_boxes_are_named(whole: _Images) -> None:
    train, validation = whole
    first, second = CLASSES[0].synset, CLASSES[1].synset
    # Without the 1282 images of the first class and 1000 of the second.
    train = train[2282:]
    train[0] = train[0]._replace(name="train/empty.JPEG", num_bytes=0)
    validation = validation[:1] + validation[3:]

    with pytest.raises(ValueError, match=r"must be all of ILSVRC-2012") as caught:
        _check("ilsvrc2012", train, validation, num_boxes=7, num_classes=999)

    text = str(caught.value)
    assert "the class list has 999 classes instead of 1,000" in text
    assert "train: 1,278,885 images instead of 1,281,167" in text
    assert f"train: 1 class without an image: {first}" in text
    assert f"train: 1 class without 732 to 1300 images each: {second} (282)" in text
    assert "validation: 49,998 images instead of 50,000" in text
    assert "2 missing names: ILSVRC2012_val_00000002, ILSVRC2012_val_0000" in text
    assert "train: 1 image without bytes: train/empty.JPEG" in text
    assert "boxes: 7 instead of 615,299" in text


def test_part_of_it_is_an_error_and_fine_if_nothing_is_expected(
    tmp_path: pathlib.Path,
) -> None:
    tree = read_ilsvrc(make_tree(tmp_path, num_images=4))

    train = tree.splits["train"]

    _check("none", train, [], num_boxes=0)
    with pytest.raises(
        ValueError, match=r"996 classes without an image: n01494475, .*, …"
    ):
        _check("ilsvrc2012", train, [], num_boxes=0)
    with pytest.raises(
        ValueError, match="must be one of none, ilsvrc2012, got 'cifar'"
    ):
        _check("cifar", train, [], num_boxes=0)


def test_boxes_land_in_the_records_and_their_decisions_in_the_summary(
    tmp_path: pathlib.Path,
) -> None:
    raw_dir = make_tree(tmp_path / "raw", num_images=4)
    path = raw_dir / "bbox" / f"{SYNSETS[0]}_0.xml"
    path.parent.mkdir()
    path.write_bytes(make_xml([(SYNSETS[0], 20, 10, 100, 90), ("x", 50, 0, 300, 50)]))
    out = tmp_path / "out"

    summary = convert(raw_dir, out, num_train_shards=1)

    expected = {"kept": 4, "bbox_kept": 2, "bbox_clamped": 1}
    assert summary["decisions"] == expected
    rows = index.load_catalog(
        out, "train", ["filename", "byte_offset", "num_bytes", "label"]
    )
    place = rows["filename"].tolist().index(f"train/{SYNSETS[0]}/{SYNSETS[0]}_0.JPEG")
    start, size = rows["byte_offset"][place], rows["num_bytes"][place]
    framed = (out / "train-00000-of-00001").read_bytes()[start : start + size]
    example = decode_example(framed[12:-4])
    for side, values in [("xmin", (0.1, 0.25)), ("ymax", (0.9, 0.5))]:
        stored = example[f"image/object/bbox/{side}"].values
        assert list(stored) == pytest.approx(values)
    assert list(example["image/object/bbox/label"].values) == [1, 1]


def test_conversion_stops_if_the_input_is_not_what_is_expected(
    tmp_path: pathlib.Path,
) -> None:
    raw_dir = make_tree(tmp_path / "raw", num_images=4)
    config = conversion(
        "imagenet",
        input_dir=str(raw_dir),
        output_dir=str(tmp_path / "out"),
        expect="ilsvrc2012",
    )

    with pytest.raises(ValueError, match="train: 4 images instead of 1,281,167"):
        conversions.convert(config)
    assert not (tmp_path / "out").exists()
