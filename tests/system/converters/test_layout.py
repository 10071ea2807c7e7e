"""The layout tfds, read by TFDS itself."""

import pathlib
import shutil

import pytest

from tests.support.data.trees import convert
from tfpipe.shards import index


def test_tfds_loads_a_converted_folder_by_name(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    tfds = pytest.importorskip(
        "tensorflow_datasets", reason="TFDS comes with the extra 'tfds'"
    )
    tfds_dir = tmp_path / "records"
    convert(raw_dir, tfds_dir, layout="tfds", num_train_shards=2)
    shutil.copytree(tfds_dir, tmp_path / "imagenet" / "1.0.0")
    catalog = index.load_catalog(tfds_dir, "train", ["filename"])["filename"]

    builder = tfds.builder_from_directory(str(tfds_dir))
    dataset = tfds.load("imagenet", split="train", data_dir=tmp_path, download=False)

    read = list(dataset.as_numpy_iterator())
    assert builder.info.splits["train"].num_examples == len(read) == 24
    names = [example["image/filename"].decode() for example in read]
    assert sorted(names) == sorted(pathlib.PurePath(name).name for name in catalog)
