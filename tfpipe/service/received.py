"""Received records: the part of an epoch that a tf.data service has delivered.

In: the windows of a rank, and the positions of the records that arrive. Out: the
windows with the missing records, to ask for again; the arriving elements, or an error
if a server is lost.
"""

import itertools
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe.errors import count_of
from tfpipe.reading.order import EpochPosition
from tfpipe.reading.windows import Windows
from tfpipe.service import epoch_windows
from tfpipe.service.epoch_windows import EpochWindows, Tensors
from tfpipe.service.on_workers import POSITION
from tfpipe.service.workers import LostWorkers
from tfpipe.stages.basic import Example, as_it_is

Array = npt.NDArray[Any]

# Time between two checks. An epoch may end this much later.
_PULSE_SECONDS = 0.05

_Optional = tf.experimental.Optional


class Received:
    """Keeps the received records of epochs, for all iterations.

    In its methods, `token` is the token of an epoch, and `elements` are what the
    service gives in a round.
    """

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
        self._num_missing: dict[int, int] = {}  # after the last round
        self._lost: dict[int, LostWorkers] = {}  # of the rounds under way

    def begin(self, num_before: Array) -> Any:
        """Begins the epoch after so many; returns int64, the token of the epoch."""
        begin = self._first
        if num_before:
            begin = EpochPosition(begin.epoch + int(num_before))
        token = next(self._tokens)
        epoch = epoch_windows.epoch_windows(self._windows, begin)
        self._epochs[token] = epoch, np.zeros(epoch.num_records, np.bool_)
        return np.int64(token)

    def arrays(self, token: tf.Tensor) -> Tensors:
        """Returns the arrays of the windows with missing records."""
        specs = epoch_windows.ARRAYS
        types = [spec.dtype for spec in specs.values()]
        values = tf.numpy_function(self._missing, [token], types)
        for value, spec in zip(values, specs.values(), strict=True):
            value.set_shape(spec.shape)
        return dict(zip(specs, values, strict=True))

    def _missing(self, token: Array) -> list[Array]:
        epoch, is_received = self._epochs[int(token)]
        num_missing = int((~is_received).sum())
        last = self._num_missing.get(int(token))
        if last == num_missing:
            raise RuntimeError(
                f"The tf.data service at {self._address} must give "
                f"{count_of(num_missing, 'more record')} in this epoch, but has "
                "ended twice without giving any. "
                "Look at the messages of its workers."
            )
        self._num_missing[int(token)] = num_missing
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
            del self._epochs[int(token)], self._num_missing[int(token)]
        arrays = epoch.missing(is_received)
        return [arrays[name] for name in epoch_windows.ARRAYS]

    def new(self, token: tf.Tensor, elements: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the elements with new records.

        If a server does not answer at the last missing record, the elements end with
        the record: TensorFlow stops no read that waits for a worker. Otherwise the
        elements end when the workers say so, and the workers free the memory of the
        epoch.
        """

        def counted(element: Example) -> tuple[Example, tf.Tensor]:
            tensors = [token, element[POSITION]]
            count = tf.numpy_function(self._add, tensors, tf.int64)
            return element, tf.ensure_shape(count, [])

        def repeated(element: Example, count: tf.Tensor) -> tf.data.Dataset:
            return tf.data.Dataset.range(count).map(as_it_is(lambda i: (element, i)))

        return (
            elements.map(as_it_is(counted))
            .flat_map(as_it_is(repeated))
            .take_while(as_it_is(lambda _, repeat: repeat == 0))
            .map(as_it_is(lambda element, _: element))
        )

    def _add(self, token: Array, positions: Array) -> Any:
        """Counts records; returns 0 for known records, 2 for the end, otherwise 1."""
        is_received = self._epochs[int(token)][1]
        were = is_received[positions]
        if were.any() and not were.all():
            raise RuntimeError("A batch of the tf.data service holds records again.")
        is_received[positions] = True
        if (lost := self._lost.get(int(token))) is not None:
            lost.arrived()
        if were.any():
            return np.int64(0)
        is_cut = is_received.all() and lost is not None and not lost.all_answer()
        return np.int64(2 if is_cut else 1)

    def watched(self, token: tf.Tensor, elements: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the elements in their order, or an error of a lost server."""

        def end(key: Array) -> Any:
            self._lost.pop(int(key), None)
            return np.bool_(False)

        def check(key: Array) -> Any:
            lost = self._lost.get(int(key))
            if lost is not None:
                lost.check()
            return np.bool_(lost is not None)

        def called(function: Callable[[Array], Any]) -> tf.Tensor:
            return tf.ensure_shape(tf.numpy_function(function, [token], tf.bool), [])

        return _with_pulses(
            elements, lambda _: called(end), goes_on=lambda _: called(check)
        )


def _with_pulses(
    elements: tf.data.Dataset,
    end: Callable[[object], tf.Tensor],
    *,
    goes_on: Callable[[object], tf.Tensor],
) -> tf.data.Dataset:
    """Returns the elements of a dataset that may block, or the error of a check.

    TensorFlow cannot interrupt a dataset that waits for a server, but takes the error
    of a second dataset, of pulses, read at the same time. No tensor is copied.

    Args:
        elements: The dataset.
        end: Called when the dataset has ended; returns bool [], False.
        goes_on: Called every 50 ms while no element is ready; returns bool [], whether
            to check again. It must return False after `end` was called. An error in
            `goes_on` becomes the error of the dataset.
    """
    spec = elements.element_spec
    nothing = as_it_is(lambda _: _Optional.empty(spec))
    some = as_it_is(lambda element: _Optional.from_value(element))
    ended = tf.data.Dataset.range(1).filter(as_it_is(end))
    pulses = _pulses().take_while(as_it_is(goes_on))
    filled = elements.map(some).concatenate(ended.map(nothing))

    def branch(second: tf.Tensor) -> tf.data.Dataset:
        first = tf.data.Dataset.range(1 - second).flat_map(as_it_is(lambda _: filled))
        other = tf.data.Dataset.range(second).flat_map(as_it_is(lambda _: pulses))
        return first.concatenate(other.map(nothing))

    both = tf.data.Dataset.range(2).interleave(
        as_it_is(branch), cycle_length=2, num_parallel_calls=2, deterministic=False
    )
    with_value = both.filter(as_it_is(lambda element: element.has_value()))
    return with_value.map(as_it_is(lambda element: element.get_value()))


def _pulses() -> tf.data.Dataset:
    """Returns int64 without end, a number each `_PULSE_SECONDS`."""
    counted = tf.data.Dataset.range(tf.int64.max)
    slow = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(counted),
        sleep_microseconds=tf.constant(int(_PULSE_SECONDS * 1e6), tf.int64),
        output_types=[tf.int64],
        output_shapes=[[]],
    )
    return tf.data.experimental.from_variant(slow, tf.TensorSpec([], tf.int64))
