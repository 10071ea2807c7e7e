"""Parts of a split: records for training, and the others for validation.

In: a share of the records, and the label of each record if there are labels. Out: which
records are for validation. The choice depends on nothing else: each rank, epoch and
seed has the same parts, and the two parts hold each record once.
"""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tfpipe import errors
from tfpipe.shards.records import Ints

Part = tuple[Literal["train", "validation"], float]

# A key of its own: no seed of a run draws these random words.
_KEY = 0x7061727473


def require(owner: object, name: str, part: Any) -> Part:
    """Returns a part as a tuple of plain values.

    Raises:
        ValueError: If a value is no part, such as ("validation", 0.1).
    """
    if not isinstance(part, tuple | list) or len(part) != 2:
        raise ValueError(
            f"{errors.named(owner, name)} must be a part and the share of the records "
            f'for validation, such as ("train", 0.1) or ("validation", 0.1), got '
            f"{part!r}."
        )
    errors.require_choice(owner, f"{name}[0]", part[0], ("train", "validation"))
    share = errors.require_number(owner, f"{name}[1]", part[1], above=0, below=1)
    return part[0], share


def are_for_validation(
    num_records: int, share: float, labels: Ints | None
) -> npt.NDArray[np.bool_]:
    """Returns which records of a split are for validation.

    Each class gives its share, rounded up or down, and so does the whole split.

    Args:
        num_records: Number of records in the split.
        share: Share of the records for validation, between 0 and 1.
        labels: int64 [num_records], the label of each record; None without labels.

    Returns:
        bool [num_records].
    """
    # NumPy guarantees the stream of Philox, as in `order`.
    words = np.random.Philox(key=_KEY).random_raw(num_records)
    turn = np.lexsort((words, np.zeros(num_records) if labels is None else labels))
    # Every 1 / share-th record of the classes, one class after the other.
    counts = np.floor(np.arange(num_records + 1) * share + 0.5)
    chosen = np.zeros(num_records, np.bool_)
    chosen[turn] = np.diff(counts) > 0
    return chosen
