"""Pipeline: a source, a list of stages and a tuning, built into a tf.data.Dataset.

In: what a user or a preset composed. Out: a plain `tf.data.Dataset`, and the same
pipeline as text, one line a stage. Imports neither sources nor stages: it only calls
what it is given.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from tfpipe.tuning import Tuning

Source = Callable[[Any], tf.data.Dataset]
Stage = Callable[[tf.data.Dataset], tf.data.Dataset]


@runtime_checkable
class Tunable(Protocol):
    """A stage with knobs that a tuning can fill."""

    def tuned(self, tuning: Tuning) -> Stage:
        """The stage with every knob set."""


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """Where elements start, what happens to them, and with how many threads.

    Args:
        source: Callable epoch -> Dataset.
        stages: Callables Dataset -> Dataset, in the order of the data.
        tuning: Fills the knobs that stages leave open.
    """

    source: Source
    stages: Sequence[Stage]
    _: dataclasses.KW_ONLY
    tuning: Tuning = dataclasses.field(default_factory=Tuning)

    def __post_init__(self) -> None:
        for number, stage in enumerate(self.stages, start=1):
            if not callable(stage):
                raise TypeError(
                    f"Stage {number} must be callable Dataset -> Dataset, "
                    f"got {stage!r}."
                )

    def build(self, *, epoch: int = 0, num_epochs: int | None = 1) -> tf.data.Dataset:
        """The dataset of one epoch, or of several after each other.

        Epochs stay whole: every element of one comes before any of the next.

        Args:
            epoch: Number of the first epoch, >= 0; each has its own order and seeds.
            num_epochs: How many; None goes on without end.

        Raises:
            ValueError: If epoch or num_epochs is out of range.
            Exception: What a stage raises, with a note that names the stage.
        """
        if epoch < 0 or (num_epochs is not None and num_epochs < 1):
            raise ValueError(
                "epoch must be >= 0 and num_epochs >= 1 or None, "
                f"got {epoch} and {num_epochs}."
            )
        dataset = self._epoch(epoch)
        if num_epochs != 1:
            dataset = self._epochs(epoch, num_epochs, dataset.cardinality())
        return dataset.with_options(self.tuning.options())

    def _epochs(
        self, epoch: int, num_epochs: int | None, epoch_cardinality: tf.Tensor
    ) -> tf.data.Dataset:
        stop = tf.int64.max if num_epochs is None else epoch + num_epochs
        dataset = tf.data.Dataset.range(epoch, stop).flat_map(self._epoch)
        # flat_map forgets the cardinality; Keras and `len` want it.
        cardinality = tf.data.INFINITE_CARDINALITY
        if num_epochs is not None:
            if epoch_cardinality == tf.data.UNKNOWN_CARDINALITY:
                return dataset
            if epoch_cardinality >= 0:
                cardinality = epoch_cardinality * num_epochs
        return dataset.apply(tf.data.experimental.assert_cardinality(cardinality))

    def prefix(self, num_stages: int) -> "Pipeline":
        """The pipeline up to and with its first `num_stages` stages."""
        if not 0 <= num_stages <= len(self.stages):
            raise ValueError(
                f"num_stages must be 0 to {len(self.stages)}, got {num_stages}."
            )
        return dataclasses.replace(self, stages=self.stages[:num_stages])

    def _epoch(self, epoch: Any) -> tf.data.Dataset:
        dataset = self.source(epoch)
        for number, stage in enumerate(self._tuned_stages(), start=1):
            try:
                dataset = stage(dataset)
            except Exception as error:
                if hasattr(error, "add_note"):  # from Python 3.11 on
                    error.add_note(
                        f"In stage {number} of the pipeline, {stage!r}, "
                        f"which takes {dataset.element_spec}."
                    )
                raise
        return dataset

    def _tuned_stages(self) -> list[Stage]:
        return [
            stage.tuned(self.tuning) if isinstance(stage, Tunable) else stage
            for stage in self.stages
        ]

    def __str__(self) -> str:
        lines = [f"   {self.source!r}"]
        lines += [
            f"{number:2} {stage!r}"
            for number, stage in enumerate(self._tuned_stages(), start=1)
        ]
        return "\n".join([*lines, f"   {self.tuning!r}"])
