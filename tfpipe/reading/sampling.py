"""Sampling: the weights with which an epoch draws records.

In: weights of classes or records, the labels of a split and its classes. Out: how often
an epoch draws each record, on average; `draws` draws them.
"""

import collections
import dataclasses
import decimal
import difflib
import fractions
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xxhash

from tfpipe import errors
from tfpipe.reading import draws
from tfpipe.shards.records import Ints

# Column of a subset that `Sampling.record_weights` may name.
WEIGHT_COLUMN = "weight"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """Weights with which an epoch draws records, for data whose classes are unbalanced.

    Sampling(balance=1.0)                          # every class equally often
    Sampling(balance=0.5)                          # square-root sampling
    Sampling(class_weights={"cat": 3, "dog": 1})   # a record of a cat 3 times as often
    Sampling(record_weights=1 + losses)            # one weight for each record

    With N draws and weights w, record i comes N * w[i] / sum(w) times in an epoch on
    average over seeds and epochs. In each epoch it comes that often rounded down or up,
    and with weights of classes so does each class: systematic sampling (W. Madow, "On
    the theory of systematic sampling, II", 1949). The random ops augment each copy of a
    record differently.

    Args:
        balance: Share of the balancing of classes, 0 to 1. A record in a class of n
            records gets the weight n ** -balance. 1 draws all classes equally often, 0
            draws all records equally often, and 0.5 draws a class in proportion to the
            square root of its size. Kang et al., "Decoupling representation and
            classifier for long-tailed recognition", 2020, compare these. A class
            without records is never drawn.
        class_weights: Weight of each record of a class, >= 0, by the label of the class
            (0 for the first class of the index) or its name in the index. Every class
            with records must have one. A record of weight 0 is never drawn.
        record_weights: [num_records], weight of each record of the split, >= 0, in the
            order of the catalog, which is that of `record_id`; with a subset too. Or
            "weight", the column of that name in the subset of the source.
        num_draws: Records drawn in an epoch, >= 1; None is the size of the split. A
            multiple of num_ranks * batch_size leaves out none of the records drawn.

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
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                "Exactly one of Sampling.balance, class_weights and record_weights "
                f"must be given, got {' and '.join(given) or 'none'}."
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
    ) -> draws.ExpectedCopies:
        """Returns how often each record of a split is drawn in an epoch, on average.

        Args:
            num_records: Records of the split.
            labels: Returns int64 [num_records], the label of each record, 0 for the
                first class; called only if the weights are those of classes.
            classes: (synset, text) of each class, in label order.
            chosen: int64 [num_chosen], numbers of the records of a subset; only these
                are drawn. None is all records.
            weight: float64 [num_chosen], the subset's own weights; None without them.

        Returns:
            The averages of the records of the split, or of `chosen`, in order.

        Raises:
            ValueError: If the weights do not fit the split, or no record has a weight.
        """
        weights: Sequence[draws.Weight]
        if self.record_weights is not None:
            given = self._weights(num_records, chosen, weight)
            found, kind, counts = _unique(given)
            weights, group = found.tolist(), np.zeros_like(kind)
        else:
            known = labels() if chosen is None else labels()[chosen]
            found, kind, counts = _unique(known)
            group = kind
            if self.class_weights is not None:
                by_label = _by_label(self.class_weights, classes)
                weights = _of_classes(by_label, found.tolist(), classes)
            else:
                weights = [_balanced(n, self.balance) for n in counts.tolist()]
        num_draws = self.num_draws or len(kind)
        return draws.expected(weights, kind, counts.tolist(), group, num_draws)

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
        given = np.asarray(self.record_weights)
        if len(given) != num_records:
            raise ValueError(
                "Sampling.record_weights must have a weight for each of the "
                f"{num_records} records of the split, got {len(given)}."
            )
        return given if chosen is None else given[chosen]


def _unique(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Ints, Ints]:
    """Returns the distinct values, the number of each value's, and their counts."""
    found, kind, counts = np.unique(values, return_inverse=True, return_counts=True)
    return found, kind.reshape(-1), counts


def _balanced(count: int, balance: float | None) -> draws.Weight:
    """Returns count ** -balance, equal on every machine, as floats are not."""
    if balance == 1:
        return fractions.Fraction(1, count)
    with decimal.localcontext(decimal.Context(prec=30)):
        return decimal.Decimal(count) ** -decimal.Decimal(balance or 0)


def _by_label(
    weights: Mapping[int | str, float], classes: Sequence[tuple[str, str]]
) -> dict[int, float]:
    """Returns the weights by label.

    Raises:
        ValueError: If a key names no class, several classes, or a class named before.
    """
    named: dict[str, set[int]] = collections.defaultdict(set)
    for label, names in enumerate(classes):
        for name in names:
            named[name].add(label)
    found: dict[int, float] = {}
    for key, weight in weights.items():
        labels = named.get(key, set()) if isinstance(key, str) else {key}
        if len(labels) != 1 or (classes and not labels <= set(range(len(classes)))):
            near = difflib.get_close_matches(str(key), named, n=3, cutoff=0.5)
            raise ValueError(
                "A key of Sampling.class_weights must be the label of a class, "
                f"0 to {len(classes) - 1}, or the name of one class, got {key!r}, "
                f"which is that of {len(labels) if isinstance(key, str) else 0} "
                f"classes.{' Close names: ' + ', '.join(near) + '.' if near else ''}"
            )
        (label,) = labels
        if label in found:
            raise ValueError(
                "A class in Sampling.class_weights must be named once, got two keys "
                f"for class {label}, one of them {key!r}."
            )
        found[label] = weight
    return found


def _of_classes(
    weights: Mapping[int, float],
    labels: Sequence[int],
    classes: Sequence[tuple[str, str]],
) -> list[float]:
    """Returns the weight of each of the labels."""
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
    """Returns record weights as a new array that cannot be changed."""
    given = np.asarray(weights)
    if given.ndim != 1 or given.dtype.kind not in "iuf":
        raise ValueError(
            "Sampling.record_weights must be one row of numbers, got "
            f"{given.dtype} {list(given.shape)}."
        )
    checked = given.astype(np.float64)
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
