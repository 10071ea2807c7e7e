"""Names, numbers and weights of classes, by the label that a pipeline delivers.

In: the source and the stages of a pipeline. Out: facts of its classes, from the index
and the catalog of the data set; no record is read. A label on disk differs from the
label that is delivered, by `label_base` and `label_offset` of `ops.Parse`; the facts
here are about the label that is delivered.
"""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from tfpipe import errors
from tfpipe.consumers import records_of
from tfpipe.reading.source import TFRecordSource
from tfpipe.shards import index
from tfpipe.shards.sql import PARQUET

# Classes that a warning names.
_NUM_NAMED = 5


def names(source: object, stages: Sequence[object]) -> list[str]:
    """Returns the name of each label from 0 on; "" for a label that no class has.

    Raises:
        BadIndexError: If the data set has no index, or the index names no class.
        ValueError: If the pipeline has no `TFRecordSource` or no `Parse`, or the first
            class has a label below 0.
    """
    known = records_of.require_records(source, "the names of classes").index
    parse = records_of.find_parse(stages).parse
    if not known.classes:
        raise errors.BadIndexError(
            f"The index must name the classes, but the shards in {known.name} have no "
            "index that does. Write one with python -m converters.verify "
            f"{known.name} --level=crc --write_index."
        )
    first = parse.first_label(known)
    if first < 0:
        raise ValueError(
            f"The label of the first class must be >= 0, got {first}: Parse.label_base "
            "is above the label_base of the index. Leave it None in a preset, or give "
            "Parse(label_base=source.index.label_base)."
        )
    return [""] * first + [text or synset for synset, text in known.classes]


def counts(source: object, stages: Sequence[object]) -> dict[int, int]:
    """Returns the number of records of each label in the split, or in a subset of it.

    Every label that has a name is here, also one without records.

    Raises:
        BadIndexError: As for `names`, or if the data set has no catalog.
        ValueError: As for `names`, or if records have several labels.
    """
    num_labels, parse = len(names(source, stages)), records_of.find_parse(stages).parse
    if parse.multi_label:
        raise ValueError(
            "The catalog must hold the label of each record to count them, but records "
            f"of {parse!r} have several. Sum the rows of labels of an epoch."
        )
    records = records_of.require_records(source, "class_counts")
    change = parse.first_label(records.index) - records.index.label_base
    found = dict.fromkeys(range(num_labels), 0)
    return found | {label + change: number for label, number in _counted(records)}


def _counted(records: TFRecordSource) -> list[tuple[int, int]]:
    """Returns each label on disk that records of the source have, with their number."""
    if records.record_numbers is not None:
        labels = records.split_index.labels[records.record_numbers]
        values, number = np.unique(labels, return_counts=True)
        on_disk = values + records.index.label_base
        return [*zip(on_disk.tolist(), number.tolist(), strict=True)]
    query = (
        f"SELECT label, count(*) FROM {PARQUET} WHERE split = ? "
        "GROUP BY label ORDER BY label"
    )
    return index.query_catalog(records.index_folder, query, [records.split])


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
    empty = [
        repr(name)
        for label, name in enumerate(label_names)
        if name and not label_counts[label]
    ]
    if not empty:
        return
    others = ", ..." if len(empty) > _NUM_NAMED else ""
    warnings.warn(
        "Classes without records in this split get the weight 0, "
        f"{len(empty)} of {sum(map(bool, label_names))} classes: "
        f"{', '.join(empty[:_NUM_NAMED])}{others}.",
        stacklevel=4,  # the caller of Pipeline.class_weights
    )
