"""The first record of shards, compared with the features to be read from all records.

In: shards, and the keys, kinds and lengths of the features to parse. Out: an error with
the features of the record, before anything is trained; the labels of the first records,
and whether they are rows of 0 and 1, by one rule for converters and `Parse`. Imports no
TensorFlow.
"""

import contextlib
import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tfpipe import errors
from tfpipe.shards.example import Feature, decode_example
from tfpipe.shards.records import Record

Features = Mapping[str, Feature]

# A few records are looked at: the first records may be damaged.
MAX_LOOKED_AT = 16

_MAX_KEYS_SHOWN = 40
_MAX_BYTES_SHOWN = 32


def require(
    records: Iterable[tuple[str, Record]],
    *,
    owner: str,
    wanted: Mapping[str, tuple[str, str, int | None]],
) -> None:
    """Compares the first sound record with the features of a `Parse`.

    Nothing is checked if none of the first records is sound: reading reports damage.

    Args:
        records: The records in order, with the places of their shards.
        owner: The op, for errors.
        wanted: By key: the argument with the name of the key, the kind of the feature
            as in `example.Feature`, and the number of its values or None for any.

    Raises:
        ValueError: If the record has no such key, or the feature is of another kind or
            length; names the record and lists its features.
    """
    for where, features in itertools.islice(_sound(records), 1):
        for key, (argument, kind, count) in wanted.items():
            if fault := _fault(features, key, argument, kind, count):
                raise ValueError(
                    f"{owner}.{argument} {fault} The first record, {where}, has "
                    f"{_listed(features)}."
                )


def values(records: Iterable[tuple[str, Record]], key: str) -> Iterator[list[int]]:
    """Yields the whole numbers under a key of the first records, if they are sound."""
    for _, features in _sound(records):
        if key in features and features[key].kind == "int64":
            yield features[key].values


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


def _sound(records: Iterable[tuple[str, Record]]) -> Iterator[tuple[str, Features]]:
    """Yields the place and the features of each sound one of the first records."""
    for path, record in itertools.islice(records, MAX_LOOKED_AT):
        with contextlib.suppress(errors.BadRecordError):
            features = decode_example(record.data)
            if features and not record.fault:
                yield f"{path} at byte {record.byte_offset}", features


def _close(features: Features, key: str, kind: str, count: int | None) -> list[str]:
    """Returns similar keys of features that would fit; the closest first."""
    fitting = [
        name
        for name, feature in features.items()
        if feature.kind == kind and count in (None, len(feature.values))
    ]
    # An image has more bytes than its name and its format.
    if kind == "bytes":
        fitting.sort(key=lambda name: -len(features[name].values[0]))
    # `image` is a part of `image/encoded`, but the texts are not much alike.
    parts = [name for name in fitting if key in name.split("/")]
    like = difflib.get_close_matches(key, fitting, n=3, cutoff=0.5)
    return [*dict.fromkeys([*parts, *like])][:3]


def _fault(
    features: Features, key: str, argument: str, kind: str, count: int | None
) -> str:
    """Returns the fault of a feature, and the remedy; or an empty text."""
    if key not in features:
        close = _close(features, key, kind, count)
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        return f"names {key!r}, which is missing.{hint}"
    got = features[key]
    if got.kind not in (kind, "empty"):
        value = got.values[0]
        if isinstance(value, bytes):
            value = value[:_MAX_BYTES_SHOWN]
        text = f"names {key!r}, which must hold {kind}, got {got.kind} such as {value}."
        if argument == "label_key" and got.kind == "bytes":
            text += (
                " A label is a whole number. If the records hold the number under "
                "another key, name that key; otherwise python -m converters.tfrecord "
                "makes a data set of the texts, with a number for each."
            )
        return text
    if count is not None and len(got.values) != count:
        text = f"names {key!r}, which must have {count} values, got {len(got.values)}."
        if argument == "label_key":
            text += (
                " For any number of labels write Parse(multi_label=True, "
                "num_classes=...)."
            )
        return text
    return ""


def _listed(features: Features) -> str:
    """Returns the keys of a record, with kinds and lengths, for people."""
    keys = sorted(features)
    texts = [
        f"{key!r} ({features[key].kind}, {len(features[key].values)})"
        for key in keys[:_MAX_KEYS_SHOWN]
    ]
    more = [f"{len(keys) - len(texts)} more"] if len(keys) > len(texts) else []
    return ", ".join([*texts, *more])
