"""The rules of docs/inputs.md, run on each reader: the same images in each form."""

import contextlib
import dataclasses
import io
import pathlib
import tarfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from converters.jobs import run
from converters.jobs.job import Job
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.trees import make_jpeg
from tfpipe.shards.example import bytes_feature, encode_example
from tfpipe.shards.records import frame

# An image: the name of the split in the input, and the label.
Images = Sequence[tuple[str, str]]
TWO = [("Train", "b"), ("Train", "a"), ("Test", "a"), ("Test", "b")]


def _numbered(images: Images) -> Iterator[tuple[str, str, str, bytes]]:
    """Yields split, label, name and content of each image.

    A label such as `a=7` is the class `a` with the content of image 7.
    """
    for number, (split, text) in enumerate(images):
        label, _, content = text.partition("=")
        yield split, label, f"{number:03d}", make_jpeg(int(content or number))


def write_tree(root: pathlib.Path, images: Images) -> None:
    for split, label, name, data in _numbered(images):
        path = root / split / label / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _folder(root: pathlib.Path, images: Images, **options: Any) -> Job:
    write_tree(root, images)
    return conversions.make_job(
        conversion("folder", input_dir=str(root), output_dir=_out(root), **options)
    )


def _merge(root: pathlib.Path, images: Images, **options: Any) -> Job:
    write_tree(root / "tree", images)
    options |= {"sources": {"a": str(root / "tree")}, "output_dir": _out(root)}
    return conversions.make_job(conversion("merge", **options))


def _table(root: pathlib.Path, images: Images, **options: Any) -> Job:
    root.mkdir(parents=True)
    (root / "img").mkdir()
    rows: dict[str, list[str]] = {}
    for split, label, name, data in _numbered(images):
        (root / "img" / f"{name}.jpg").write_bytes(data)
        rows.setdefault(split, ["path,label"]).append(f"img/{name}.jpg,{label}")
    for split, lines in rows.items():
        (root / f"{split}.csv").write_text("\n".join(lines) + "\n")
    options |= {"image_column": "path", "label_column": "label"}
    return conversions.make_job(
        conversion(
            "table", input=str(root), root=str(root), output_dir=_out(root), **options
        )
    )


def _webdataset(root: pathlib.Path, images: Images, **options: Any) -> Job:
    root.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        tars: dict[str, tarfile.TarFile] = {}
        for split, label, name, data in _numbered(images):
            if split not in tars:
                path = root / f"set-{split}-000.tar"
                tars[split] = stack.enter_context(tarfile.open(path, "w"))
            for part, content in (("jpg", data), ("cls", label.encode())):
                member = tarfile.TarInfo(f"{name}.{part}")
                member.size = len(content)
                tars[split].addfile(member, io.BytesIO(content))
    return conversions.make_job(
        conversion("webdataset", input=[str(root)], output_dir=_out(root), **options)
    )


def _tfrecord(root: pathlib.Path, images: Images, **options: Any) -> Job:
    root.mkdir(parents=True)
    for split, label, _, data in _numbered(images):
        features = {
            "image/encoded": bytes_feature(data),
            "image/class/label": bytes_feature(label.encode()),
        }
        with open(root / f"{split}.tfrecord", "ab") as file:
            file.write(b"".join(frame(encode_example(features))))
    return conversions.make_job(
        conversion("tfrecord", input=[str(root)], output_dir=_out(root), **options)
    )


def _out(root: pathlib.Path) -> str:
    return str(root.with_name("out"))


READERS = [_folder, _table, _webdataset, _tfrecord, _merge]
every_reader = pytest.mark.parametrize(
    "make", READERS, ids=lambda make: make.__name__.strip("_")
)
Make = Callable[..., Job]


def _labels(job: Job) -> dict[str, list[int]]:
    """The labels of each split, in order."""
    labels: dict[str, list[int]] = {}
    for plan in job.plans:
        for image in plan.images:
            label = job.classes[image.class_index].label
            labels.setdefault(plan.split, []).append(label)
    return {split: sorted(values) for split, values in labels.items()}


def _classes(job: Job) -> dict[str, int]:
    return {each.synset: each.label for each in job.classes}


@every_reader
@pytest.mark.parametrize(
    ("first", "second", "splits"),
    [
        ("Train", "Test", {"train", "test"}),
        ("training_set", "valid", {"train", "validation"}),
        ("seg_train", "eval", {"train", "validation"}),
        ("TRAIN", "dev", {"train", "validation"}),
    ],
)
def test_names_say_the_splits(
    make: Make, tmp_path: pathlib.Path, first: str, second: str, splits: set[str]
) -> None:
    job = make(tmp_path / "in", [(first, "a"), (first, "b"), (second, "a")])

    assert {plan.split for plan in job.plans} == splits
    assert _classes(job) == {"a": 1, "b": 2}


@every_reader
def test_one_split_is_what_the_user_says(make: Make, tmp_path: pathlib.Path) -> None:
    job = make(tmp_path / "in", TWO, split="validation")

    assert set(_labels(job)) == {"validation"}


@every_reader
def test_names_of_splits_can_be_turned_off(make: Make, tmp_path: pathlib.Path) -> None:
    job = make(tmp_path / "in", TWO, no_split_names=True)

    assert set(_labels(job)) == {"train"}


@every_reader
@pytest.mark.parametrize(
    ("labels", "options", "expected"),
    [
        (("0", "10", "2"), {}, [0, 2, 10]),
        (("1", "10", "2"), {}, [1, 2, 10]),
        (("1", "10", "2"), {"label_base": 0}, [1, 2, 10]),
        (("0", "10", "2"), {"label_base": 1}, [1, 3, 11]),
        (("1", "10", "2"), {"label_type": "text"}, [1, 2, 3]),
        (("007", "12", "9"), {}, [1, 2, 3]),
        (("b", "c", "a"), {"label_base": 0}, [0, 1, 2]),
    ],
)
def test_numbers_stay_the_labels_and_names_are_counted(
    make: Make,
    tmp_path: pathlib.Path,
    labels: tuple[str, ...],
    options: dict[str, Any],
    expected: list[int],
) -> None:
    job = make(tmp_path / "in", [("train", label) for label in labels], **options)

    assert _labels(job) == {"train": expected}
    assert job.label_reason


@every_reader
def test_words_among_numbers_are_refused(make: Make, tmp_path: pathlib.Path) -> None:
    images = [("train", label) for label in ("0", "1", "2", "unknown")]

    with pytest.raises(ValueError, match=r"3 that are numbers \('0', '1', '2'\) and 1"):
        make(tmp_path / "in", images)


@every_reader
def test_a_class_that_train_lacks_is_warned_about(
    make: Make, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = [("train", "a"), ("train", "b"), ("test", "z")]

    make(tmp_path / "in", images)

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Warning: 1 class of the test split is no class of train, ")
    with pytest.raises(ValueError, match="--strict makes this warning an error"):
        make(tmp_path / "again", images, strict=True)


def _imagenet(root: pathlib.Path, images: Images, **options: Any) -> Job:
    for split, label, name, data in _numbered(images):
        path = root / {"Train": "train", "Test": "val"}[split] / label / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (root / "synsets.txt").write_text("a\nb\n")
    return conversions.make_job(
        conversion("imagenet", input_dir=str(root), output_dir=_out(root), **options)
    )


@pytest.mark.parametrize(
    "make", [*READERS, _imagenet], ids=lambda make: make.__name__.strip("_")
)
@pytest.mark.parametrize(
    ("images", "flag"),
    [
        ([("Train", "a=1"), ("Train", "b=2"), ("Test", "a=1")], "same_class"),
        ([("Train", "a=1"), ("Train", "b=2"), ("Test", "b=1")], "all"),
    ],
)
def test_an_image_in_two_splits_is_warned_about(
    make: Make,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    images: Images,
    flag: str,
) -> None:
    job = make(tmp_path / "in", images)
    evaluated = {plan.split for plan in job.plans} - {"train"}
    _run(job)

    (line,) = [line for line in capsys.readouterr().err.splitlines() if "Warn" in line]
    assert "1 image is in several splits, such as " in line
    assert f"--drop_duplicates={flag} " in line

    strict = make(tmp_path / "strict" / "in", images, strict=True)
    with pytest.raises(ValueError, match="--strict makes this warning an error"):
        _run(strict)
    assert not (strict.output_dir / "index.json").exists()

    dropped = make(tmp_path / "dropped" / "in", images, drop_duplicates=flag)
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
    job = _folder(tmp_path / "in", images)
    _run(job)

    with pytest.raises(ValueError, match="1 image is in several splits: results"):
        _run(dataclasses.replace(job, strict=True))


def _run(job: Job) -> None:
    run.run(dataclasses.replace(job, num_workers=1, fsync=False))
