"""Received records: those of an epoch that a tf.data service has delivered.

In: the windows of a rank, and the positions of the records that arrive. Out: the
windows with what has not arrived, to ask for again.
"""

import itertools
import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe.errors import count_of
from tfpipe.reading.order import EpochPosition
from tfpipe.reading.windows import Windows
from tfpipe.service import epoch_windows
from tfpipe.service.epoch_windows import EpochWindows, Tensors
from tfpipe.service.lost_workers import LostWorkers

Array = npt.NDArray[Any]


class Received:
    """Keeps the records of an epoch that were received, for each iteration."""

    def __init__(
        self,
        address: str,
        windows: Windows,
        first: EpochPosition,
        lost_after_s: float | None,
    ) -> None:
        self._address = address
        self._limit = math.inf if lost_after_s is None else lost_after_s
        self._windows = windows
        self._first = first
        self._tokens = itertools.count()  # its `next` is atomic
        self._epochs: dict[int, tuple[EpochWindows, Array]] = {}
        self._rounds: dict[int, int] = {}
        self._lost: dict[int, LostWorkers] = {}  # of the rounds that go on

    def begin(self, number: Array) -> Any:
        """Begins an epoch; returns int64, the token of the iteration's epoch."""
        place = self._first
        if number:
            place = EpochPosition(place.epoch + int(number))
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
                f"The tf.data service at {self._address} must give "
                f"{count_of(num_missing, 'more record')} in this epoch, but has "
                "ended twice without giving any. "
                "Look at the messages of its workers."
            )
        self._rounds[int(token)] = num_missing
        if last is not None and num_missing:
            print(
                f"tfpipe: a worker of the tf.data service at {self._address} is gone. "
                f"Asking again for {num_missing} of {len(is_received)} records.",
                file=sys.stderr,
            )
        if num_missing:
            self._lost[int(token)] = LostWorkers(
                address=self._address, limit=self._limit
            )
        else:
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
        if (lost := self._lost.get(int(token))) is not None:
            lost.arrived()
        return np.bool_(not were.any())

    def end_round(self, token: tf.Tensor) -> tf.Tensor:
        """Returns False, and notes that the service has no elements left."""

        def end(number: Array) -> Any:
            self._lost.pop(int(number), None)
            return np.bool_(False)

        return tf.ensure_shape(tf.numpy_function(end, [token], tf.bool), [])

    def goes_on(self, token: tf.Tensor) -> tf.Tensor:
        """Returns bool, whether the service may have elements left.

        Raises, when it is run:
            tf.errors.OpError: If a server that the epoch waits for is lost.
        """

        def check(number: Array) -> Any:
            if (lost := self._lost.get(int(number))) is None:
                return np.bool_(False)
            lost.check()
            return np.bool_(True)

        return tf.ensure_shape(tf.numpy_function(check, [token], tf.bool), [])
