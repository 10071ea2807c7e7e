"""converters.shards: one shard and its catalog fragment."""

import json
import pathlib

import pytest
import tensorflow as tf
import xxhash

from converters import classes, inputs, plan, shards
from tfpipe import records

CLASSES = classes.imagenet_classes()


def _write(
    raw_dir: pathlib.Path, work_dir: pathlib.Path
) -> tuple[plan.ShardPlan, shards.Written]:
    tree = inputs.read_tree(raw_dir, CLASSES)
    (only,) = plan.make_plan({"train": tree.splits["train"]}, {"train": 1}, seed=0)
    written = shards.write_shard(
        only,
        input_dir=raw_dir,
        work_dir=work_dir,
        classes=CLASSES,
    )
    return only, written


def test_shard_holds_the_planned_images_byte_for_byte(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    planned, written = _write(raw_dir, tmp_path)

    path = tmp_path / "train-00000-of-00001"
    stored = [
        tf.train.Example.FromString(record.numpy()).features.feature
        for record in tf.data.TFRecordDataset(str(path))
    ]
    assert len(stored) == written.shard.num_records == 24
    for features, image in zip(stored, planned.images, strict=True):
        data = (raw_dir / image.name).read_bytes()
        assert features["image/encoded"].bytes_list.value == [data]
        label = features["image/class/label"].int64_list.value[0]
        synset = features["image/class/synset"].bytes_list.value[0].decode()
        assert CLASSES[label - 1].synset == synset == image.name.split("/")[1]
    assert written.shard.num_bytes == path.stat().st_size
    assert written.shard.digest == xxhash.xxh3_128_hexdigest(path.read_bytes())
    assert written.decisions == {"kept": 24}


def test_fragment_says_where_each_record_is(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    _write(raw_dir, tmp_path)

    path = tmp_path / "train-00000-of-00001"
    lines = shards.fragment_path(path).read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    places = [(row["byte_offset"], row["num_bytes"]) for row in rows]
    assert places == list(records.scan(path))
    first = json.loads(lines[0])
    encoded = (raw_dir / first["filename"]).read_bytes()
    assert first["digest"] == xxhash.xxh3_128_hexdigest(encoded)


def test_bad_image_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "bad.JPEG").write_bytes(b"no picture")
    planned = plan.ShardPlan(
        "train", 0, 1, [inputs.Image("bad.JPEG", 0, "bad.JPEG", 0, 10)]
    )

    with pytest.raises(ValueError, match=r"bad\.JPEG: not an image.*Restore it or rem"):
        shards.write_shard(
            planned,
            input_dir=tmp_path,
            work_dir=tmp_path,
            classes=CLASSES,
        )
