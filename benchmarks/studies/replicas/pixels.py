"""Compares the pixels of the records of copies with those of their source.

In: the shards of a data set, and those of each copy in the same order. Out: the number
of images and of those that differ. Pillow decodes them.
"""

import hashlib
import io
import pathlib
from collections.abc import Iterator, Sequence

import PIL.Image


def compare(
    source: Sequence[pathlib.Path], copies: Sequence[Sequence[pathlib.Path]]
) -> dict[str, int]:
    """Returns `num_images` of all copies, `num_different` and `num_same_bytes`.

    Args:
        source: The shards of the source.
        copies: The shards of each copy, whose records are in the order of the source.

    Raises:
        ValueError: If a copy has another number of records.
    """
    expected = list(_digests(source))
    num_different = num_same_bytes = 0
    for copy in copies:
        for (pixels, content), found in zip(expected, _digests(copy), strict=True):
            num_different += pixels != found[0]
            num_same_bytes += content == found[1]
    return {
        "num_images": len(copies) * len(expected),
        "num_different": num_different,
        "num_same_bytes": num_same_bytes,
    }


def _digests(shards: Sequence[pathlib.Path]) -> Iterator[tuple[bytes, bytes]]:
    """Yields digests of the pixels and of the bytes of each image."""
    import tensorflow as tf

    for shard in shards:
        for record in tf.data.TFRecordDataset(str(shard)).as_numpy_iterator():
            features = tf.train.Example.FromString(record).features.feature
            encoded = features["image/encoded"].bytes_list.value[0]
            with PIL.Image.open(io.BytesIO(encoded)) as image:
                shape = f"{image.mode} {image.size}".encode()
                pixels = hashlib.sha256(shape + image.tobytes()).digest()
            yield pixels, hashlib.sha256(encoded).digest()
