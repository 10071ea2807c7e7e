"""Labels of records, checked and moved to where the output counts from.

In: the labels on disk. Out: labels, or rows of 0 and 1, within the classes. Another
label is a wrong setting of `Parse`, and no damage of the record: the error says so, and
`stages.stand_in` passes the error on even where damaged records are skipped.
"""

import re
from typing import Any

import tensorflow as tf

_WRONG = "Parse: labels must be"


def wrong_setting(message: str) -> str:
    """Returns the text of the errors below in a message of TensorFlow, or "".

    >>> wrong_setting("assertion failed: [Parse: labels must be 0 to 2, got] [-1] [.]")
    'Parse: labels must be 0 to 2, got -1.'
    """
    parts = re.findall(r"\[([^\[\]]*)\]", message[message.find(f"[{_WRONG}") :])
    return " ".join(parts).replace(" .", ".") if f"[{_WRONG}" in message else ""


def moved(
    labels: tf.Tensor, record_id: tf.Tensor, *, base: int, offset: int, end: int | None
) -> tf.Tensor:
    """Returns labels counted from the offset.

    Args:
        labels: int64 [] or [n], as on disk.
        record_id: int64 of that shape: the record of each label.
        base: Label on disk of the first class.
        offset: Label of the first class in the output.
        end: The largest label of the output, plus 1; None if unknown.

    Returns:
        int64 of that shape.

    Raises:
        tf.errors.InvalidArgumentError: If a label is below 0, unless the offset is, or
            not below the end; names a record.
    """
    values, least = labels - base + offset, min(0, offset)
    is_wrong = values < least if end is None else (values < least) | (values >= end)
    wanted = f"{least} or more" if end is None else f"{least} to {end - 1}"
    says = (
        f". label_base={base} must be the label of the first class on disk, and "
        f"label_offset={offset} is the label of that class in the output"
    )
    return _checked(values, labels, record_id, is_wrong, wanted, f"{says}.")


def rows(
    labels: tf.SparseTensor,
    record_id: tf.Tensor,
    *,
    base: int,
    offset: int,
    num_classes: int,
) -> tf.Tensor:
    """Returns the labels of each record as a row of zeros and ones.

    Args:
        labels: int64 [k], or [n, k] for a batch, the labels of a record, as on disk.
        record_id: int64 [] or [n].
        base, offset: As of `moved`.
        num_classes: Length of a row.

    Returns:
        float32 [num_classes], or [n, num_classes] for a batch; 1 for each label.

    Raises:
        tf.errors.InvalidArgumentError: As of `moved`.
    """
    places = labels.indices[:, :-1]
    # Without a batch the places are empty, and their sum is 0.
    records = tf.gather(tf.reshape(record_id, [-1]), tf.reduce_sum(places, 1))
    values = moved(labels.values, records, base=base, offset=offset, end=num_classes)
    places = tf.concat([places, values[:, tf.newaxis]], 1)
    shape = tf.concat([labels.dense_shape[:-1], [num_classes]], 0)
    counts = tf.scatter_nd(places, tf.ones_like(values, tf.float32), shape)
    leading = labels.shape[:-1]
    return tf.ensure_shape(
        tf.minimum(counts, 1.0), leading.concatenate(tf.TensorShape([num_classes]))
    )


def stored_rows(numbers: tf.Tensor, record_id: tf.Tensor) -> tf.Tensor:
    """Returns rows of 0 and 1 as numbers for a loss.

    Args:
        numbers: int64 [num_classes] or [n, num_classes].
        record_id: int64 [] or [n].

    Returns:
        float32 of that shape.

    Raises:
        tf.errors.InvalidArgumentError: If another number is in a row; names a record.
    """
    is_wrong = tf.reduce_any((numbers != 0) & (numbers != 1), -1)
    highest = tf.reduce_max(tf.abs(numbers), -1)
    says = ': multi_label="rows" is for rows with a 0 or 1 for each class.'
    values = tf.cast(numbers, tf.float32)
    return _checked(values, highest, record_id, is_wrong, "0 or 1 in a row", says)


def _checked(
    values: tf.Tensor,
    labels: tf.Tensor,
    record_id: tf.Tensor,
    is_wrong: tf.Tensor,
    wanted: str,
    says: str,
) -> tf.Tensor:
    """Returns the values, unless a label is wrong."""

    def first(tensor: Any) -> tf.Tensor:
        return tf.gather(tf.reshape(tensor, [-1]), wrong)

    wrong = tf.where(tf.reshape(is_wrong, [-1]))[:1, 0]
    asserted = tf.raw_ops.Assert(
        condition=tf.equal(tf.size(wrong), 0),
        data=[
            *(f"{_WRONG} {wanted}, got the label", first(labels), "on disk of record"),
            *(first(record_id), says),
        ],
    )
    with tf.control_dependencies([asserted]):
        return tf.identity(values)
