"""Heights and widths that records state, held against the headers of their images.

In: the numbers of a record, and the sides in the header of its image. Out: the sides
in the header, a line on stderr for the first record of a data set that states others,
and a line with the count of such records when the process ends.
"""

import atexit
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfpipe import errors
from tfpipe.ops import other_formats

Locate = Callable[[int], tuple[str, int]]

_lock = threading.Lock()
_locators: dict[str, Locate] = {}
# Numbers of the records that state other sides, by data set.
_different: dict[str, set[int]] = {}


def register(data_name: str, locate: Locate) -> None:
    """Remembers where the records of a data set are, for messages.

    Args:
        data_name: Name of the data set in messages.
        locate: Returns the path of the shard of a record, and the byte offset.
    """
    _locators[data_name] = locate


def different(data_name: str) -> frozenset[int]:
    """Returns the numbers of the records so far that state other sides."""
    with _lock:
        return frozenset(_different.get(data_name, ()))


def of_headers(
    stated: tf.Tensor, encoded: tf.Tensor, record_id: tf.Tensor, data_name: str | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the sides in the headers, and tells where records state others.

    Args:
        stated: int64 [..., 2], height and width as the record states them; 0 states
            nothing.
        encoded: string or variant [...], the images.
        record_id: int64 [...].
        data_name: Name of the data set, see `register`; None tells nothing, and calls
            no Python.

    Returns:
        height, width: int32 [...], pixels.

    Raises:
        tf.errors.InvalidArgumentError: If an image is neither JPEG nor PNG.
    """
    height, width = other_formats.sizes(encoded)
    if data_name is None:
        return height, width
    sides = tf.cast(tf.stack([height, width], -1), tf.int64)
    is_different = tf.reduce_any((stated != 0) & (stated != sides), -1)

    def tell() -> tf.Tensor:
        chosen = tf.reshape(is_different, [-1])
        values = [
            tf.boolean_mask(tf.reshape(value, shape), chosen)
            for value, shape in ((record_id, [-1]), (stated, [-1, 2]), (sides, [-1, 2]))
        ]
        count = functools.partial(_count, data_name)
        return tf.numpy_function(count, values, tf.int64)

    told = tf.cond(
        tf.reduce_any(is_different),
        other_formats.one_node(tell),
        lambda: tf.constant(0, tf.int64),
    )
    with tf.control_dependencies([told]):
        return tf.identity(height), tf.identity(width)


def _count(data_name: str, record_ids: Any, stated: Any, sides: Any) -> np.int64:
    """Counts records, and prints the first of a data set."""
    with _lock:
        is_first = data_name not in _different
        _different.setdefault(data_name, set()).update(record_ids.tolist())
    if is_first:
        atexit.register(_print_count, data_name)
        record, says, has = record_ids[0], stated[0], sides[0]
        name = f"Record {record}"
        if data_name in _locators:
            shard, byte_offset = _locators[data_name](int(record))
            name = f"{shard}: record {record} of the split at byte {byte_offset}"
        print(
            f"{name} states {says[0]} x {says[1]} pixels, and the header of its image "
            f"{has[0]} x {has[1]}. The headers of images count, also where other "
            "records differ; their count is printed at the end.",
            file=sys.stderr,
        )
    return np.int64(len(record_ids))


def _print_count(data_name: str) -> None:
    count = errors.count_of(len(different(data_name)), "record")
    print(
        f"{count}{data_name and f' of {data_name}'} stated another height or width "
        "than the header of the image.",
        file=sys.stderr,
    )
