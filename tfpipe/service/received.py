"""Received records: those of an epoch that a tf.data service has delivered.

In: the windows of a rank, and the positions of the records that arrive. Out: the
windows with what has not arrived, to ask for again.
"""

import itertools
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe.reading.order import Place
from tfpipe.reading.windows import Windows
from tfpipe.service import epoch_windows
from tfpipe.service.epoch_windows import EpochWindows, Tensors

Array = npt.NDArray[Any]


class Received:
    """Keeps the records of an epoch that were received, for each iteration."""

    def __init__(self, address: str, windows: Windows, first: Place) -> None:
        self._address = address
        self._windows = windows
        self._first = first
        self._tokens = itertools.count()  # its `next` is atomic
        self._epochs: dict[int, tuple[EpochWindows, Array]] = {}
        self._rounds: dict[int, int] = {}

    def begin(self, number: Array) -> Any:
        """Begins an epoch; returns int64, the token of the iteration's epoch."""
        place = self._first
        if number:
            place = Place(place.epoch + int(number))
        token = next(self._tokens)
        epoch = epoch_windows.epoch_windows(self._windows, place)
        self._epochs[token] = epoch, np.zeros(epoch.num_records, np.bool_)
        return np.int64(token)

    def arrays(self, token: tf.Tensor) -> Tensors:
        """Returns the arrays of the windows with records that were not received."""
        specs = epoch_windows.ARRAYS
        types = [spec.dtype for spec in specs.values()]
        values = tf.numpy_function(self._missing, [token], types)
        for value, spec in zip(values, specs.values(), strict=True):
            value.set_shape(spec.shape)
        return dict(zip(specs, values, strict=True))

    def _missing(self, token: Array) -> list[Array]:
        epoch, is_received = self._epochs[int(token)]
        num_missing = int((~is_received).sum())
        last = self._rounds.get(int(token))
        if last == num_missing:
            raise RuntimeError(
                f"The tf.data service at {self._address} must give {num_missing} "
                "records more in this epoch, but has ended twice without them. "
                "Look at the messages of its workers."
            )
        self._rounds[int(token)] = num_missing
        if last is not None and num_missing:
            print(
                f"tfpipe: {num_missing} of {len(is_received)} records are asked for "
                f"again: a worker of the tf.data service at {self._address} is gone.",
                file=sys.stderr,
            )
        if not num_missing:
            del self._epochs[int(token)], self._rounds[int(token)]
        arrays = epoch.missing(is_received)
        return [arrays[name] for name in epoch_windows.ARRAYS]

    def add(self, token: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Returns bool, whether these records are new, and counts them."""
        is_new = tf.numpy_function(self._add, [token, positions], tf.bool)
        return tf.ensure_shape(is_new, [])

    def _add(self, token: Array, positions: Array) -> Any:
        is_received = self._epochs[int(token)][1]
        were = is_received[positions]
        if were.any() and not were.all():
            raise RuntimeError("A batch of the tf.data service holds records again.")
        is_received[positions] = True
        return np.bool_(not were.any())
