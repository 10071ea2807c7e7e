"""Checkpoints on disk: the model, its optimizer and how far training is.

In: the objects to save, by name, and the ranks. Out: a folder of checkpoints. A crash
during a save leaves the older checkpoints: every checkpoint is complete or absent.
"""

import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Ranks

_CHECKPOINTS_KEPT = 2


class Checkpoint:
    """Checkpoints that rank 0 writes and reads; the other ranks get rank 0's values.

    The folder need not be visible to the hosts of other ranks.

    Attributes:
        error: The last error of a save; None without errors.

    Args:
        folder: Folder of the checkpoints; None to save and load nothing.
        variables: All variables of these objects, for the broadcast to other ranks.
    """

    def __init__(
        self,
        folder: str | None,
        trackables: Mapping[str, Any],
        variables: Sequence[tf.Variable],
        ranks: Ranks,
    ) -> None:
        self.error: str | None = None
        self._ranks = ranks
        self._data = tfpipe.CheckpointState()
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
        """Loads the newest checkpoint, if there is one.

        All ranks call it together. Every rank then has rank 0's values, also if there
        is no checkpoint: new weights are random.

        Returns:
            How far the data was read when it was saved; None if there is none.
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
        """Writes a checkpoint on rank 0, if there is a folder.

        A failed save, as on a full disk, is an error on stderr and in `error`. The run
        goes on, because its figures do not depend on the checkpoint.
        """
        if self._manager:
            self._data.state = state
            # The number follows the newest number in the folder, so that a resumed run
            # never overwrites a checkpoint of an earlier run.
            newest = self._manager.latest_checkpoint or "-0"
            version = int(newest.rpartition("-")[2]) + 1
            try:
                self._manager.save(checkpoint_number=version)
            except (OSError, tf.errors.OpError) as error:
                self.error = (
                    f"--checkpoint_dir={self._manager.directory} must hold checkpoint "
                    f"{version}, which could not be written: {error}"
                )
                print(f"Error: {self.error}", file=sys.stderr, flush=True)
