"""Draws: which records an epoch holds, and how often each, from random numbers.

In: weights of records, and the raw random words of an epoch. Out: the records that are
drawn, with their copies. All is whole-number arithmetic in numpy, so the draws are
equal on every machine, and each record comes exactly as often as its weight says, on
average over all random words.
"""

import dataclasses
import decimal
import fractions
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tfpipe.shards.records import Ints

Weight = int | float | fractions.Fraction | decimal.Decimal
Words = npt.NDArray[np.uint64]

# Fractions of a copy are counted in units of 2**-64, the values of one random word.
_WORD_BITS = 64
_WORD_MASK = (1 << _WORD_BITS) - 1


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
    """The records drawn in an epoch, in passes over the split.

    The first pass holds each drawn record once, the second pass the second copy of each
    record that has one, and so on.

    Attributes:
        records: int64 [num_draws], the record of each draw; rising in each pass.
        pass_ends: int64 [num_passes], the number of draws up to the end of each pass.
    """

    records: Ints
    pass_ends: Ints

    @property
    def pass_sizes(self) -> Ints:
        """int64 [num_passes], number of draws in each pass."""
        return np.diff(self.pass_ends, prepend=0)

    def copies(self, numbers: Ints) -> Ints:
        """Returns which copy of its record each of some draws is, from 0 on.

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
        group: unsigned [num_records], group of each record, from 0 on. A group is drawn
            as often as its averages add up to, rounded down or up.
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

        The records lie on a line, each as long as the fraction of its average. Groups
        follow each other in random order, as do the records of a group. Marks stand on
        the line at distances of 1 from a random start on. A record with a mark is
        rounded up.

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
        # A sum that passes 2**64 wraps around: the record holds a mark.
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
    exact = [_scaled(weight, common) for weight in weights]
    total = sum(map(int.__mul__, exact, counts))
    if not total:
        raise ValueError(
            "Sampling must leave a record with a weight > 0, but every record of the "
            "split has the weight 0."
        )
    average = [(number * num_draws << _WORD_BITS) // total for number in exact]
    whole = np.array([number >> _WORD_BITS for number in average], np.int64)[kind]
    part = np.array([number & _WORD_MASK for number in average], np.uint64)[kind]
    # All averages are rounded down: some records get the units that this leaves.
    missing = (num_draws << _WORD_BITS) - sum(map(int.__mul__, average, counts))
    positive = np.array([number > 0 for number in exact])[kind]
    getting = np.flatnonzero(positive)[:missing]
    part[getting] += np.uint64(1)
    whole[getting] += part[getting] == 0
    return ExpectedCopies(whole, part, group.astype(_narrow(int(group.max()))))


def _scaled(weight: Weight, common: int) -> int:
    numerator, denominator = weight.as_integer_ratio()
    return numerator * (common // denominator)


def _narrow(most: int) -> np.dtype[Any]:
    """Returns the smallest unsigned type: numpy sorts 16 bits in linear time."""
    return np.min_scalar_type(most)
