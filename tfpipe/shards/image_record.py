"""The record of an image: the features that a converter writes, encoded fast.

In: the fields of an image. Out: its `tf.train.Example` in a few pieces, the same bytes
as `example.encode_example` returns. Features of many records (class, size, no boxes)
are encoded once and kept. Imports no TensorFlow.

Keys are the keys of the Inception ImageNet scripts. tf_cnn_benchmarks, TF Model Garden,
slim and DALI read them.
"""

import functools
import os
from collections.abc import Mapping, Sequence
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
# All labels of a record, where a data set has records with several.
LABELS = "image/class/labels"

Box = tuple[float, float, float, float]

_KEPT = 1 << 14  # cached encodings; ImageNet has fewer classes and sizes


class ImageRecord(NamedTuple):
    """An image with its label, as stored.

    Attributes:
        encoded: JPEG bytes.
        height: Height in pixels.
        width: Width in pixels.
        label: Class label, counted from the label base of the data set; or a list of
            any number of labels, see `Parse.multi_label`.
        synset: Class folder, for ImageNet the WordNet id.
        text: Name of the class for people.
        filename: Base name of the source file.
        boxes: (xmin, ymin, xmax, ymax) of each object, relative, 0 to 1.
        box_labels: Label of each box; None gives all boxes the label of the image. The
            image must have a single label then.
        features: More features by key, from `example.int64_feature` and its like. All
            keys come before image/encoded in sorted order, as extra/score does.
    """

    encoded: bytes
    height: int
    width: int
    label: int | Sequence[int]
    synset: str
    text: str
    filename: str
    boxes: Sequence[Box] = ()
    box_labels: Sequence[int] | None = None
    features: Mapping[str, Buffers] | None = None


def encode_image(record: ImageRecord) -> Buffers:
    """Encodes an image as a `tf.train.Example`, in pieces to be joined.

    The labels of boxes are written under both keys that readers use.

    Raises:
        ValueError: If a box has not exactly one label, or a key of `features` comes
            after image/encoded.
    """
    labels = (record.label,) if isinstance(record.label, int) else tuple(record.label)
    filename = os.fsencode(record.filename)
    # Keys must be in sorted order; image/encoded is the sixth.
    entries = _class(labels, record.synset, record.text)
    if record.features:
        entries = {**entries, **_entries(record.features)}
        if (last := max(entries)) >= ENCODED:
            raise ValueError(
                f"ImageRecord.features must have keys that sort before {ENCODED}, got "
                f"{last}."
            )
        entries = dict(sorted(entries.items()))
    head = b"".join(entries.values()) + bytes_entry_head(ENCODED, len(record.encoded))
    tail = (
        _filename_head(len(filename))
        + filename
        + _FORMAT
        + _size(HEIGHT, record.height)
        + _boxes(_box_labels(record, labels), tuple(record.boxes))
        + _size(WIDTH, record.width)
    )
    num_bytes = len(head) + len(record.encoded) + len(tail)
    return [example_head(num_bytes) + head, record.encoded, tail]


def _box_labels(record: ImageRecord, labels: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the label of each box."""
    given = record.box_labels
    if given is None and len(labels) == 1:
        return labels * len(record.boxes)
    if len(given or ()) != len(record.boxes):
        raise ValueError(
            f"ImageRecord.box_labels must be one label for each of the "
            f"{len(record.boxes)} boxes of {record.filename}, got {given}."
        )
    return tuple(given or ())


@functools.lru_cache(maxsize=_KEPT)
def _filename_head(num_bytes: int) -> bytes:
    return bytes_entry_head("image/filename", num_bytes)


@functools.lru_cache(maxsize=_KEPT)
def _class(labels: tuple[int, ...], synset: str, text: str) -> Mapping[str, bytes]:
    return _entries(
        {
            "image/channels": int64_feature([3]),
            LABEL: int64_feature(labels),
            "image/class/synset": bytes_feature(synset.encode()),
            "image/class/text": bytes_feature(text.encode()),
            "image/colorspace": bytes_feature(b"RGB"),
        }
    )


@functools.lru_cache(maxsize=_KEPT)
def _size(key: str, pixels: int) -> bytes:
    return b"".join(encode_entry(key, int64_feature([pixels])))


@functools.lru_cache(maxsize=_KEPT)
def _boxes(box_labels: tuple[int, ...], boxes: tuple[Box, ...]) -> bytes:
    sides = list(zip(*boxes, strict=True)) or [(), (), (), ()]
    xmin, ymin, xmax, ymax = (float_feature(side) for side in sides)
    labels = int64_feature(box_labels)
    entries = _entries(
        {
            "image/object/bbox/label": labels,
            "image/object/bbox/xmax": xmax,
            "image/object/bbox/xmin": xmin,
            "image/object/bbox/ymax": ymax,
            "image/object/bbox/ymin": ymin,
            "image/object/class/label": labels,
        }
    )
    return b"".join(entries.values())


def _entries(features: Mapping[str, Buffers]) -> dict[str, bytes]:
    return {key: b"".join(encode_entry(key, each)) for key, each in features.items()}


_FORMAT = b"".join(encode_entry("image/format", bytes_feature(b"JPEG")))
