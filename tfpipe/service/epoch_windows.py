"""The windows of an epoch as arrays, for a dataset that calls no Python.

In: the windows of a rank, and the begin of its epoch. Out: arrays of all windows, and
the dataset of windows made of these arrays. The dataset runs without Python: on the
workers of a tf.data service. Every worker takes the next window.
"""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe.reading.order import EpochPosition, epoch_seed
from tfpipe.reading.windows import Windows
from tfpipe.shards.ranges import by_shard, join
from tfpipe.shards.records import Ints

Arrays = dict[str, npt.NDArray[Any]]
Tensors = dict[str, tf.Tensor]

# Arrays of an epoch, see `EpochWindows.arrays`, with the shapes of all epochs.
_INT64 = (
    *("extents_end", "byte_offset", "num_records", "first_record"),
    *("skip", "num_real", "start", "epoch_seed"),
    *("piece_window", "piece_start", "piece_take"),
)
ARRAYS = {name: tf.TensorSpec([None], tf.int64) for name in _INT64} | {
    "shard": tf.TensorSpec([None], tf.int32),
    "shuffle_seed": tf.TensorSpec([None, 2], tf.int64),
    "is_real": tf.TensorSpec([None], tf.bool),
    "has_right_lengths": tf.TensorSpec([None], tf.bool),
}


@dataclasses.dataclass(frozen=True, eq=False)
class EpochWindows:
    """The windows of one rank from a place to the end of its epoch.

    The records to fill up the last batch follow the last window with a real record: a
    window then gives whole batches if `window_size` does.

    Attributes:
        take: int64 [num_windows], records passed on by a window.
        arrays: The windows as arrays. For each of w windows: `extents_end`, the end of
            its extents among all; `shuffle_seed`, `skip`, `is_real` and
            `has_right_lengths` as in an element of `source.TFRecordSource`;
            `num_real`, the end of its real records after the permutation; and `start`,
            the position in the epoch of the first record passed on. For every
            extent: `shard`, its number, `byte_offset`, `num_records`, `first_record`.
            `epoch_seed` [1], or [num_records] if records come several times.
    """

    take: Ints
    arrays: Arrays

    @property
    def num_records(self) -> int:
        """Number of records passed on by the windows."""
        return int(self.take.sum())

    def missing(self, is_received: npt.NDArray[np.bool_]) -> Arrays:
        """Returns `arrays` with the pieces of windows with missing records.

        Args:
            is_received: bool [num_records], by position in the epoch.

        Returns:
            `piece_window`, `piece_start`, `piece_take`: int64 [num_pieces], the window
            of a run of missing records, the position of its first record in the
            epoch, and its records.
        """
        window, runs = by_shard(join(np.flatnonzero(~is_received)), self.take)
        pieces = {
            "piece_window": window,
            "piece_start": runs.first,
            "piece_take": runs.length,
        }
        return self.arrays | pieces


def epoch_windows(windows: Windows, place: EpochPosition) -> EpochWindows:
    """Returns the windows from a place to the end of its epoch."""
    order, rank = windows.order, windows.rank
    found = [order.window(rank, place, n) for n in order.windows(rank, place)]
    copies = [window.copies_passed_on() for window in found]
    take = np.array([window.take for window in found], np.int64)
    if len(found) > 1 and not found[-1].real:
        num_fillers = found.pop().take
        take = take[:-1]
        take[-1] += num_fillers
    cut = [by_shard(window.ranges, windows.shard_sizes) for window in found]
    first = np.concatenate([ranges.first for _, ranges in cut])
    copy = np.concatenate(copies) if order.expected_copies else np.zeros(1, np.int64)
    arrays: Arrays = {
        "extents_end": np.cumsum([len(shard) for shard, _ in cut]),
        "shard": np.concatenate([shard for shard, _ in cut]).astype(np.int32),
        "byte_offset": windows.spans.byte_offsets(first),
        "num_records": np.concatenate([ranges.length for _, ranges in cut]),
        "first_record": first,
        "shuffle_seed": np.array([window.seed or (0, 0) for window in found], np.int64),
        "skip": np.array([window.skip for window in found], np.int64),
        "num_real": np.array([window.skip + window.take for window in found], np.int64),
        "is_real": np.array([window.real for window in found]),
        "has_right_lengths": np.array(
            [windows.has_right_lengths(*runs) for runs in cut]
        ),
        "start": np.cumsum(take) - take,
        "epoch_seed": epoch_seed(seed=order.seed, epoch=place.epoch, copy=copy),
    }
    return EpochWindows(take, arrays)


def dataset(
    arrays: Tensors, paths: list[str], *, is_shuffled: bool, has_copies: bool
) -> tf.data.Dataset:
    """Returns the windows of `EpochWindows.missing`, without a call of Python.

    Element: window, with the features of an element of `source.TFRecordSource` but
    `record_byte_offset` and `record_num_bytes`, and
        num_real: int64, the end of the real records after the permutation; all
            others repeat the last real record
        start: int64, the position in the epoch of the first record passed on

    Args:
        arrays: Tensors as in `ARRAYS`.
        paths: Path of each shard.
        is_shuffled: Whether the records of a window are permuted.
        has_copies: Whether `epoch_seed` has a value for each record.
    """

    def window(piece: tf.Tensor) -> Tensors:
        at = arrays["piece_window"][piece]
        end = arrays["extents_end"][at]
        begin = tf.where(at > 0, arrays["extents_end"][tf.maximum(at - 1, 0)], 0)
        names = ("byte_offset", "num_records", "first_record")
        element = {name: arrays[name][begin:end] for name in names}
        element["path"] = tf.gather(tf.constant(paths), arrays["shard"][begin:end])
        for name in ("num_real", "is_real", "has_right_lengths"):
            element[name] = arrays[name][at]
        if is_shuffled:
            element["shuffle_seed"] = arrays["shuffle_seed"][at]
        start, take = arrays["piece_start"][piece], arrays["piece_take"][piece]
        element["start"], element["take"] = start, take
        element["skip"] = arrays["skip"][at] + start - arrays["start"][at]
        seeds = arrays["epoch_seed"]
        element["epoch_seed"] = (
            seeds[start : start + take] if has_copies else tf.repeat(seeds, take)
        )
        return element

    numbers = tf.data.Dataset.range(tf.size(arrays["piece_window"], tf.int64))
    return numbers.map(tf.autograph.experimental.do_not_convert(window))
