"""The layout tfds in every command: shards with the names that TFDS gives."""

import json
import pathlib
import shutil

import numpy as np
import pytest

import tfpipe
from converters import verify
from tests.support.data import conversions
from tests.support.data.conversions import Conversion, conversion
from tests.support.data.trees import convert, make_tree
from tfpipe.shards import index

NAMES = [
    "imagenet-train.tfrecord-00000-of-00002",
    "imagenet-train.tfrecord-00001-of-00002",
    "imagenet-validation.tfrecord-00000-of-00001",
]
OPTIONS = {"layout": "tfds", "num_train_shards": 2, "num_validation_shards": 1}


@pytest.fixture(scope="module")
def tfds_dir(
    raw_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """The tree of `raw_dir` converted with the layout tfds."""
    data_dir = tmp_path_factory.mktemp("tfds") / "records"
    convert(raw_dir, data_dir, **OPTIONS)
    return data_dir


def num_faults(
    data_dir: pathlib.Path, raw_dir: pathlib.Path, *, repair: bool = False
) -> int:
    """Returns the number of faults that converters.verify finds, or leaves."""
    config = verify.VerifyOptions(
        data_dir=str(data_dir),
        input_dir=str(raw_dir),
        level="source",
        num_workers=1,
        repair=repair,
    )
    return verify.verify(config).num_faults


def test_shards_have_the_names_and_the_index_says_so(tfds_dir: pathlib.Path) -> None:
    found = index.load(tfds_dir)

    assert sorted(path.name for path in tfds_dir.glob("*-of-*")) == NAMES
    assert [s.name for shards in found.splits.values() for s in shards] == NAMES
    assert sorted(path.name for path in (tfds_dir / "dali_idx").iterdir()) == NAMES
    options = found.made_by["options"]
    assert (options["layout"], options["dataset_name"]) == ("tfds", "imagenet")
    info = json.loads((tfds_dir / "dataset_info.json").read_text())
    templates = {split["filepathTemplate"] for split in info["splits"]}
    assert templates == {"{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"}


def test_records_are_those_of_the_other_layout(
    tfds_dir: pathlib.Path, raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    convert(raw_dir, tmp_path, num_train_shards=2, num_validation_shards=1)
    other = index.load(tmp_path).splits["train"]

    assert [s.digest for s in index.load(tfds_dir).splits["train"]] == [
        s.digest for s in other
    ]


def test_tfpipe_reads_them(tfds_dir: pathlib.Path) -> None:
    source = tfpipe.TFRecordSource(str(tfds_dir), "train")
    stages = [tfpipe.Interleave(), tfpipe.Map(tfpipe.Parse(label_base=1))]

    dataset = tfpipe.Pipeline(source, stages, tuning=tfpipe.Tuning()).build()

    labels = sorted(int(example["label"]) for example in dataset)
    assert labels == sorted(np.repeat(range(4), 6).tolist())


def test_a_flipped_byte_is_found_and_repaired(
    tfds_dir: pathlib.Path, raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    data_dir = tmp_path / "copy"
    shutil.copytree(tfds_dir, data_dir)
    path = data_dir / NAMES[1]
    before = path.read_bytes()
    path.write_bytes(before[:500] + bytes([before[500] ^ 1]) + before[501:])

    assert num_faults(data_dir, raw_dir) > 0
    assert num_faults(data_dir, raw_dir, repair=True) == 0
    assert path.read_bytes() == before
    assert num_faults(data_dir, raw_dir) == 0


def test_another_layout_is_another_job(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr("converters.jobs.publish.publish", fail)
        with pytest.raises(OSError, match="cut off"):
            convert(raw_dir, tmp_path / "out", **OPTIONS)

    with pytest.raises(ValueError, match=r"options\.layout was 'tfds', is 'inception'"):
        convert(raw_dir, tmp_path / "out", num_train_shards=2, num_validation_shards=1)
    assert convert(raw_dir, tmp_path / "out", **OPTIONS)["num_shards"] == 3


def test_overwriting_leaves_no_shard_of_the_other_layout(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    convert(raw_dir, tmp_path, num_train_shards=2)
    convert(raw_dir, tmp_path, overwrite=True, **OPTIONS)

    assert sorted(path.name for path in tmp_path.glob("*-of-*")) == NAMES


def _folder_config(root: pathlib.Path, **options: object) -> Conversion:
    return conversion(
        "folder",
        input_dir=str(root / "raw/train"),
        output_dir=str(root / "out"),
        layout="tfds",
        num_workers=1,
        fsync=False,
        **options,  # type: ignore[arg-type]
    )


def test_folder_has_a_name_of_its_own(tmp_path: pathlib.Path) -> None:
    make_tree(tmp_path / "raw", num_images=4)

    conversions.convert(_folder_config(tmp_path, name="my_photos"))

    assert index.load(tmp_path / "out").name == "my_photos"
    assert (tmp_path / "out" / "my_photos-train.tfrecord-00000-of-00001").exists()


@pytest.mark.parametrize("name", ["My", "my-photos", "2024", ""])
def test_name_that_tfds_does_not_know_is_refused(
    tmp_path: pathlib.Path, name: str
) -> None:
    with pytest.raises(ValueError, match=f"start with a letter, got '{name}'"):
        _folder_config(tmp_path, name=name)
