"""Side files never change pixels in silence: the same batches, or an error."""

import pathlib
import shutil

import numpy as np
import pytest

import tfpipe
from tests.support.data.presets import preset_over
from tests.support.faults import damage
from tfpipe.shards import index


def batches(folder, **options):
    small = {"image_size": 8, "batch_size": 8, "with_record_id": True}
    parse = tfpipe.Parse(label_base=1)
    pipeline = preset_over(
        tfpipe.imagenet_train, folder, parse=parse, **small, **options
    )
    return [*pipeline.build().as_numpy_iterator()]


CHANGES = {
    "removed": pathlib.Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "flipped": lambda path: damage.flip(path, path.stat().st_size // 2),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "zeros": lambda path: path.write_bytes(
        path.read_bytes()[:-80] + bytes(60) + path.read_bytes()[-20:]
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_side_file_keeps_the_pixels_or_is_an_error(data_dir, tmp_path, change):
    expected = batches(data_dir)
    sides = [path.name for path in data_dir.iterdir() if path.is_file()]
    sides = [name for name in sides if "-of-" not in name]
    assert {"index.json", "catalog.parquet"} <= {*sides}
    for name in sides:
        copy = pathlib.Path(shutil.copytree(data_dir, tmp_path / name))
        CHANGES[change](copy / name)
        try:
            found = batches(copy)
        except tfpipe.errors.TfpipeError:
            continue
        assert name not in ("catalog.parquet", "index.json")
        for batch, wanted in zip(found, expected, strict=True):
            assert all(np.array_equal(batch[n], wanted[n]) for n in wanted)


def test_a_subset_has_the_pixels_of_the_split(data_dir):
    """The smallest images alone would be decoded in full."""
    source = tfpipe.TFRecordSource(data_dir, "train")
    columns = index.load_catalog(data_dir, "train", ["height", "width"])
    small = np.sort(np.argsort(np.minimum(columns["height"], columns["width"]))[:8])
    subset = tfpipe.Subset.of_records(source.index, "train", small)
    images = []
    for chosen in (None, subset):
        options = {"split": "train", "image_size": 10, "with_record_id": True}
        pipeline = preset_over(
            tfpipe.imagenet_eval, data_dir, batch_size=8, subset=chosen, **options
        )
        assert "quality='fast'" in str(pipeline)
        images.append(
            {
                int(record): image
                for batch in pipeline.build().as_numpy_iterator()
                for record, image in zip(
                    batch["record_id"], batch["image"], strict=True
                )
            }
        )
    assert {*images[1]} == {*small.tolist()}
    assert all(np.array_equal(images[0][n], image) for n, image in images[1].items())
