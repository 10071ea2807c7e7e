"""Checkpoints: the model, its optimizer and how far training is, on disk.

In: what to save, by name, and the ranks. Out: folders that survive a crash: a
checkpoint is there whole or not at all.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Ranks

_CHECKPOINTS_KEPT = 2


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
        self._data = tfpipe.SavedState()
        self._variables = variables
        checkpoint = tf.train.Checkpoint(**trackables, data=self._data)
        self._checkpoint = checkpoint
        self._manager = None
        if folder and ranks.is_first:
            pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
            self._manager = tf.train.CheckpointManager(
                checkpoint, folder, max_to_keep=_CHECKPOINTS_KEPT
            )

    def restore(self) -> tfpipe.State | None:
        """Loads the newest checkpoint, if there is one: how far the data was read.

        Gives rank 0's values to all ranks in any case.

        Raises:
            ValueError: If the checkpoint holds something else.
        """
        path = self._manager.latest_checkpoint if self._manager else None
        if path:
            self._checkpoint.restore(path).expect_partial()
        self._ranks.broadcast(self._variables)
        state: tfpipe.State | None = self._ranks.gather(
            self._data.state if path else None
        )[0]
        return state

    def save(self, state: tfpipe.State) -> None:
        """Writes a checkpoint, if there is a folder for it and this is rank 0."""
        if self._manager:
            self._data.state = state
            # After the newest one, whoever wrote it: none is written over.
            newest = self._manager.latest_checkpoint or "-0"
            self._manager.save(checkpoint_number=int(newest.rpartition("-")[2]) + 1)
