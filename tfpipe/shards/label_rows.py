"""Rows of 0 and 1 in place of labels: the rule of converters and of `Parse`.

In: the numbers of some records. Out: whether the numbers are one-hot or multi-hot rows.
Imports no TensorFlow.
"""

from collections.abc import Iterable, Sequence


def is_one_hot(rows: Iterable[Sequence[int]], num_classes: int | None) -> bool:
    """Whether rows of numbers are one-hot or multi-hot rows, not lists of labels.

    Args:
        rows: The numbers of the records.
        num_classes: Number of classes, if it is known.

    Returns:
        Whether all numbers are 0 or 1, and all rows are as long as there are classes.
        Without a known number of classes, any shared length above 2 is enough.

    >>> is_one_hot([[0, 1, 0], [1, 1, 0]], None), is_one_hot([[0, 1], [1]], None)
    (True, False)
    """
    lengths: set[int] = set()
    values: set[int] = set()
    for row in rows:
        lengths.add(len(row))
        values.update(row)
        if len(lengths) > 1 or not values <= {0, 1}:
            return False
    if not lengths:
        return False
    (length,) = lengths
    return length == num_classes if num_classes is not None else length > 2
