"""A mixture: several data sets with weights, their elements in a single stream.

In: pipelines whose elements are records or examples with equal element_specs, and a
weight a pipeline. Out: a source of their elements. A fixed schedule says which set
gives the next element, so the shares are exact at every point, and a state of the
mixture gives the states of the sets.
"""

import dataclasses
import fractions
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfpipe import errors
from tfpipe.pipeline import Pipeline
from tfpipe.reading.state import State
from tfpipe.shards import index
from tfpipe.shards.records import Ints
from tfpipe.stages import faults
from tfpipe.stages.faults import FaultLog

MAX_PERIOD = 1 << 20


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Elements of several data sets in exact shares, every set in its own epochs.

    Element: an element of the pipelines, a record or an example.

    Among any first n elements, n * w / (sum of weights) come from a set of weight w,
    with a difference of less than 1. Every rank mixes its own shares of the sets, so
    all ranks make the same steps. A resumed run gets exactly the same elements if the
    stages of the pipelines give an element for every element, in order. So a
    `Shuffle` belongs after the mixture.

    Example:
        >>> splits = ("train", "validation")
        >>> sources = [tfpipe.TFRecordSource("DIR", split) for split in splits]
        >>> stages = [tfpipe.Interleave()]
        >>> parts = [tfpipe.Pipeline(source, stages) for source in sources]
        >>> tfpipe.Mixture(parts, [0.75, 0.25], batch_size=4).num_given(8)
        [6, 2]

    Args:
        pipelines: Pipelines of the sets, read endlessly. A pipeline has a source of
            batch_size 1 with the rank of the process, and its own tuning.
        weights: Weights of the sets, > 0; 0.7 and 0.3 mean the same as 7 and 3.
        batch_size: Number of elements in a batch of the rank.
        epoch_steps: Number of steps in an epoch of the mixture; None goes once through
            the first set.

    Raises:
        TypeError: If a source cannot tell its state, as `TFRecordSource` can.
        ValueError: If an argument is wrong, or the sources differ in their ranks.
    """

    pipelines: Sequence[Pipeline]
    weights: Sequence[float | fractions.Fraction]
    _: dataclasses.KW_ONLY
    batch_size: int = 1
    epoch_steps: int | None = None

    def __post_init__(self) -> None:
        _check_parts(self.pipelines, self.weights)
        errors.settle_ints(self, ["batch_size"], least=1)
        errors.settle_ints(self, ["epoch_steps"], least=1, also=[None])
        _ = self._schedule  # Checks the weights.

    @property
    def rank(self) -> int:
        """The number of the rank."""
        return int(self._sources[0].rank)

    @property
    def num_ranks(self) -> int:
        """The number of ranks."""
        return int(self._sources[0].num_ranks)

    @property
    def faults(self) -> FaultLog | None:
        """The log of the damaged records of all pipelines, or None."""
        return faults.combined([pipeline.faults for pipeline in self.pipelines])

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps that every rank makes in an epoch of the mixture."""
        if self.epoch_steps is not None:
            return self.epoch_steps
        shares = integer_weights(self.weights)
        num_first = int(self._sources[0].steps_per_epoch)
        num_elements = num_first * sum(shares) // shares[0]
        return max(1, num_elements // self.batch_size)

    @functools.cached_property
    def digest(self) -> str:
        """A digest of all that must be equal on every rank and in a resumed run."""
        parts = [source.digest for source in self._sources]
        shares = integer_weights(self.weights)
        return index.digest(repr((parts, shares, self.steps_per_epoch)))

    def num_given(self, num_elements: int) -> list[int]:
        """Returns the counts of the sets among the first `num_elements` elements."""
        rounds, rest = divmod(num_elements, len(self._schedule))
        shares = np.array(integer_weights(self.weights))
        begun = np.bincount(self._schedule[:rest], minlength=len(shares))
        counts: list[int] = (rounds * shares + begun).tolist()
        return counts

    def part_states(self, state: State) -> list[State]:
        """Returns the states of the sets at a state of the mixture.

        Raises:
            ValueError: If the state belongs to another mixture, number of ranks or
                batch size.
        """
        counts = self.num_given(self._num_steps_before(state) * self.batch_size)
        return [
            source.advance(State(), count)
            for source, count in zip(self._sources, counts, strict=True)
        ]

    def advance(self, state: State, num_steps: int = 1) -> State:
        """Returns the state `num_steps` later."""
        epoch, step = divmod(
            self._num_steps_before(state) + num_steps, self.steps_per_epoch
        )
        return State(
            epoch=epoch,
            step=step,
            num_ranks=self.num_ranks,
            batch_size=self.batch_size,
            digest=self.digest,
        )

    def num_steps(self, state: State, num_epochs: int | None) -> int | None:
        """Returns the steps from a state to the end of the epochs; None if endless."""
        if num_epochs is None:
            return None
        _check_state(self, state)
        return num_epochs * self.steps_per_epoch - state.step

    def num_records(self, state: State, num_epochs: int | None) -> int | None:
        """Returns the elements of the rank in those steps; None if endless."""
        num_steps = self.num_steps(state, num_epochs)
        return None if num_steps is None else num_steps * self.batch_size

    def __call__(self, state: State, num_epochs: int | None) -> tf.data.Dataset:
        parts = [
            pipeline.build(state=part, num_epochs=None)
            for pipeline, part in zip(
                self.pipelines, self.part_states(state), strict=True
            )
        ]
        specs = [part.element_spec for part in parts]
        for position, spec in enumerate(specs):
            if spec != specs[0]:
                raise ValueError(
                    "The elements of all pipelines of a Mixture must be of one form: "
                    f"pipeline 0 gives {specs[0]}, pipeline {position} gives {spec}. "
                    "End each with a Select of the same names."
                )
        begin = self._num_steps_before(state) * self.batch_size
        count = self.num_records(state, num_epochs)
        choice = _choice(self._schedule, begin, count)
        mixed = tf.data.Dataset.choose_from_datasets(parts, choice)
        # TensorFlow takes the mixture for endless, as its parts are, and would never
        # read a dataset concatenated to it.
        cardinality = tf.data.INFINITE_CARDINALITY if count is None else count
        return mixed.apply(tf.data.experimental.assert_cardinality(cardinality))

    @property
    def _sources(self) -> list[Any]:
        return [pipeline.source for pipeline in self.pipelines]

    @functools.cached_property
    def _schedule(self) -> Ints:
        return schedule(self.weights)

    def _num_steps_before(self, state: State) -> int:
        _check_state(self, state)
        return state.epoch * self.steps_per_epoch + state.step


def integer_weights(weights: Sequence[float | fractions.Fraction]) -> list[int]:
    """Returns the smallest whole numbers with the proportions of the weights.

    Raises:
        ValueError: If a weight is not > 0, or the numbers add up to more than
            MAX_PERIOD.
    """
    for weight in weights:
        errors.require_number("", "Weights", weight, above=0)
    # By its decimal digits: 0.7 is 7/10, not the nearest binary fraction.
    exact = [fractions.Fraction(str(weight)) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    shares = [share // math.gcd(*whole) for share in whole]
    if sum(shares) > MAX_PERIOD:
        raise ValueError(
            f"Weights {list(weights)} must repeat within {MAX_PERIOD} elements, got a "
            f"period of {sum(shares)}. Round them, or give whole numbers such as 1 "
            "and 2."
        )
    return shares


def schedule(weights: Sequence[float | fractions.Fraction]) -> Ints:
    """Returns the sets of the elements, for a period of the schedule.

    The algorithm is by R. Tijdeman, "The chairman assignment problem", Discrete
    Mathematics 32, 1980. With k sets no share is ever wrong by more than
    1 - 1 / (2 * k - 2) elements, and no algorithm has a smaller bound.

    Returns:
        int64 [period], numbers of sets.
    """
    shares = integer_weights(weights)
    period = sum(shares)
    twice = 2 * max(len(shares), 2) - 2
    counts = [0] * len(shares)
    chosen = np.empty(period, np.int64)
    for position in range(period):
        # Among the due sets, the set with the earliest deadline.
        _, best = min(
            ((counts[i] * twice + twice - 1) / share, i)
            for i, share in enumerate(shares)
            if (share * (position + 1) - counts[i] * period) * twice >= period
        )
        chosen[position] = best
        counts[best] += 1
    return chosen


def _choice(pattern: Ints, begin: int, count: int | None) -> tf.data.Dataset:
    """Returns the sets of the elements from `begin` on; None is endless."""
    begun = np.roll(pattern, -(begin % len(pattern)))
    choice = tf.data.Dataset.from_tensor_slices(begun).repeat()
    return choice if count is None else choice.take(count)


def _check_parts(
    pipelines: Sequence[Pipeline], weights: Sequence[float | fractions.Fraction]
) -> None:
    if not pipelines or len(pipelines) != len(weights):
        raise ValueError(
            "Mixture must have a weight for each of at least one pipeline, got "
            f"{len(pipelines)} pipelines and {len(weights)} weights."
        )
    for position, pipeline in enumerate(pipelines):
        errors.require_kind("Mixture", "pipelines", pipeline, Pipeline)
        source: Any = pipeline.source
        if not all(hasattr(source, name) for name in ("advance", "digest", "rank")):
            raise TypeError(
                f"The source of pipeline {position} must say where it is, as "
                f"TFRecordSource does with advance, digest and rank, got {source!r}."
            )
        if source.batch_size != 1:
            raise ValueError(
                "A Mixture counts single elements: the source of each pipeline must "
                f"have batch_size 1, pipeline {position} has {source.batch_size}. Give "
                "the batch size to the Mixture."
            )
    sources: list[Any] = [pipeline.source for pipeline in pipelines]
    if any(getattr(source, "affinity", None) is not None for source in sources):
        raise ValueError(
            "The sources of a Mixture must have no affinity: the state of a Mixture "
            "does not hold the hosts of the ranks."
        )
    ranks = [(source.rank, source.num_ranks) for source in sources]
    if len(set(ranks)) > 1:
        raise ValueError(
            "All sources of a Mixture must have the same rank and num_ranks, got "
            f"{', '.join(f'{rank} of {count}' for rank, count in ranks)}."
        )


def _check_state(mixture: Mixture, state: State) -> None:
    for name in ("num_ranks", "batch_size"):
        ours, theirs = getattr(mixture, name), getattr(state, name)
        if theirs not in (None, ours):
            raise ValueError(
                f"A Mixture must go on with the {name} that it was started with: "
                f"the state has {theirs}, the mixture {ours}."
            )
    if state.digest not in ("", mixture.digest):
        raise ValueError(
            "The state must be of the same data, seeds, weights and steps of an "
            f"epoch: its digest is {state.digest}, that of the mixture is "
            f"{mixture.digest}. Go on with what the run was started with."
        )
    if state.step > mixture.steps_per_epoch:
        raise ValueError(
            f"An epoch of the mixture has {mixture.steps_per_epoch} steps, "
            f"got a start at step {state.step} of it."
        )
