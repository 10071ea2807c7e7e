"""Records and shards as other tools write them, with TensorFlow's own writer."""

import io
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import PIL.Image
import tensorflow as tf

from tests.support.data.trees import make_jpeg


def make_image(seed: int, kind: str = "PNG", **size: int) -> bytes:
    """The pixels of `make_jpeg` in another format, of which PNG is lossless."""
    out = io.BytesIO()
    PIL.Image.open(io.BytesIO(make_jpeg(seed, **size))).save(out, kind)
    return out.getvalue()


def make_record(features: Mapping[str, Any]) -> bytes:
    """A serialized tf.train.Example of byte strings, whole numbers and their lists."""
    made = {}
    for key, value in features.items():
        values = value if isinstance(value, list) else [value]
        if values and isinstance(values[0], bytes):
            feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        else:
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        made[key] = feature
    example = tf.train.Example(features=tf.train.Features(feature=made))
    data: bytes = example.SerializeToString()
    return data


def write_shard(
    path: pathlib.Path, records: Iterable[Mapping[str, Any]], compression: str = ""
) -> None:
    """Writes a shard of such records; its folder is made if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for features in records:
            writer.write(make_record(features))
