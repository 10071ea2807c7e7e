"""A mixture: several data sets with weights, their elements in one stream.

In: pipelines whose elements are records or examples of one form, and a weight for each.
Out: a source of those elements. Which set gives the next one is arithmetic, so that the
shares are exact at every point and a state says all about where each set is.
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
from tfpipe.stages import fault_logs
from tfpipe.stages.faults import FaultLog

MAX_PERIOD = 1 << 20


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Elements of several data sets in exact shares, each set in its own epochs.

    Element: that of the pipelines, one record or example each.

    After any n elements a set of weight w has given n * w / sum of weights, to less
    than 1 more or fewer. Every rank mixes its own shares of the sets, so all make the
    same steps. Going on from a state is exact if the stages of each pipeline give one
    element for each that they take, in order: a `Shuffle` belongs after the mixture.

    Args:
        pipelines: Where the elements of each set come from, endlessly; each with a
            source of batch_size 1, the rank of this process, and its own tuning.
        weights: Of each set, > 0; 0.7 and 0.3 mean the same as 7 and 3.
        batch_size: Elements in a batch of this rank.
        epoch_steps: Steps of what the mixture calls an epoch; None is as many as go
            once through the first set.

    Raises:
        TypeError: If a source does not say where it is, as `TFRecordSource` does.
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
        _ = self._schedule  # the weights are checked

    @property
    def rank(self) -> int:
        """This process."""
        return int(self._sources[0].rank)

    @property
    def num_ranks(self) -> int:
        """All processes."""
        return int(self._sources[0].num_ranks)

    @property
    def faults(self) -> FaultLog | None:
        """The damaged records that the pipelines met, of all their logs, or None."""
        return fault_logs.combined([pipeline.faults for pipeline in self.pipelines])

    @property
    def steps_per_epoch(self) -> int:
        """Steps that every rank makes in an epoch of the mixture."""
        if self.epoch_steps is not None:
            return self.epoch_steps
        shares = integer_weights(self.weights)
        num_first = int(self._sources[0].steps_per_epoch)
        num_elements = num_first * sum(shares) // shares[0]
        return max(1, num_elements // self.batch_size)

    @functools.cached_property
    def digest(self) -> str:
        """Of what must be the same on every rank and when a run goes on."""
        parts = [source.digest for source in self._sources]
        shares = integer_weights(self.weights)
        return index.digest(repr((parts, shares, self.steps_per_epoch)))

    def num_given(self, num_elements: int) -> list[int]:
        """How many of the first `num_elements` elements each set gives."""
        rounds, rest = divmod(num_elements, len(self._schedule))
        shares = np.array(integer_weights(self.weights))
        begun = np.bincount(self._schedule[:rest], minlength=len(shares))
        given: list[int] = (rounds * shares + begun).tolist()
        return given

    def part_states(self, state: State) -> list[State]:
        """Where each set is when the mixture is at a state.

        Raises:
            ValueError: If the state belongs to another mixture, number of ranks or
                batch size.
        """
        given = self.num_given(self._num_steps_before(state) * self.batch_size)
        return [
            source.advance(State(), count)
            for source, count in zip(self._sources, given, strict=True)
        ]

    def advance(self, state: State, num_steps: int = 1) -> State:
        """The state that many steps later."""
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
        """Steps from a state to the end of as many epochs; None without end."""
        if num_epochs is None:
            return None
        _check_state(self, state)
        return num_epochs * self.steps_per_epoch - state.step

    def num_records(self, state: State, num_epochs: int | None) -> int | None:
        """Elements that this rank reads in that time; None without end."""
        num_steps = self.num_steps(state, num_epochs)
        return None if num_steps is None else num_steps * self.batch_size

    def __call__(self, state: State, num_epochs: int | None) -> tf.data.Dataset:
        parts = [
            pipeline.build(state=part, num_epochs=None)
            for pipeline, part in zip(
                self.pipelines, self.part_states(state), strict=True
            )
        ]
        _check_specs([part.element_spec for part in parts])
        begin = self._num_steps_before(state) * self.batch_size
        count = self.num_records(state, num_epochs)
        choice = _choice(self._schedule, begin, count)
        mixed = tf.data.Dataset.choose_from_datasets(parts, choice)
        # TensorFlow takes it for endless, as its parts are, and puts nothing after it.
        known = tf.data.INFINITE_CARDINALITY if count is None else count
        return mixed.apply(tf.data.experimental.assert_cardinality(known))

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
    """The smallest whole numbers in the same proportions.

    Raises:
        ValueError: If a weight is not > 0, or the numbers add up to more than
            MAX_PERIOD.
    """
    for weight in weights:
        errors.require_number("", "Weights", weight, above=0)
    # As it is written: 0.7 is 7/10, not the binary fraction nearest to it.
    exact = [fractions.Fraction(str(weight)) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    shares = [number // math.gcd(*whole) for number in whole]
    if sum(shares) > MAX_PERIOD:
        raise ValueError(
            f"Weights {list(weights)} must repeat within {MAX_PERIOD} elements, got a "
            f"period of {sum(shares)}. Round them, or give whole numbers such as 1 "
            "and 2."
        )
    return shares


def schedule(weights: Sequence[float | fractions.Fraction]) -> Ints:
    """int64 [period], the number of the set that gives each element; repeats.

    The algorithm of R. Tijdeman, "The chairman assignment problem", Discrete
    Mathematics 32, 1980: with k sets no share is ever off by more than
    1 - 1 / (2 * k - 2) elements, which no algorithm betters.
    """
    shares = integer_weights(weights)
    period = sum(shares)
    twice = 2 * max(len(shares), 2) - 2
    given = [0] * len(shares)
    chosen = np.empty(period, np.int64)
    for number in range(period):
        # Of the sets that are due, the one that must be served first.
        _, best = min(
            ((given[i] * twice + twice - 1) / share, i)
            for i, share in enumerate(shares)
            if (share * (number + 1) - given[i] * period) * twice >= period
        )
        chosen[number] = best
        given[best] += 1
    return chosen


def _choice(pattern: Ints, begin: int, count: int | None) -> tf.data.Dataset:
    """The set of each element from number `begin` on; None is without end."""
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
    for number, pipeline in enumerate(pipelines):
        errors.require_kind("Mixture", "pipelines", pipeline, Pipeline)
        _check_source(pipeline.source, number)
    sources: list[Any] = [pipeline.source for pipeline in pipelines]
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


def _check_source(source: Any, number: int) -> None:
    if not all(hasattr(source, name) for name in ("advance", "digest", "rank")):
        raise TypeError(
            f"The source of pipeline {number} must say where it is, as TFRecordSource "
            f"does with advance, digest and rank, got {source!r}."
        )
    if source.batch_size != 1:
        raise ValueError(
            "A Mixture counts single elements: the source of each pipeline must have "
            f"batch_size 1, pipeline {number} has {source.batch_size}. Give the "
            "batch size to the Mixture."
        )


def _check_specs(specs: Sequence[Any]) -> None:
    for number, spec in enumerate(specs):
        if spec != specs[0]:
            raise ValueError(
                "The elements of all pipelines of a Mixture must be of one form: "
                f"pipeline 0 gives {specs[0]}, pipeline {number} gives {spec}. End "
                "each with a Select of the same names."
            )
