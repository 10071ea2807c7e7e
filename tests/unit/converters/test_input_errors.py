"""Errors in the input or a path: one line that names the file or flag."""

import io
import os
import pathlib
import shutil
import tracemalloc
from collections.abc import Callable

import PIL.Image
import pytest

from converters import synthesize
from converters.images import jpeg_header, prepare
from converters.images.policy import Policy
from converters.inputs import classes, devkit
from converters.inputs.image import Image, read_image
from converters.inputs.labels import read_label_map
from converters.jobs import work_dir
from converters.options import shared
from tests.support.data import conversions
from tests.support.data.conversions import (
    Conversion,
    conversion,
    read_ilsvrc,
)
from tests.support.data.trees import (
    SYNSETS,
    folder_at,
    make_jpeg,
    make_tree,
    read_boxes,
)
from tests.support.processes import commands
from tests.unit.converters.inputs.test_boxes import make_xml
from tfpipe.location.location import Location

CLASSES = classes.imagenet_classes()


def _config(root: pathlib.Path | str, out: pathlib.Path | str) -> Conversion:
    return conversion(
        "imagenet", input_dir=str(root), output_dir=str(out), num_workers=1, fsync=False
    )


# Lists, which other programs write.


@pytest.mark.parametrize("name", ["synsets.txt", "synset_words.txt", "map.txt"])
def test_byte_order_mark_of_a_list_is_no_part_of_its_first_name(
    tmp_path: pathlib.Path, name: str
) -> None:
    (tmp_path / "synsets.txt").write_text("ant\nbee\n")
    text = "0 ant\n1 bee\n" if name == "map.txt" else "ant\tan ant\nbee\ta bee\n"
    text = "ant\nbee\n" if name == "synsets.txt" else text
    (tmp_path / name).write_text(text, encoding="utf-8-sig")

    if name == "map.txt":
        assert read_label_map(tmp_path / name, None) == {"ant": 0, "bee": 1}
    else:
        first = classes.read_classes(folder_at(tmp_path))[0]
        assert first.synset == "ant"
        assert first.text == ("an ant" if name == "synset_words.txt" else "ant")


def test_byte_order_mark_of_the_labels_is_no_part_of_the_first(
    tmp_path: pathlib.Path,
) -> None:
    root = make_tree(tmp_path, num_images=4, num_validation_images=2)
    path = root / devkit.LABELS_NAME
    path.write_text(path.read_text(), encoding="utf-8-sig")

    found = read_ilsvrc(root).splits["validation"]

    assert [image.class_index for image in found] == [0, 1]


def _latin_synsets(root: pathlib.Path) -> None:
    (root / "synsets.txt").write_bytes(b"caf\xe9\n")


def _latin_words(root: pathlib.Path) -> None:
    (root / "synsets.txt").write_text("".join(f"{s}\n" for s in SYNSETS))
    (root / "synset_words.txt").write_bytes(b"ant\tcaf\xe9\n")


def _latin_labels(root: pathlib.Path) -> None:
    (root / devkit.LABELS_NAME).write_bytes(b"caf\xe9\n")


def _synsets_folder(root: pathlib.Path) -> None:
    (root / "synsets.txt").mkdir()


def _labels_folder(root: pathlib.Path) -> None:
    (root / devkit.LABELS_NAME).unlink()
    (root / devkit.LABELS_NAME).mkdir()


def _truth_is_words(root: pathlib.Path) -> None:
    (root / devkit.LABELS_NAME).unlink()
    (root / devkit.TRUTH_NAME).write_text("1\nants\n")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_latin_synsets, r"synsets.txt must be text in UTF-8, got the byte 0xe9 at"),
        (_latin_words, r"synset_words.txt must be text in UTF-8, got the byte 0xe9 at"),
        (_latin_labels, r"synset_labels.txt must be text in UTF-8, got the byte 0xe9"),
        (_synsets_folder, r"synsets.txt must be a file, got a folder"),
        (_labels_folder, r"synset_labels.txt must be a file, got a folder"),
        (_truth_is_words, r"ground_truth.txt must hold numbers of classes, .*got ants"),
    ],
)
def test_list_that_cannot_be_understood_is_named(
    tmp_path: pathlib.Path, damage: Callable[[pathlib.Path], None], message: str
) -> None:
    root = make_tree(tmp_path, num_images=4, num_validation_images=2)
    damage(root)

    with pytest.raises(ValueError, match=message):
        conversions.make_job(_config(root, tmp_path / "out"))


def test_label_map_may_be_a_pipe_but_not_a_folder(tmp_path: pathlib.Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"1 ant\n")
    os.close(writing)

    path = pathlib.Path(f"/dev/fd/{reading}")
    assert read_label_map(path, None) == {"ant": 1}
    os.close(reading)
    with pytest.raises(ValueError, match=r"must be a file, got a folder"):
        read_label_map(tmp_path, None)


# Boxes.


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999", "ten"])
@pytest.mark.parametrize("tag", ["xmin", "ymax", "width", "height"])
def test_box_of_what_is_no_number_is_an_error_that_names_the_file(
    tmp_path: pathlib.Path, number: str, tag: str
) -> None:
    xml = make_xml([(SYNSETS[0], 10, 10, 90, 90)]).decode()
    start, end = xml.index(f"<{tag}>") + len(tag) + 2, xml.index(f"</{tag}>")
    path = tmp_path / "bbox" / f"{SYNSETS[0]}_1.xml"
    path.parent.mkdir()
    path.write_text(xml[:start] + number + xml[end:])

    with pytest.raises(ValueError, match=r"bbox/n01440764_1.xml in .* must be an anno"):
        read_boxes(tmp_path)


def test_box_without_area_as_it_is_stored_is_dropped(tmp_path: pathlib.Path) -> None:
    xml = make_xml([(SYNSETS[0], 100, 10, 100.000001, 90)])
    path = tmp_path / "bbox" / f"{SYNSETS[0]}_1.xml"
    path.parent.mkdir()
    path.write_bytes(xml)

    assert read_boxes(tmp_path).decisions == {"bbox_dropped_empty": 1}


def test_encoding_that_is_not_known_is_an_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bbox" / f"{SYNSETS[0]}_1.xml"
    path.parent.mkdir()
    path.write_bytes(b'<?xml version="1.0" encoding="klingon"?>' + make_xml([]))

    with pytest.raises(ValueError, match=r"_1.xml in .*annotation.*unknown encoding"):
        read_boxes(tmp_path)


def test_other_boxes_are_another_job(tmp_path: pathlib.Path) -> None:
    """The number of boxes is the same, but shards with old boxes must not be kept."""
    root = make_tree(tmp_path / "raw", num_images=4)
    path = root / "bbox" / f"{SYNSETS[0]}_0.xml"
    path.parent.mkdir()
    described = []
    for right in (30, 31, 30):
        path.write_bytes(make_xml([(SYNSETS[0], 1, 2, right, 40)]))
        job = conversions.make_job(_config(root, tmp_path / "out"))
        described.append(job.description)

    assert described[0] == described[2] != described[1]


# Images.


def test_image_that_the_disk_fails_to_read_is_named(tmp_path: pathlib.Path) -> None:
    """The first page of a process' memory cannot be read: a real EIO."""
    (tmp_path / "bad.JPEG").symlink_to("/proc/self/mem")
    image = Image("bad.JPEG", 0, "bad.JPEG", 0, 10)

    with pytest.raises(OSError, match=r"Input/output error: '.*/bad.JPEG'"):
        read_image(Location(str(tmp_path)), image)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_of_a_tiff_is_kept_as_of_a_png(orientation: int) -> None:
    pixels = PIL.Image.open(io.BytesIO(make_jpeg(0)))
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    stored = {}
    for kind in ("PNG", "TIFF"):
        out = io.BytesIO()
        pixels.save(out, kind, exif=exif)
        for choice in ("keep", "apply"):
            policy = Policy(exif_orientation=choice)
            prepared = prepare.prepare(out.getvalue(), policy)
            assert isinstance(prepared, prepare.Prepared)
            decision = prepared.decision.replace(kind.lower(), "")
            stored[kind, choice] = (prepared.encoded, decision)

    assert stored["PNG", "keep"] == stored["TIFF", "keep"]
    assert stored["PNG", "apply"] == stored["TIFF", "apply"]
    assert jpeg_header.read_header(stored["TIFF", "keep"][0]).orientation == orientation
    rotated = "rotated_exif" in stored["TIFF", "apply"][1]
    assert rotated == (orientation != 1)


# Paths and values.


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", r"--{flag} must be a path(?: or a URL)?, got nothing. Write . for here."),
        (
            "~nosuchuser/x",
            r"--{flag} must be a path, got ~nosuchuser/x, whose user has",
        ),
    ],
)
@pytest.mark.parametrize("flag", ["input_dir", "output_dir", "label_map"])
def test_path_that_is_none_is_an_error_that_names_the_flag(
    tmp_path: pathlib.Path, flag: str, value: str, message: str
) -> None:
    paths = {"input_dir": str(tmp_path / "raw"), "output_dir": str(tmp_path / "out")}
    make_tree(tmp_path / "raw", num_images=4)
    paths[flag] = value

    with pytest.raises(ValueError, match=message.format(flag=flag)):
        conversions.make_job(conversion("folder", num_workers=1, **paths))


def test_synthesize_writes_to_the_home_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (command,) = synthesize.COMMANDS
    config = command.parse(["~/raw", "--num_images=1", "--num_classes=1"])

    assert config.folder == tmp_path / "raw"


@pytest.mark.parametrize("name", ["size_scale", "bytes_per_pixel"])
def test_synthesize_refuses_what_is_no_number(
    tmp_path: pathlib.Path, name: str
) -> None:
    nan = {name: float("nan")}
    with pytest.raises(ValueError, match=f"--{name} must be a finite number"):
        synthesize.SynthesizeOptions(
            output_dir=tmp_path, num_images=1, num_classes=1, **nan
        )


@pytest.mark.parametrize("linked", [False, True])
def test_output_folder_inside_of_a_split_is_refused(
    tmp_path: pathlib.Path, linked: bool
) -> None:
    root = make_tree(tmp_path / "raw", num_images=4)
    if linked:
        shutil.move(root / "train", tmp_path / "aside")
        (root / "train").symlink_to(tmp_path / "aside")
    out = (tmp_path / "aside" if linked else root / "train") / "out"

    with pytest.raises(ValueError, match=r"--output_dir must not be in .*raw/train, w"):
        conversions.make_job(_config(root, out))
    conversions.make_job(_config(root, root / "out"))


def test_output_folder_inside_of_a_folder_of_tables_is_refused(
    tmp_path: pathlib.Path,
) -> None:
    """The next run would read classes.tsv and the catalog for tables of the input."""
    (tmp_path / "a.jpg").write_bytes(make_jpeg(0))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "t.csv").write_text("image,label\na.jpg,x\n")
    values = {"input": str(tmp_path / "in"), "root": str(tmp_path), "fsync": False}

    inside, beside = (
        conversion("table", output_dir=str(folder / "out"), **values)
        for folder in (tmp_path / "in", tmp_path)
    )
    with pytest.raises(ValueError, match=r"--output_dir must not be in .*/in, w"):
        conversions.make_job(inside)
    conversions.make_job(beside)


# Endings of commands.


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ValueError("the input is wrong."), False),
        (OSError("the disk is full."), True),
        (KeyboardInterrupt(), True),
        (MemoryError(), True),
    ],
)
def test_same_command_is_advised_only_where_it_can_go_on(
    tmp_path: pathlib.Path,
    error: BaseException,
    again: bool,
) -> None:
    (tmp_path / work_dir.WORK_DIR_NAME).mkdir()

    message = _ended(tmp_path, error)

    assert message.startswith("Error: ")
    assert message.count("\n") == 1
    assert ("the same command again to go on" in message) == again


def _ended(output_dir: pathlib.Path, error: BaseException) -> str:
    """Returns the message of a command after an error."""

    def fail(options: shared.WritingOptions) -> None:
        raise error

    command = shared.command(shared.WritingOptions, fail)
    done = commands.answer((command,), f"--output_dir={output_dir}")
    assert done.returncode == 1
    return done.stderr


def test_a_small_list_takes_little_memory(tmp_path: pathlib.Path) -> None:
    (tmp_path / "synsets.txt").write_text("ant\nbee\n")
    classes.read_classes(folder_at(tmp_path))

    tracemalloc.start()
    try:
        classes.read_classes(folder_at(tmp_path))
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert used < 1 << 20
