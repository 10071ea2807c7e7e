"""Checkpoints: the model, its optimizer and how far training is, on disk.

In: what to save, by name, and the ranks. Out: folders that survive a crash: a
checkpoint is there whole or not at all.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from benchmarks.ranks import Ranks

_CHECKPOINTS_KEPT = 2


class Place(NamedTuple):
    """How far training is: epochs done, steps done in this one, steps it has in all."""

    epoch: int
    step: int
    steps_per_epoch: int


class Checkpoint:
    """Rank 0 writes and reads; every rank then gets rank 0's values.

    So a folder that only rank 0's host sees is enough.
    """

    def __init__(
        self,
        folder: str | None,
        trackables: Mapping[str, Any],
        variables: Sequence[tf.Variable],
        ranks: Ranks,
    ) -> None:
        self._ranks = ranks
        self._place = tf.Variable(Place(0, 0, 0), dtype=tf.int64, trainable=False)
        self._variables = [self._place, *variables]
        checkpoint = tf.train.Checkpoint(**trackables, place=self._place)
        self._checkpoint = checkpoint
        self._manager = None
        if folder and ranks.is_first:
            pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
            self._manager = tf.train.CheckpointManager(
                checkpoint, folder, max_to_keep=_CHECKPOINTS_KEPT
            )

    def restore(self) -> Place | None:
        """Loads the newest checkpoint, if there is one, and returns its place.

        Gives rank 0's values to all ranks in any case.
        """
        path = self._manager.latest_checkpoint if self._manager else None
        if path:
            self._checkpoint.restore(path).expect_partial()
        self._ranks.broadcast(self._variables)
        found = self._ranks.gather(path is not None)[0]
        return Place(*self._place.numpy().tolist()) if found else None

    def save(self, place: Place) -> None:
        """Writes a checkpoint, if there is a folder for it and this is rank 0."""
        if self._manager:
            self._place.assign(place)
            self._manager.save()
