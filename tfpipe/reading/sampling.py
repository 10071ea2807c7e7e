"""Sampling: the records that an epoch draws, with their copies.

In: weights of classes or records, the labels of a split and its classes; and the raw
random words of an epoch. Out: how often an epoch draws each record on average, and the
records of an epoch with their copies. The draws are whole-number arithmetic in numpy:
equal on every machine. Over all random words, a record comes exactly as often as its
weight says.
"""

import collections
import dataclasses
import decimal
import fractions
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xxhash

from tfpipe import errors
from tfpipe.shards.records import Ints

Weight = int | float | fractions.Fraction | decimal.Decimal
Words = npt.NDArray[np.uint64]

# Fractions of a copy are counted in units of 2**-64, the values of a random word.
_WORD_BITS = 64
_WORD_MASK = (1 << _WORD_BITS) - 1


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
    """The records drawn in an epoch, in passes over the split.

    The first pass holds every drawn record once, the second pass holds all second
    copies, and so on.

    Attributes:
        records: int64 [num_draws], the record of each draw; rising in each pass.
        pass_ends: int64 [num_passes], the number of draws up to the end of each pass.
    """

    records: Ints
    pass_ends: Ints

    def copies(self, numbers: Ints) -> Ints:
        """Returns the number of the copy of some draws, from 0 on.

        Args:
            numbers: int64 [n], numbers of draws.

        Returns:
            int64 [n].
        """
        return np.searchsorted(self.pass_ends, numbers, side="right")


@dataclasses.dataclass(frozen=True, eq=False)
class ExpectedCopies:
    """How often an epoch draws each record, on average over all random numbers.

    Attributes:
        whole: int64 [num_records], whole part of the average.
        part: uint64 [num_records], the rest of the average in units of 2**-64. The sum
            of all averages is a whole number.
        group: unsigned [num_records], group of each record, from 0 on. The draws of a
            group are the sum of its averages, rounded down or up.
    """

    whole: Ints
    part: Words
    group: npt.NDArray[np.unsignedinteger[Any]]

    @functools.cached_property
    def num_draws(self) -> int:
        """Number of records drawn in an epoch."""
        halves = (self.part & np.uint64(0xFFFFFFFF)), (self.part >> np.uint64(32))
        low, high = (int(half.sum()) for half in halves)
        return int(self.whole.sum()) + ((high << 32) + low >> _WORD_BITS)

    @functools.cached_property
    def digest(self) -> str:
        """A digest of the averages, 32 hexadecimal digits."""
        digest = xxhash.xxh3_128()
        for values, kind in (
            (self.whole, "<i8"),
            (self.part, "<u8"),
            (self.group, "<u4"),
        ):
            digest.update(values.astype(kind).tobytes())
        return digest.hexdigest()

    @functools.cached_property
    def num_words(self) -> int:
        """Number of random words that decide the draws of an epoch."""
        return 1 + len(self.part) + int(self.group.max()) + 1

    def times(self, raw: Words) -> Ints:
        """Returns how often each record is drawn: its average, rounded down or up.

        The records lie on a line. The length of a record is the fraction of its
        average. Groups follow each other in random order, as do the records of a group.
        Marks stand on the line at distances of 1 from a random start on. A record with
        a mark is rounded up.

        Args:
            raw: uint64 [num_words], random words: the start, the sort key of each
                record, and the sort key of each group.

        Returns:
            int64 [num_records], with the sum `num_draws`.
        """
        num_records = len(self.part)
        line = np.argsort(raw[1 : num_records + 1], kind="stable")
        turn = np.empty(len(raw) - num_records - 1, self.group.dtype)
        turn[np.argsort(raw[num_records + 1 :], kind="stable")] = np.arange(len(turn))
        line = line[np.argsort(turn[self.group[line]], kind="stable")]
        part = self.part[line]
        # If a sum passes 2**64 and wraps around, the record holds a mark.
        ends = np.cumsum(part)
        ends += raw[0]
        times = self.whole.copy()
        times[line[ends < part]] += 1
        return times

    def draws(self, random: np.random.Philox) -> Draws:
        """Returns the records that an epoch draws.

        Args:
            random: The random numbers of the epoch, from their beginning.
        """
        times = self.times(random.random_raw(self.num_words))
        records = np.repeat(np.arange(len(times)), times)
        copies = np.arange(len(records)) - np.repeat(np.cumsum(times) - times, times)
        by_pass = np.argsort(copies.astype(_narrow(int(times.max()))), kind="stable")
        return Draws(records[by_pass], np.cumsum(np.bincount(copies)))


def expected(
    weights: Sequence[Weight],
    kind: Ints,
    counts: Sequence[int],
    group: Ints,
    num_draws: int,
) -> ExpectedCopies:
    """Returns how often an epoch draws each record, on average.

    An average differs from num_draws * weight / sum(weights) by less than 2**-64.

    Args:
        weights: Weights of the kinds of records.
        kind: int64 [num_records], kind of each record.
        counts: Number of records of each kind.
        group: int64 [num_records], see `ExpectedCopies`.
        num_draws: Sum of the averages.

    Raises:
        ValueError: If every record has the weight 0.
    """
    common = math.lcm(*{weight.as_integer_ratio()[1] for weight in weights})
    exact = [int(fractions.Fraction(weight) * common) for weight in weights]
    total = sum(map(int.__mul__, exact, counts))
    if not total:
        raise ValueError(
            "Sampling must leave a record with a weight > 0, but every record of the "
            "split has the weight 0."
        )
    average = [(weight * num_draws << _WORD_BITS) // total for weight in exact]
    whole = np.array([units >> _WORD_BITS for units in average], np.int64)[kind]
    part = np.array([units & _WORD_MASK for units in average], np.uint64)[kind]
    # All averages are rounded down: some records get the units that are left.
    missing = (num_draws << _WORD_BITS) - sum(map(int.__mul__, average, counts))
    positive = np.array([weight > 0 for weight in exact])[kind]
    getting = np.flatnonzero(positive)[:missing]
    part[getting] += np.uint64(1)
    whole[getting] += part[getting] == 0
    return ExpectedCopies(whole, part, group.astype(_narrow(int(group.max()))))


def _narrow(most: int) -> np.dtype[Any]:
    """Returns the smallest unsigned type: numpy sorts 16 bits in linear time."""
    return np.min_scalar_type(most)


# The column of a subset with weights, for `Sampling.record_weights`.
WEIGHT_COLUMN = "weight"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """Weights with which an epoch draws records, for data with unbalanced classes.

    Sampling(balance=1.0)                          # every class equally often
    Sampling(balance=0.5)                          # square-root sampling
    Sampling(class_weights={"cat": 3, "dog": 1})   # a record of a cat 3 times as often
    Sampling(record_weights=1 + losses)            # a weight for every record

    With N draws and weights w, record i comes N * w[i] / sum(w) times in an epoch on
    average over seeds and epochs. In a single epoch the record comes so often, rounded
    down or up; with weights of classes the same is true of every class. The method is
    systematic sampling (W. Madow, "On the theory of systematic sampling, II", 1949).
    The random ops augment every copy of a record differently.

    Example:
        >>> balanced = tfpipe.Sampling(balance=1.0, num_draws=40)
        >>> source = tfpipe.TFRecordSource("DIR", "train", sampling=balanced)
        >>> source.steps_per_epoch
        40

    Args:
        balance: Share of the balancing of classes, 0 to 1. A record in a class of n
            records gets the weight n ** -balance. 1 draws all classes equally often, 0
            draws all records equally often, and 0.5 draws a class in proportion to the
            square root of its size. Kang et al., "Decoupling representation and
            classifier for long-tailed recognition", 2020, compare the three values. A
            class without records is never drawn.
        class_weights: Weight of every record of a class, >= 0, by the label of the
            class (0 for the first class of the index) or its name in the index. Every
            class with records must have a weight. A record of weight 0 is never drawn.
        record_weights: [num_records], weight of every record of the split, >= 0, by
            `record_id`, in the order of the catalog; also with a subset. Or "weight",
            the column of the subset of the source.
        num_draws: Records drawn in an epoch, >= 1; None is the size of the split. A
            multiple of num_ranks * batch_size leaves out no drawn record.

    Exactly one of balance, class_weights and record_weights must be given.

    Raises:
        ValueError: If a weight is negative or not finite, all weights are 0, or another
            argument is wrong.
    """

    balance: float | None = None
    class_weights: Mapping[int | str, float] | None = dataclasses.field(
        default=None, hash=False
    )
    record_weights: npt.ArrayLike | Literal["weight"] | None = dataclasses.field(
        default=None, repr=False, compare=False
    )
    num_draws: int | None = None
    # Stands for the record weights when samplings are compared or printed.
    record_digest: str = dataclasses.field(default="", init=False)

    def __post_init__(self) -> None:
        names = ("balance", "class_weights", "record_weights")
        present = [name for name in names if getattr(self, name) is not None]
        if len(present) != 1:
            raise ValueError(
                "Exactly one of Sampling.balance, class_weights and record_weights "
                f"must be given, got {' and '.join(present) or 'none'}."
            )
        errors.settle_numbers(self, ["balance"], least=0, most=1, or_none=True)
        errors.settle_ints(self, ["num_draws"], least=1, also=[None])
        if self.class_weights is not None:
            errors.settle(self, "class_weights", _class_weights(self.class_weights))
        if isinstance(self.record_weights, str):
            errors.require_choice(
                self, "record_weights", self.record_weights, [WEIGHT_COLUMN]
            )
            errors.settle(self, "record_digest", f"column {WEIGHT_COLUMN}")
        elif self.record_weights is not None:
            weights = _record_weights(self.record_weights)
            errors.settle(self, "record_weights", weights)
            digest = xxhash.xxh3_128_hexdigest(weights.tobytes())
            errors.settle(self, "record_digest", digest)

    def expected_copies(
        self,
        num_records: int,
        labels: Callable[[], Ints],
        classes: Sequence[tuple[str, str]],
        *,
        chosen: Ints | None = None,
        weight: npt.NDArray[np.float64] | None = None,
    ) -> ExpectedCopies:
        """Returns how often each record of a split is drawn in an epoch, on average.

        Args:
            num_records: Records of the split.
            labels: Returns int64 [num_records], the label of each record, 0 for the
                first class; called only for weights of classes.
            classes: (synset, text) of each class, in label order.
            chosen: int64 [num_chosen], numbers of the records of a subset; only these
                are drawn. None is all records.
            weight: float64 [num_chosen], the subset's own weights; None without them.

        Returns:
            The averages of the records of the split, or of `chosen`, in order.

        Raises:
            ValueError: If the weights do not fit the split, or no record has a weight.
        """
        values: npt.NDArray[Any]
        if self.record_weights is not None:
            values = self._weights(num_records, chosen, weight)
        else:
            values = labels() if chosen is None else labels()[chosen]
        distinct, kind, counts = np.unique(
            values, return_inverse=True, return_counts=True
        )
        kind = group = kind.reshape(-1)
        weights: Sequence[Weight]
        if self.record_weights is not None:
            weights, group = distinct.tolist(), np.zeros_like(kind)
        elif self.class_weights is not None:
            named = by_label(self.class_weights, classes)
            weights = _of_classes(named, distinct.tolist(), classes)
        else:
            weights = [_balanced(n, self.balance) for n in counts.tolist()]
        num_draws = self.num_draws or len(kind)
        return expected(weights, kind, counts.tolist(), group, num_draws)

    def _weights(
        self,
        num_records: int,
        chosen: Ints | None,
        weight: npt.NDArray[np.float64] | None,
    ) -> npt.NDArray[np.float64]:
        """Returns the weight of each record that may be drawn."""
        if isinstance(self.record_weights, str):
            if weight is None:
                raise ValueError(
                    f"Sampling.record_weights={WEIGHT_COLUMN!r} needs a source with a "
                    "subset that has a column of this name, as python -m "
                    "converters.query --weight writes it."
                )
            return weight
        weights = np.asarray(self.record_weights)
        if len(weights) != num_records:
            raise ValueError(
                "Sampling.record_weights must have a weight for each of the "
                f"{num_records} records of the split, got {len(weights)}."
            )
        return weights if chosen is None else weights[chosen]


def _balanced(count: int, balance: float | None) -> Weight:
    """Returns count ** -balance, equal on every machine, as floats are not."""
    if balance == 1:
        return fractions.Fraction(1, count)
    with decimal.localcontext(decimal.Context(prec=30)):
        return decimal.Decimal(count) ** -decimal.Decimal(balance or 0)


def by_label(
    weights: Mapping[int | str, float],
    classes: Sequence[tuple[str, str]],
    *,
    owner: str = "Sampling.class_weights",
) -> dict[int, float]:
    """Returns the weights by label; 0 is the first class.

    Args:
        weights: Weights by label, by synset or by name.
        classes: Synset and name of each class.
        owner: Name of the argument, for errors.

    Raises:
        ValueError: If a key names no class, several classes, or a class named before.
    """
    named: dict[str, set[int]] = collections.defaultdict(set)
    for label, names in enumerate(classes):
        for name in names:
            named[name].add(label)
    result: dict[int, float] = {}
    for key, weight in weights.items():
        labels = named.get(key, set()) if isinstance(key, str) else {key}
        if len(labels) != 1 or (classes and not labels <= set(range(len(classes)))):
            count = len(labels) if isinstance(key, str) else 0
            remedy = errors.did_you_mean(str(key), named)
            if count:
                synsets = [repr(classes[label][0]) for label in sorted(labels)]
                remedy = f" Write {' or '.join(synsets)} in its place."
            raise ValueError(
                f"A key of {owner} must be the label of a class, 0 to "
                f"{len(classes) - 1}, or the name of one class, got {key!r}, which is "
                f"that of {count} classes.{remedy}"
            )
        (label,) = labels
        if label in result:
            raise ValueError(
                f"A class in {owner} must be named once, got two keys "
                f"for class {label}, one of them {key!r}."
            )
        result[label] = weight
    return result


def _of_classes(
    weights: Mapping[int, float],
    labels: Sequence[int],
    classes: Sequence[tuple[str, str]],
) -> list[float]:
    """Returns the weight of every label."""
    missing = [label for label in labels if label not in weights]
    if missing:
        shown = [
            f"{label} ({classes[label][1]})" if label < len(classes) else str(label)
            for label in missing[:5]
        ]
        raise ValueError(
            "Sampling.class_weights must be given for each class with records, got "
            f"none for {len(missing)} of them: {', '.join(shown)}"
            f"{', ...' if len(missing) > 5 else ''}. 0 never draws a class, and 1 "
            "is the usual weight."
        )
    return [weights[label] for label in labels]


def _class_weights(weights: Any) -> dict[int | str, float]:
    """Returns class weights with plain keys and numbers."""
    errors.require_kind("Sampling", "class_weights", weights, Mapping)
    checked: dict[int | str, float] = {}
    for key, weight in weights.items():
        if not isinstance(key, str):
            key = errors.require_int("Sampling", "class_weights keys", key)
        name = f"class_weights[{key!r}]"
        checked[key] = errors.require_number("Sampling", name, weight, least=0)
    if not any(checked.values()):
        raise ValueError(
            "The weights in Sampling.class_weights must be >= 0, and one of them > 0, "
            f"got {weights!r}."
        )
    return checked


def _record_weights(weights: Any) -> npt.NDArray[np.float64]:
    """Returns record weights as a new read-only array."""
    array = np.asarray(weights)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise ValueError(
            "Sampling.record_weights must be one row of numbers, got "
            f"{array.dtype} {list(array.shape)}."
        )
    checked = array.astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(checked) & (checked >= 0)))
    if len(wrong):
        raise ValueError(
            "Sampling.record_weights must be finite numbers >= 0, got "
            f"{checked[wrong[0]]} for record {wrong[0]}, the first of {len(wrong)}."
        )
    if not checked.any():
        raise ValueError(
            "Sampling.record_weights must be >= 0, and one of them > 0, got "
            f"{len(checked)} weights that are all 0."
        )
    checked.setflags(write=False)
    return checked
