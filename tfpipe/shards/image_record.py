"""The record of an image: the features that a converter writes, encoded fast.

In: the fields of one image. Out: its `tf.train.Example` in a few pieces, the same bytes
as `example.encode_example` returns. Features that many records share (class, size, no
boxes) are encoded once and kept. Imports no TensorFlow.

Keys are those of the Inception ImageNet scripts, which tf_cnn_benchmarks, TF Model
Garden, slim and DALI read.
"""

import functools
import os
from collections.abc import Sequence
from typing import NamedTuple

from tfpipe.shards.example import (
    Buffers,
    bytes_entry_head,
    bytes_feature,
    encode_entry,
    example_head,
    float_feature,
    int64_feature,
)

ENCODED = "image/encoded"
HEIGHT = "image/height"
WIDTH = "image/width"
LABEL = "image/class/label"

Box = tuple[float, float, float, float]

_KEPT = 1 << 14  # cached encodings; ImageNet has fewer classes and sizes


class ImageRecord(NamedTuple):
    """One image with its label, as it is stored.

    Attributes:
        encoded: JPEG bytes.
        height: Height in pixels.
        width: Width in pixels.
        label: Class label, counted from the label base of the data set.
        synset: Class folder, for ImageNet the WordNet id.
        text: Name of the class for people.
        filename: Base name of the source file.
        boxes: (xmin, ymin, xmax, ymax) of each object, relative, 0 to 1.
    """

    encoded: bytes
    height: int
    width: int
    label: int
    synset: str
    text: str
    filename: str
    boxes: Sequence[Box] = ()


def encode_image(record: ImageRecord) -> Buffers:
    """Encodes an image as a `tf.train.Example`, in pieces to be joined.

    The labels of boxes are written under both keys that readers use.
    """
    filename = os.fsencode(record.filename)
    # Keys must be in sorted order; image/encoded is the sixth.
    head = _class(record.label, record.synset, record.text) + bytes_entry_head(
        ENCODED, len(record.encoded)
    )
    tail = (
        _filename_head(len(filename))
        + filename
        + _FORMAT
        + _size(HEIGHT, record.height)
        + _boxes(record.label, tuple(record.boxes))
        + _size(WIDTH, record.width)
    )
    num_bytes = len(head) + len(record.encoded) + len(tail)
    return [example_head(num_bytes) + head, record.encoded, tail]


@functools.lru_cache(maxsize=_KEPT)
def _filename_head(num_bytes: int) -> bytes:
    return bytes_entry_head("image/filename", num_bytes)


@functools.lru_cache(maxsize=_KEPT)
def _class(label: int, synset: str, text: str) -> bytes:
    return _entries(
        {
            "image/channels": int64_feature([3]),
            LABEL: int64_feature([label]),
            "image/class/synset": bytes_feature(synset.encode()),
            "image/class/text": bytes_feature(text.encode()),
            "image/colorspace": bytes_feature(b"RGB"),
        }
    )


@functools.lru_cache(maxsize=_KEPT)
def _size(key: str, pixels: int) -> bytes:
    return _entries({key: int64_feature([pixels])})


@functools.lru_cache(maxsize=_KEPT)
def _boxes(label: int, boxes: tuple[Box, ...]) -> bytes:
    sides = list(zip(*boxes, strict=True)) or [(), (), (), ()]
    xmin, ymin, xmax, ymax = (float_feature(side) for side in sides)
    labels = int64_feature([label] * len(boxes))
    return _entries(
        {
            "image/object/bbox/label": labels,
            "image/object/bbox/xmax": xmax,
            "image/object/bbox/xmin": xmin,
            "image/object/bbox/ymax": ymax,
            "image/object/bbox/ymin": ymin,
            "image/object/class/label": labels,
        }
    )


def _entries(features: dict[str, Buffers]) -> bytes:
    pieces = (encode_entry(key, feature) for key, feature in features.items())
    return b"".join(piece for entry in pieces for piece in entry)


_FORMAT = _entries({"image/format": bytes_feature(b"JPEG")})
