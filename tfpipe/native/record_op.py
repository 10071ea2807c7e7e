"""Reads records at known places with the native op, without copies by TensorFlow.

In: the places of records in local files. Out: their images, as handles that only the
native ops read, and a few numbers of each record; or the records themselves, held in
memory until they are parsed; or a request to the kernel to read parts of files into
memory. `src/record_ops.cc` has the ops.
"""

import sys
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfpipe.native import op

Example = dict[str, tf.Tensor]

# The feature of the encoded image beside a `record` without it.
IMAGE = "image_in_place"

# Names of the features that say where a record is.
_PLACE = ("path", "byte_offset", "num_bytes")


def read(
    where: Mapping[str, tf.Tensor],
    image_key: str,
    number_keys: Sequence[str],
    *,
    num_optional: int = 0,
) -> Example:
    """Reads, checks and parses records.

    Args:
        where: The path of the shard of each record, string [] or [n], its `byte_offset`
            and its `num_bytes` with header and footer, int64 of that shape. With
            `held`, variant of that shape, the result of `hold`, nothing is read:
            `path` and `byte_offset` are for errors, and `num_bytes` is not needed.
        image_key: Key of the encoded image.
        number_keys: Keys of features of one int64 each.
        num_optional: How many of the last keys a record may lack; it then gets a 0.

    Returns:
        Under image_key, variant of that shape: the encoded image, for `crop_image`,
        `jpeg_sizes` and `image_bytes`.
        Under the other keys, int64 of that shape.

    Raises:
        tf.errors.DataLossError: When it runs, if a record is damaged, cut short or
            lacks a feature; names its shard and byte offset.
        tf.errors.UnavailableError: When it runs, if a file cannot be opened or read:
            no file, no descriptor, no memory or a fault of the disk.
    """
    encoded, found, _ = _read(where, image_key, number_keys, num_optional=num_optional)
    numbers = tf.unstack(found, len(number_keys), axis=-1)
    return {image_key: encoded} | dict(zip(number_keys, numbers, strict=True))


def with_record(example: Example, image_key: str) -> Example:
    """Returns an example, or a batch, with its record, which TensorFlow can parse.

    Args:
        example: What `read` takes, or an example with `record`.
        image_key: Key of the encoded image.

    Returns:
        The example with `record`: string, a tf.train.Example. If it had none, the
        record lacks the image, and the example has `IMAGE`: variant, see `read`.

    Raises:
        tf.errors.DataLossError: When it runs, as `read` does.
    """
    if "record" in example:
        return example
    image, _, rest = _read(example, image_key, [], with_rest=True)
    return example | {"record": rest, IMAGE: image}


def _read(
    where: Mapping[str, tf.Tensor],
    image_key: str,
    number_keys: Sequence[str],
    *,
    num_optional: int = 0,
    with_rest: bool = False,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the images, the numbers [..., number] and, if wanted, all the rest."""
    if "held" in where:
        made, names = op.module().tfpipe_parse_held, ("held", "path", "byte_offset")
    else:
        made, names = op.module().tfpipe_read_records, _PLACE
    found: tuple[tf.Tensor, tf.Tensor, tf.Tensor] = made(
        **{name: where[name] for name in names},
        image_key=image_key,
        number_keys=number_keys,
        num_optional=num_optional,
        with_rest=with_rest,
    )
    return found


def jpeg_sizes(encoded: tf.Tensor) -> tf.Tensor:
    """Reads the sides of JPEGs from their headers.

    Args:
        encoded: variant [] or [n], images of `read`.

    Returns:
        int32 [2] or [n, 2], height and width in pixels; 0 where the image is no JPEG or
        has no sound header.
    """
    return op.module().tfpipe_jpeg_sizes(encoded=encoded)


def image_bytes(encoded: tf.Tensor, *, most: int = sys.maxsize) -> tf.Tensor:
    """Copies the first bytes of images, for TensorFlow's own ops.

    Args:
        encoded: variant [] or [n], images of `read`; or string, which is shortened.
        most: Number of bytes to copy, unless the image has fewer.

    Returns:
        string of that shape.
    """
    if encoded.dtype == tf.string:
        return encoded if most == sys.maxsize else tf.strings.substr(encoded, 0, most)
    return op.module().tfpipe_image_bytes(encoded=encoded, most=most)


def hold(place: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Reads records into memory, and checks their CRCs, whatever is in them.

    Args:
        place: `path`, `byte_offset` and `num_bytes`, as of `read`.

    Returns:
        variant of that shape, for `read` and `held_bytes`: the record with header and
        footer. The records of a call share a buffer, which is freed with the last of
        these records. A record whose file cannot be opened or read is held as this
        error, which `read` and `held_bytes` raise.
    """
    return op.module().tfpipe_hold_records(**{name: place[name] for name in _PLACE})


def held_bytes(held: tf.Tensor) -> tf.Tensor:
    """Returns the bytes of records that are held, with header and footer, unchecked.

    Args:
        held: variant [] or [n], the result of `hold`.

    Returns:
        string of that shape.

    Raises:
        tf.errors.DataLossError: When it runs, if the file ended before the record.
        tf.errors.UnavailableError: When it runs, if the file could not be read.
    """
    return op.module().tfpipe_held_bytes(held=held)


def read_ahead(path: tf.Tensor, begin: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """Asks the kernel to read parts of files into memory, and does not wait.

    Args:
        path: string [n], the file of each part.
        begin, end: int64 [n], the bytes of each part.

    Returns:
        int64 [], the number of bytes.
    """
    return op.module().tfpipe_read_ahead(path=path, begin=begin, end=end)
