"""Reads records at known places with the native op, without copies by TensorFlow.

In: the places of records in local files. Out: their images, as handles that only the
native crop op reads, and a few numbers of each record; or the records themselves, held
in memory until they are parsed; or a request to the kernel to read parts of files into
memory. `src/read_ops.h` has the ops.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfpipe.native import op

Example = dict[str, tf.Tensor]

# The feature of the encoded image beside a `record` without it.
IMAGE = "image_in_place"

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
    encoded, found, _ = op.module().tfpipe_read_records(
        **{name: place[name] for name in _PLACE},
        image_key=image_key,
        number_keys=number_keys,
    )
    return _named(encoded, found, image_key, number_keys)


def hold(place: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Reads records into memory, and checks their CRCs, whatever is in them.

    Args:
        place: As of `read`.

    Returns:
        variant of that shape, for `parse` and `held_bytes`: the record with header and
        footer. Records of a call share a buffer, which is there as long as one of them.
    """
    return op.module().tfpipe_hold_records(**{name: place[name] for name in _PLACE})


def parse(
    held: Mapping[str, tf.Tensor], image_key: str, number_keys: Sequence[str]
) -> dict[str, tf.Tensor]:
    """Checks and parses records that are held, as `read` does with those of a file.

    Args:
        held: `held`, the result of `hold`, variant [] or [n]; and for errors the `path`
            and the `byte_offset` of each record.
        image_key, number_keys: As of `read`.

    Returns:
        The same as `read`.

    Raises:
        tf.errors.DataLossError: When it runs, as `read` does, also if a record could
            not be read when it was to be held.
    """
    encoded, found, _ = op.module().tfpipe_parse_held(
        **{name: held[name] for name in ("held", "path", "byte_offset")},
        image_key=image_key,
        number_keys=number_keys,
    )
    return _named(encoded, found, image_key, number_keys)


def with_record(example: Example, image_key: str) -> Example:
    """Returns an example, or a batch, with its record, which TensorFlow can parse.

    Args:
        example: What `read` or `parse` takes, or an example with `record`.
        image_key: Key of the encoded image.

    Returns:
        The example with `record`: string, a tf.train.Example. If it had none, the
        record lacks the image, and the example has `IMAGE`: variant, see `read`.

    Raises:
        tf.errors.DataLossError: When it runs, as `read` does.
    """
    if "record" in example:
        return example
    is_held = "held" in example
    made = op.module().tfpipe_parse_held if is_held else op.module().tfpipe_read_records
    names = ("held", "path", "byte_offset") if is_held else _PLACE
    image, _, rest = made(
        **{name: example[name] for name in names},
        image_key=image_key,
        number_keys=[],
        with_rest=True,
    )
    return example | {"record": rest, IMAGE: image}


def held_bytes(held: tf.Tensor) -> tf.Tensor:
    """Returns the bytes of records that are held, with header and footer, unchecked.

    Args:
        held: variant [] or [n], the result of `hold`.

    Returns:
        string of that shape.

    Raises:
        tf.errors.DataLossError: When it runs, if a record could not be read.
    """
    return op.module().tfpipe_held_bytes(held=held)


def _named(
    encoded: tf.Tensor, found: tf.Tensor, image_key: str, number_keys: Sequence[str]
) -> dict[str, tf.Tensor]:
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
