"""Reads records at known places with the native op, without copies by TensorFlow.

In: the places of records in local shards. Out: their images, as handles that only the
native crop op reads, and a few numbers of each record; or a request to the kernel to
read parts of shards into memory. `src/read_ops.h` has the ops.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfpipe.native import op

# Names of the features that say where a record is.
_PLACE = ("path", "byte_offset", "num_bytes")


def read(
    place: Mapping[str, tf.Tensor], image_key: str, number_keys: Sequence[str]
) -> dict[str, tf.Tensor]:
    """Reads, checks and parses records.

    Args:
        place: The path of the shard of each record, string [] or [n], its `byte_offset`
            and its `num_bytes` with header and footer, int64 of that shape.
        image_key: Key of the encoded image.
        number_keys: Keys of features of one int64 each.

    Returns:
        Under image_key, variant of that shape: the encoded image, for `crop_image`.
        Under the other keys, int64 of that shape.

    Raises:
        tf.errors.DataLossError: When it runs, if a record cannot be read, is damaged
            or has no such feature; names its shard and byte offset.
    """
    encoded, found = op.module().tfpipe_read_records(
        **{name: place[name] for name in _PLACE},
        image_key=image_key,
        number_keys=number_keys,
    )
    numbers = tf.unstack(found, len(number_keys), axis=-1)
    values = dict(zip(number_keys, numbers, strict=True))
    return {image_key: encoded} | values


def read_ahead(path: tf.Tensor, begin: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """Asks the kernel to read parts of files into memory, and does not wait.

    Args:
        path: string [n], the file of each part.
        begin, end: int64 [n], the bytes of each part.

    Returns:
        int64 [], the number of bytes.
    """
    return op.module().tfpipe_read_ahead(path=path, begin=begin, end=end)
