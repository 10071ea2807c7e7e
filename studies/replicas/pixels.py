"""Compares the pixels of the records of copies with those of their source.

In: the shards of a data set, and those of each copy in the same order. Out: the number
of images and of those that differ. Pillow decodes them.
"""

import concurrent.futures
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

    def look(copy: Sequence[pathlib.Path]) -> tuple[int, int]:
        pairs = [*zip(expected, _digests(copy), strict=True)]
        return (
            sum(one[0] != other[0] for one, other in pairs),
            sum(one[1] == other[1] for one, other in pairs),
        )

    # Decoding and digests work on all cores, as they hold no lock of Python.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = [*pool.map(look, copies)]
    return {
        "num_images": len(copies) * len(expected),
        "num_different": sum(different for different, _ in found),
        "num_same_bytes": sum(same for _, same in found),
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
