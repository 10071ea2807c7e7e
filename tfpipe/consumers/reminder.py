"""A reminder on stderr that nobody has normalized the pixels of batches.

In: a dataset of batches whose device ops the consumer has to apply. Out: the same
batches; a few batches after the first, a line on stderr if nobody applied the ops.
"""

import functools
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfpipe.stages.basic import Prefetch, as_it_is

# Batches before the reminder: the first training step was traced by then.
_NUM_BATCHES = 5

# Readers without a need for normalized pixels.
_MEASURING = (
    "tfpipe.profiling.",
    "tfpipe.tuner.",
    "tfpipe.training.headspace",
    "tfpipe.view",
)

_TEXT = (
    "tfpipe: these batches hold pixels 0..255 as they were decoded, and nothing has "
    "normalized them so far. Use pipeline.for_keras() with Keras, call "
    "pipeline.on_device(batch) in your training step, or begin the model with "
    'pipeline.device_layer(). A preset with dtype="float32" gives normalized pixels. '
    "If your model or your code normalizes, pipeline.to_numpy(apply_device_ops=False) "
    "or dataclasses.replace(pipeline, device_ops=()) says so."
)


class Reminder:
    """Remembers whether the device ops of a pipeline were used; reminds once.

    A pipeline shares its reminder with the pipelines made from it.
    """

    def __init__(self) -> None:
        self._is_settled = False
        self._num_visits = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state | {"_lock": threading.Lock()})

    def settle(self) -> None:
        """Notes the use of the device ops."""
        self._is_settled = True

    def among(self, stages: Sequence[Any]) -> list[Any]:
        """Returns the stages, with the reminder before the last Prefetch.

        Within a tf.function, where no length is known, there is no reminder.
        """
        if self._is_settled or not tf.executing_eagerly():
            return [*stages]
        at, num_ahead = len(stages), 0
        if stages and isinstance(stages[-1], Prefetch):
            at, num_ahead = at - 1, max(stages[-1].buffer_size or 0, 0)
        remind = functools.partial(self._within, num_before=_NUM_BATCHES + num_ahead)
        return [*stages[:at], remind, *stages[at:]]

    def _within(self, dataset: tf.data.Dataset, num_before: int) -> tf.data.Dataset:
        """Returns the same batches, with the reminder after `num_before` of them.

        After an iteration of fewer batches the reminder comes in the next iteration.
        """
        cardinality = int(dataset.cardinality())
        is_short = 0 < cardinality <= num_before
        at = cardinality - 1 if is_short else num_before

        def visit() -> np.int64:
            self._visit(2 if is_short else 1)
            return np.int64(0)

        def count(position: tf.Tensor, batch: Any) -> tuple[tf.Tensor, Any]:
            visited = tf.cond(
                tf.equal(position, at),
                lambda: tf.numpy_function(visit, [], tf.int64),
                lambda: tf.constant(0, tf.int64),
            )
            return position + 1 + tf.ensure_shape(visited, []), batch

        # Some 50 us a batch. A single input in a row with the others: whoever lists the
        # datasets of a pipeline, as AUTOTUNE's choices, finds the datasets before it.
        return dataset.scan(tf.constant(0, tf.int64), as_it_is(count))

    def _visit(self, least: int) -> None:
        with self._lock:
            self._num_visits += 1
            if self._is_settled or self._num_visits < least or _is_measured():
                return
            self._is_settled = True
        print(_TEXT, file=sys.stderr, flush=True)


def _is_measured() -> bool:
    """Checks whether a function of this library reads the batches."""
    return any(
        frame.f_globals.get("__name__", "").startswith(_MEASURING)
        for innermost in sys._current_frames().values()
        for frame, _ in traceback.walk_stack(innermost)
    )
