"""Names, numbers and weights of classes, by the label that a pipeline delivers.

In: the source and the stages of a pipeline. Out: facts of its classes, from the index
and the catalog of the data set; no record is read. A label on disk differs from the
label that is delivered, by `label_base` and `label_offset` of `ops.Parse`; the facts
here are about the label that is delivered.
"""

import collections
import warnings
from collections.abc import Mapping, Sequence

from tfpipe import errors
from tfpipe.consumers import records_of
from tfpipe.shards import index

# Classes that a warning names.
_NUM_NAMED = 5


def names(source: object, stages: Sequence[object]) -> list[str]:
    """Returns the name of each label; "" for a label below that of the first class.

    Raises:
        BadIndexError: If the data set has no index, or the index names no class.
        ValueError: If the pipeline has no `TFRecordSource` or no `Parse`, or the first
            class has a label below 0.
    """
    classes, first = _classes(source, stages, "class_names")
    if first < 0:
        raise ValueError(
            f"The label of the first class must be >= 0, got {first}: Parse.label_base "
            "is above the label_base of the index. Leave it None in a preset, or give "
            "Parse(label_base=source.index.label_base)."
        )
    return [""] * first + [text or synset for synset, text in classes]


def counts(source: object, stages: Sequence[object]) -> dict[int, int]:
    """Returns the number of records of each label in the split of the source.

    Every class of the index has its label here, also a class without records.

    Raises:
        BadIndexError: If the data set has no index or no catalog.
        ValueError: As for `names`; or if records have several labels.
    """
    classes, first = _classes(source, stages, "class_counts")
    records = records_of.require_records(source, "class_counts")
    query = (
        "SELECT label, count(*) FROM read_parquet(?) WHERE split = ? "
        "GROUP BY label ORDER BY label"
    )
    rows = index.query_catalog(records.data_dir, query, [records.split])
    change = first - records.index.label_base
    found = collections.Counter(dict.fromkeys(range(first, first + len(classes)), 0))
    found.update({label + change: number for label, number in rows})
    return dict(sorted(found.items()))


def weights(
    label_counts: Mapping[int, int], label_names: Sequence[str], power: float
) -> dict[int, float]:
    """Returns the weight of each label, such that the mean over the records is 1.

    A weight is proportional to count ** -power. With power 1 it is records / (classes
    with records * count), which scikit-learn calls "balanced".

    Raises:
        ValueError: If `power` is not from 0 to 1, or the split has no records.
    """
    power = errors.require_number("", "power", power, least=0, most=1)
    num_records = sum(label_counts.values())
    if not num_records:
        raise ValueError("The split must have records for class_weights, got none.")
    _warn_of_empty(label_counts, label_names)
    total = sum(count ** (1 - power) for count in label_counts.values() if count)
    return {
        label: count**-power * num_records / total if count else 0.0
        for label, count in label_counts.items()
    }


def _warn_of_empty(label_counts: Mapping[int, int], label_names: Sequence[str]) -> None:
    empty = [label for label, count in label_counts.items() if not count]
    if not empty:
        return
    named = ", ".join(repr(label_names[label]) for label in empty[:_NUM_NAMED])
    others = ", ..." if len(empty) > _NUM_NAMED else ""
    warnings.warn(
        f"{len(empty)} of {len(label_counts)} classes have no records in this split, "
        f"and the weight 0: {named}{others}.",
        stacklevel=4,  # the caller of Pipeline.class_weights
    )


def _classes(
    source: object, stages: Sequence[object], what: str
) -> tuple[Sequence[tuple[str, str]], int]:
    """Returns (synset, text) of each class, and the label of the first as delivered."""
    known = records_of.require_records(source, what).index
    parse = records_of.parse_of(stages)
    if not known.classes:
        raise errors.BadIndexError(
            f"The index must name the classes for {what}, but the shards in "
            f"{known.name} have no index that does. Write one with python -m "
            f"converters.verify {known.name} --level=crc --write_index."
        )
    base = known.label_base if parse.label_base is None else parse.label_base
    return known.classes, known.label_base - base + parse.label_offset
