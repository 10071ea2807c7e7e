"""converters.imagenet: records that TensorFlow reads, and their order and labels."""

import pathlib

import tensorflow as tf

from tests.support.data.trees import convert, digests, make_tree

INCEPTION_KEYS = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/format": tf.io.FixedLenFeature([], tf.string),
    "image/height": tf.io.FixedLenFeature([], tf.int64),
    "image/width": tf.io.FixedLenFeature([], tf.int64),
    "image/channels": tf.io.FixedLenFeature([], tf.int64),
    "image/colorspace": tf.io.FixedLenFeature([], tf.string),
    "image/filename": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    "image/class/synset": tf.io.FixedLenFeature([], tf.string),
    "image/class/text": tf.io.FixedLenFeature([], tf.string),
    "image/object/bbox/xmin": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/xmax": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/ymin": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/ymax": tf.io.VarLenFeature(tf.float32),
    "image/object/bbox/label": tf.io.VarLenFeature(tf.int64),
}


def test_other_seed_gives_another_order(
    raw_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    for seed in (0, 1):
        convert(raw_dir, tmp_path / str(seed), seed=seed)

    assert digests(tmp_path / "0") != digests(tmp_path / "1")


def test_tensorflow_reads_all_inception_keys(
    raw_dir: pathlib.Path, data_dir: pathlib.Path
) -> None:
    paths = sorted(map(str, data_dir.glob("train-*")))
    stored = {}
    for record in tf.data.TFRecordDataset(paths):
        example = tf.io.parse_single_example(record, INCEPTION_KEYS)
        stored[example["image/filename"].numpy().decode()] = example

    files = {path.name: path for path in raw_dir.glob("train/*/*.JPEG")}
    assert stored.keys() == files.keys()
    for name, example in stored.items():
        assert example["image/encoded"].numpy() == files[name].read_bytes()
        shape = tf.io.decode_jpeg(example["image/encoded"]).shape
        size = (example["image/height"], example["image/width"], 3)
        assert tuple(shape) == size


def test_subset_of_classes_keeps_its_labels(tmp_path: pathlib.Path) -> None:
    raw_dir = make_tree(tmp_path / "raw", num_images=4)
    for synset in ("n01440764", "n01443537"):
        (raw_dir / "train" / synset).rename(tmp_path / synset)

    convert(raw_dir, tmp_path / "out")

    paths = sorted(map(str, (tmp_path / "out").glob("train-*")))
    labels = [
        tf.io.parse_single_example(record, INCEPTION_KEYS)["image/class/label"].numpy()
        for record in tf.data.TFRecordDataset(paths)
    ]
    assert sorted(labels) == [3, 4]
