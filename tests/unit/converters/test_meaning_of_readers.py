"""The rules of docs/concepts/inputs.md, asked of each reader of the same images."""

import contextlib
import dataclasses
import itertools
import pathlib
from typing import Any

import pytest

from converters.inputs import labels
from converters.inputs.labels import Labelled
from converters.inputs.listed import Listed
from converters.inputs.meaning import USUAL, Meaning
from converters.inputs.reader import Workspace
from converters.jobs import division, run
from converters.jobs.job import Job
from tests.support.data.conversions import READERS, read_listed
from tests.support.data.inputs import KINDS, Images, convert_input

TWO = [("Train", "b"), ("Train", "a"), ("Test", "a"), ("Test", "b")]


def _read(
    kind: str,
    root: pathlib.Path,
    images: Images,
    *,
    on_null: str = "fail",
    **said: Any,
) -> Labelled:
    """Writes an input of a kind, and asks its reader."""
    reader, write = KINDS[kind]
    root.parent.mkdir(parents=True, exist_ok=True)
    meaning = Meaning(**said)
    with contextlib.ExitStack() as stack:
        workspace = Workspace(folder=root.with_name("work"), stack=stack)
        fields = write(root, images)
        if "on_null" in {field.name for field in dataclasses.fields(READERS[reader])}:
            fields["on_null"] = on_null
        listed = READERS[reader](**fields).list_images(meaning, workspace)
    return labels.give_labels(listed, meaning)


def _labels(labelled: Labelled) -> dict[str, list[int]]:
    """The labels of each split, in order."""
    found = division.divide(labelled, chosen=(), split_fractions={}, seed=0).splits
    values = list(labelled.labels.values())
    return {
        split: sorted(values[image.class_index] for image in images)
        for split, images in found.items()
    }


def _kinds(*others: str) -> pytest.MarkDecorator:
    """All kinds of inputs, but for some."""
    return pytest.mark.parametrize(
        "kind", [kind for kind in KINDS if kind not in others]
    )


# The splits of ImageNet are two folders, and those of a database stand in a column.
@_kinds("imagenet", "sqlite")
@pytest.mark.parametrize(
    ("first", "second", "splits"),
    [
        ("Train", "Test", ["train", "test"]),
        ("training_set", "valid", ["train", "validation"]),
        ("seg_train", "eval", ["train", "validation"]),
        ("TRAIN", "dev", ["train", "validation"]),
        ("tRaIn", "teST", ["train", "test"]),
    ],
)
def test_names_say_the_splits(
    kind: str, tmp_path: pathlib.Path, first: str, second: str, splits: list[str]
) -> None:
    images = [(first, "a"), (first, "b"), (second, "a")]

    labelled = _read(kind, tmp_path / "in", images)

    assert list(labelled.listed.splits) == splits
    assert labelled.labels == {"a": 1, "b": 2}


# A tree of folders leaves the others out, and has a table of layouts.
@pytest.mark.parametrize("kind", ["parquet", "webdataset", "tfrecord"])
@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (("train", "val", "extra"), {"train": "et", "validation": "v"}),
        (("train", "extra", "other"), {"train": "eot"}),
    ],
)
def test_folders_of_two_splits_say_them_beside_other_folders(
    kind: str, tmp_path: pathlib.Path, names: tuple[str, ...], splits: dict[str, str]
) -> None:
    command, write = KINDS[kind]
    for number, name in enumerate(names):
        fields = write(tmp_path / "in" / name, [(f"part{number}", name[0])])
    place = str(tmp_path / "in")
    if command == "table":
        fields |= {"input": place, "image_column": "image", "label_column": "label"}
    else:
        fields |= {"input": [place], "file_in_names": True}

    with contextlib.ExitStack() as stack:
        workspace = Workspace(folder=tmp_path / "work", stack=stack)
        listed = READERS[command](**fields).list_images(USUAL, workspace)

    assert {s: "".join(classes) for s, classes in listed.splits.items()} == splits


def _read_above(
    kind: str, root: pathlib.Path, folder: str, images: Images, **said: Any
) -> Listed:
    """Writes an input of a kind in a folder, and reads the folder above."""
    reader, write = KINDS[kind]
    fields = write(root / folder, images)
    place: dict[str, Any] = {"input_dir": str(root), "sources": {"a": str(root)}}
    if kind == "merged_tars":
        place["sources"]["a"] += "/**/*.tar"
    place["input"] = str(root) if reader == "table" else [str(root)]
    fields |= {name: place[name] for name in fields.keys() & place}
    if reader in ("webdataset", "tfrecord"):
        fields["file_in_names"] = True
    with contextlib.ExitStack() as stack:
        workspace = Workspace(folder=root.with_name("work"), stack=stack)
        return READERS[reader](**fields).list_images(Meaning(**said), workspace)


# The splits of ImageNet have fixed names, and a database and a data set have others.
@_kinds("imagenet", "sqlite", "data_set")
@pytest.mark.parametrize("above", ["", "photos/", "photos/all/"])
def test_a_single_folder_says_the_split(
    kind: str, tmp_path: pathlib.Path, above: str
) -> None:
    images = [("a", "cat"), ("a", "dog")]

    listed = _read_above(kind, tmp_path / "in", f"{above}val", images)

    assert [*listed.splits] == ["validation"]
    assert len([*listed.images()]) == len(images)


# Folders in a tree that contradict each other are warned about as parts of classes.
@_kinds("folder", "merge", "imagenet", "sqlite", "data_set")
def test_names_of_a_file_and_its_folder_that_contradict_are_refused(
    kind: str, tmp_path: pathlib.Path
) -> None:
    images = [("train", "cat")]

    with pytest.raises(ValueError, match=r"train.* \(train\) and val/ \(validation\)"):
        _read_above(kind, tmp_path / "in", "val", images)

    listed = _read_above(kind, tmp_path / "again", "val", images, split="test")
    assert [*listed.splits] == ["test"]


@pytest.mark.parametrize("kind", ["webdataset", "tfrecord"])
def test_names_of_two_named_folders_contradict_no_file(
    kind: str, tmp_path: pathlib.Path
) -> None:
    reader, write = KINDS[kind]
    write(tmp_path / "disk" / "test" / "own", [("train", "cat")])
    write(tmp_path / "data", [("val", "cat")])

    words = [f"{tmp_path}/disk/test/own", f"{tmp_path}/data"]
    listed = read_listed(READERS[reader](input=words))

    assert [*listed.splits] == ["train", "validation"]
    assert not listed.warnings


# The splits of ImageNet and of a data set have fixed names. The folder of the merge is
# below the named one.
@_kinds("imagenet", "data_set", "merge")
def test_a_named_folder_that_is_called_as_another_split_is_warned_about(
    kind: str, tmp_path: pathlib.Path
) -> None:
    images = [("train", "cat")]

    for name, options, is_warned in (
        ("Val", {}, True),
        ("valley", {}, False),
        ("train", {}, False),
        ("val2", {"split": "train"}, False),
        ("val3", {"split_names": False}, False),
    ):
        listed = _read(kind, tmp_path / name, images, **options).listed

        assert [*listed.splits] == ["train"]
        assert len(listed.warnings) == is_warned
        for line in listed.warnings:
            assert f"/{name} is called as the validation split, and the imag" in line
            assert line.endswith("say --split=validation, or --split=train.")
            assert "For all images of the command" in line  # of a merge, all sources


# A tree has warnings of its own about such folders.
@pytest.mark.parametrize("kind", ["parquet", "webdataset", "tfrecord"])
def test_a_split_beside_other_folders_is_warned_about(
    kind: str, tmp_path: pathlib.Path
) -> None:
    _, write = KINDS[kind]
    write(tmp_path / "in" / "other", [("b", "cat")])

    listed = _read_above(kind, tmp_path / "in", "val", [("a", "dog")])

    assert [*listed.splits] == ["train"]
    (line,) = listed.warnings
    assert "/val is called as the validation split, and the images are of t" in line


def test_a_folder_whose_split_the_user_says_is_not_warned_about(
    tmp_path: pathlib.Path,
) -> None:
    _, write = KINDS["webdataset"]
    write(tmp_path / "val", [("a", "cat")])
    reader = READERS["webdataset"](input=[f"train={tmp_path}/val"])

    assert not read_listed(reader).warnings


# Lists of classes stand beside shards.
@pytest.mark.parametrize("kind", ["webdataset", "tfrecord", "merged_tars"])
@pytest.mark.parametrize("folders", [["train"], ["train", "val"], ["a/train"]])
def test_a_list_of_classes_above_the_folders_of_splits_is_taken(
    kind: str, tmp_path: pathlib.Path, folders: list[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "labels.txt").write_text("cat\ndog\n")

    for folder in folders:
        images = [(f"{folder[0]}-part", "0"), (f"{folder[0]}-part", "1")]
        listed = _read_above(kind, tmp_path / "in", folder, images)

    assert listed.named().class_names() == ["cat", "dog"]


@pytest.mark.parametrize("kind", ["webdataset", "tfrecord"])
@pytest.mark.parametrize(
    "named", ["", "p/train p/val", "train=p/train validation=p/val"]
)
def test_a_list_of_classes_above_all_files_is_taken(
    kind: str, tmp_path: pathlib.Path, named: str
) -> None:
    reader, write = KINDS[kind]
    for split in ("train", "val"):
        write(tmp_path / "p" / split, [(split, "0"), (split, "1")])
    (tmp_path / "p" / "labels.txt").write_text("cat\ndog\n")

    words = [word.replace("p/", f"{tmp_path}/p/") for word in named.split()]
    listed = read_listed(READERS[reader](input=words or [str(tmp_path)]))

    assert [*listed.splits] == ["train", "validation"]
    assert listed.named().class_names() == ["cat", "dog"]


@_kinds()
def test_one_split_is_what_the_user_says(kind: str, tmp_path: pathlib.Path) -> None:
    labelled = _read(kind, tmp_path / "in", TWO, split="validation")

    assert {*_labels(labelled)} == {"validation"}
    assert len(list(labelled.listed.images())) == len(TWO)


# A column of splits is no name.
@_kinds("sqlite")
def test_names_of_splits_can_be_turned_off(kind: str, tmp_path: pathlib.Path) -> None:
    labelled = _read(kind, tmp_path / "in", TWO, split_names=False)

    assert {*_labels(labelled)} == {"train"}


# ImageNet and data sets have a list of their classes.
@_kinds("imagenet", "data_set")
@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        (("0", "10", "2"), {}, [0, 2, 10]),
        (("1", "10", "2"), {}, [1, 2, 10]),
        (("1", "10", "2"), {"label_base": 0}, [1, 2, 10]),
        (("0", "10", "2"), {"label_base": 1}, [1, 3, 11]),
        (("1", "10", "2"), {"label_type": "text"}, [1, 2, 3]),
        (("007", "12", "9"), {}, [1, 2, 3]),
        (("b", "c", "a"), {"label_base": 0}, [0, 1, 2]),
        (("1.0", "10.0", "2.0"), {}, [1, 2, 3]),
        (("1.0", "10.0", "2.0"), {"label_type": "number"}, [1, 2, 10]),
    ],
)
def test_numbers_stay_the_labels_and_names_are_counted(
    kind: str,
    tmp_path: pathlib.Path,
    names: tuple[str, ...],
    options: dict[str, Any],
    expected: list[int],
) -> None:
    images = [("train", name) for name in names]

    labelled = _read(kind, tmp_path / "in", images, **options)

    assert _labels(labelled) == {"train": expected}
    assert labelled.reason


# A data set cannot be made of such labels.
@_kinds("imagenet", "data_set")
def test_words_among_numbers_are_refused(kind: str, tmp_path: pathlib.Path) -> None:
    images = [("train", label) for label in ("0", "1", "2", "unknown")]

    with pytest.raises(ValueError, match=r"3 that are numbers \('0', '1', '2'\) and 1"):
        _read(kind, tmp_path / "in", images)


# Names of folders, and of the classes of data sets, are what they are.
@_kinds("folder", "imagenet", "data_set", "merge")
@pytest.mark.parametrize("label", ["a\0b", "x" * 1001])
def test_a_text_that_is_no_label_is_left_out_and_named(
    kind: str, tmp_path: pathlib.Path, label: str
) -> None:
    images = [("train", "a"), ("train", label), ("train", "می‌خواهم")]

    labelled = _read(kind, tmp_path / "in", images, on_null="skip")

    assert labelled.listed.class_names() == ["a", "می‌خواهم"]
    assert [item.reason.slug for item in labelled.listed.left_out] == ["bad_label"]


# A list of classes, and the index of a data set, have no class -1.
@_kinds("imagenet", "data_set")
@pytest.mark.parametrize("label", ["-1", "-1.0"])
def test_minus_one_is_no_label(kind: str, tmp_path: pathlib.Path, label: str) -> None:
    for number, (others, expected) in enumerate((("ab", [1, 2]), ("01", [0, 1]))):
        images = [("train", each) for each in (*others, label)]

        labelled = _read(kind, tmp_path / f"{number}" / "in", images, on_null="skip")

        assert labelled.listed.class_names() == [*others]
        assert _labels(labelled) == {"train": expected}
        (item,) = labelled.listed.left_out
        assert item.reason.slug in ("no_label", "null_label")


def _make(kind: str, root: pathlib.Path, images: Images, **options: Any) -> Job:
    return convert_input(kind, root, images, **options).make_job()


def _warnings(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if "Warn" in line]


@_kinds("data_set", "imagenet")
@pytest.mark.parametrize(
    ("labels", "options", "warning"),
    [
        (("Cat", "cat"), {}, "'Cat' and 'cat' are classes of their own"),
        (("1", "1.0"), {}, "'1' and '1.0' are classes of their own, and differ in"),
        (("0.0", "1.0"), {}, "The labels, such as 0.0, are taken for names"),
        (("0.0", "1.0"), {"label_type": "text"}, ""),
        (("0.0", "1.0"), {"label_type": "number"}, ""),
    ],
)
def test_labels_that_may_mean_something_else_are_warned_about(
    kind: str,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    labels: tuple[str, str],
    options: dict[str, Any],
    warning: str,
) -> None:
    _make(kind, tmp_path / "in", [("train", label) for label in labels], **options)

    lines = _warnings(capsys)
    assert len(lines) == bool(warning)
    assert all(line.startswith(f"Warning: {warning}") for line in lines)


@_kinds("data_set", "imagenet")
def test_a_class_that_train_lacks_is_warned_about(
    kind: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = [("train", "a"), ("train", "b"), ("test", "z")]

    _make(kind, tmp_path / "in", images)

    (line,) = _warnings(capsys)
    assert line.startswith("Warning: 1 class of the test split is no class of train, ")
    with pytest.raises(ValueError, match="--strict makes this warning an error"):
        _make(kind, tmp_path / "again" / "in", images, strict=True)


# The image has the same class in both splits, or another class.
IN_BOTH: dict[str, Images] = {
    "same_class": [("Train", "a=1"), ("Train", "b=2"), ("Test", "a=1")],
    "all": [("Train", "a=1"), ("Train", "b=2"), ("Test", "b=1")],
}


@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        *zip((k for k in KINDS if k != "data_set"), itertools.cycle(IN_BOTH)),
        ("folder", "same_class"),
        ("folder", "all"),
    ],
)
def test_an_image_in_two_splits_is_warned_about(
    kind: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    """No reader looks at the images; the flags do the same with all readers."""
    images = IN_BOTH[flag]
    job = _make(kind, tmp_path / "in", images)
    evaluated = {plan.split for plan in job.plans} - {"train"}
    _run(job)

    (line,) = _warnings(capsys)
    assert "1 image is in several splits, such as " in line
    assert f"--drop_duplicates={flag} " in line

    strict = _make(kind, tmp_path / "strict" / "in", images, strict=True)
    with pytest.raises(ValueError, match="--strict makes this warning an error"):
        _run(strict)
    assert not (strict.output_dir / "index.json").exists()

    dropped = _make(kind, tmp_path / "dropped" / "in", images, drop_duplicates=flag)
    assert [line["reason"] for line in dropped.dropped] == ["duplicate"]
    counts = {plan.split: plan.num_images for plan in dropped.plans}
    assert counts == {"train": 1, evaluated.pop(): 1}
    _run(dropped)
    assert "Warning" not in capsys.readouterr().err


def test_a_set_with_an_image_in_two_splits_stays_refused(
    tmp_path: pathlib.Path,
) -> None:
    """The command that finds its own data set complete has the same warning."""
    images = [("Train", "a=1"), ("Train", "b=2"), ("Test", "a=1")]
    job = _make("folder", tmp_path / "in", images)
    _run(job)

    with pytest.raises(ValueError, match="1 image is in several splits: results"):
        _run(dataclasses.replace(job, strict=True))


def _run(job: Job) -> None:
    run.run(dataclasses.replace(job, num_workers=1, fsync=False))
