"""missing_index names the content of a folder without index.json, and the remedy."""

import pathlib
import re

import pytest

from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.shard_cache import metadata
from tfpipe.shards import index, missing_index

# Files below the folder DIR or beside it -> what the error says after "is missing. ".
# HERE stands for the folder that was given.
TABLE = [
    ([], "The folder is empty. .*converters.folder PHOTOS "),
    (["notes.txt"], "It holds notes.txt. Create one with"),
    (["cats/1.jpg", "dogs/2.PNG"], "photos .* converters.folder HERE "),
    (["1.heic"], "photos such as 1.heic: .* converters.folder ABOVE NEW"),
    (["photos/cats/1.jpg"], "photos .* HERE/photos "),
    (["train/cats/1.jpg", "val/cats/2.jpg"], "converters.folder HERE "),
    (
        ["train/n01440764/1.JPEG", "val/1.JPEG"],
        "of ImageNet such as n01440764: .* converters.imagenet HERE ",
    ),
    (["train/n01440764/1.JPEG"], "of ImageNet .* converters.imagenet HERE"),
    (["ILSVRC2012_img_train.tar"], "converters.imagenet HERE NEW"),
    (["a-000.tar", "a-001.tar"], r"converters.webdataset 'HERE/\*.tar' NEW"),
    (["train/a.tar", "val/a.tar"], "converters.webdataset HERE NEW"),
    (["sub/a.tfrecord"], r'files="\*\*/\*.tfrecord"\) .*converters.tfrecord HERE NEW'),
    (["a.tfrec"], r'files="\*.tfrec"\) reads them in place'),
    (["labels.csv", "1.jpg"], "converters.table HERE/labels.csv NEW --image_"),
    (
        ["x.parquet"],
        "a table such as x.parquet: .* converters.table HERE/x.parquet NEW ",
    ),
    (
        ["train-00000-of-00002"],
        "no index: .*converters.verify HERE --level=crc --write",
    ),
    (["records/index.json", "a/1.jpg"], "There is one in HERE/records: give that fold"),
    (["a/b/c/1.jpg"], "photos such as 1.jpg"),
    (["a/b/c/d/1.jpg"], "It holds a. Create one"),
    ([".git/1.jpg"], "It holds .git. Create one"),
    ([*(f"{n}.txt" for n in range(60)), "z/1.jpg"], "photos such as 1.jpg"),
    (["../index.json", "a.jpg"], "There is one in ABOVE: give that folder"),
    ([".converting/job-1/lock"], "not ended, or a task of it failed: run its command"),
]


@pytest.mark.parametrize(("names", "said"), TABLE, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("through_cache", [False, True])
def test_an_error_says_what_to_do_with_what_lies_there(
    tmp_path: pathlib.Path, names: list[str], said: str, through_cache: bool
) -> None:
    folder = tmp_path / "DIR"
    folder.mkdir()
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")

    def read() -> object:
        if through_cache:  # as for a shared mount
            return metadata.bring(Files(str(folder)), tmp_path / "cache")
        return index.load(folder)

    with pytest.raises(errors.BadIndexError) as raised:
        read()

    text = str(raised.value)
    assert text.startswith(f"No data set in {folder}: index.json is missing. ")
    text = text.replace(str(folder), "HERE").replace(str(tmp_path), "ABOVE")
    assert re.search(said, text), text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere", "There is no such folder. Create one"),
        ("a.csv", "converters.table"),
        ("a.txt", r"missing\. Create one with"),
        ("set/index.json", r"It is a file: give its folder, .*/set\.$"),
    ],
)
def test_a_path_that_is_no_folder_is_named(
    tmp_path: pathlib.Path, name: str, said: str
) -> None:
    (tmp_path / "set").mkdir()
    for file in ("a.csv", "a.txt", "set/index.json"):
        (tmp_path / file).touch()

    with pytest.raises(errors.BadIndexError, match=said):
        index.load(tmp_path / name)


def test_a_link_that_cannot_be_followed_is_passed_over(tmp_path: pathlib.Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "a.jpg").write_bytes(b"")

    with pytest.raises(errors.BadIndexError, match=r"photos such as a\.jpg"):
        index.load(tmp_path)


def test_a_folder_of_many_names_is_looked_at_in_part(tmp_path: pathlib.Path) -> None:
    for number in range(60):
        (tmp_path / f"class {number:02}" / "more").mkdir(parents=True)
    (tmp_path / "class 59" / "1.jpg").write_bytes(b"")

    with pytest.raises(errors.BadIndexError, match="It holds class 00, class 01, "):
        index.load(tmp_path)


@pytest.mark.parametrize(
    ("location", "asked", "said"),
    [
        ("photos", "converters.folder", ""),
        (
            "photos/cat",
            "converters.folder",
            "photos such as 1.jpg: use .*folder photos DIR",
        ),
        ("photos", "converters.imagenet", "converters.folder photos DIR"),
        ("photos/cat/1.jpg", "converters.table", "For photos: use .*folder photos DIR"),
        ("a.tar", "converters.webdataset", ""),
        ("a.tar", "converters.tfrecord", "For tars: use .*webdataset '*.tar' DIR"),
        ("a.csv", "converters.folder", "a table: use .*table a.csv DIR --image_"),
        ("train-00000-of-00001", "converters.table", "converters.tfrecord train-0"),
        ("records", "converters.folder", "It is a data set already"),
        ("texts", "converters.folder", ""),
        ("nowhere", "converters.folder", ""),
        ("s3://bucket/photos", "converters.folder", ""),
    ],
)
def test_a_converter_names_the_one_for_its_input(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    location: str,
    asked: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("photos/cat/1.jpg", "records/index.json", "texts/a.txt"):
        pathlib.Path(name).parent.mkdir(parents=True)
        pathlib.Path(name).touch()
    for name in ("a.tar", "a.csv", "train-00000-of-00001"):
        pathlib.Path(name).touch()

    text = missing_index.other_converter(location, asked)

    assert bool(text) == bool(said)
    assert re.search(said.replace("*.tar", r"\*.tar"), text), text
