"""CachedElements: the stage of a cache, from windows to elements.

In: windows, a store, and the stages that make an element from a record. Out: the
elements, in the order of the windows. The elements of a window that the store lacks are
made and stored first; then the whole window is read from the store.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe import errors
from tfpipe.cache import cacheable, store
from tfpipe.reading.source import TFRecordSource
from tfpipe.reading.state import State
from tfpipe.shards.ranges import RecordRanges
from tfpipe.stages import philox
from tfpipe.stages.basic import Example, as_it_is
from tfpipe.stages.faults import REMEDY
from tfpipe.stages.interleave import Interleave
from tfpipe.stages.map import Map

Array = npt.NDArray[Any]

# Number of records in one call of the store.
_CHUNK = 32
# Tries to read rows while others damage the rows.
_NUM_TRIES = 5


def features(spec: Example) -> list[store.StoredFeature]:
    """Returns the features of an element for the store.

    Raises:
        ValueError: If a feature is neither numbers of a fixed shape nor a string.
    """
    features = []
    for name, item in sorted(spec.items()):
        if name in cacheable.OF_WINDOW:
            continue
        if not item.shape.is_fully_defined() or (
            item.dtype == tf.string and item.shape.rank
        ):
            raise ValueError(
                f"Cache needs numbers of fixed shape, or one string; got {name}: "
                f"{item}. Give all images one size before it, or cache them encoded."
            )
        dtype = np.dtype(item.dtype.as_numpy_dtype)
        features.append(store.StoredFeature(name, dtype, tuple(item.shape)))
    return features


@dataclasses.dataclass(frozen=True, kw_only=True)
class CachedElements:
    """Stage from windows to elements: makes missing elements, then reads the store.

    Attributes:
        store: Store of the elements.
        source: Source of the windows.
        interleave, maps: Stages from a record to an element.
        spec: Specs of an element; `features` returns the kept features.

    The store has a row a record; with a subset, a row a chosen record.
    """

    store: store.RecordStore
    source: TFRecordSource
    interleave: Interleave
    maps: Sequence[Map]
    spec: Example

    def rows(self, records: Array) -> Array:
        """Returns the rows of records in the store, by number in the split."""
        numbers = self.source.record_numbers
        return records if numbers is None else np.searchsorted(numbers, records)

    def __call__(
        self, windows: tf.data.Dataset, num_parallel_reads: int | None
    ) -> tf.data.Dataset:
        # The next window is made while the elements of a window are taken.
        whole = windows.flat_map(as_it_is(self._window))
        records = whole.prefetch(1).unbatch()
        chunks = records.batch(_CHUNK).map(
            as_it_is(self._take),
            num_parallel_calls=num_parallel_reads,
            deterministic=True,
        )
        return chunks.unbatch()

    def _window(self, window: Example) -> tf.data.Dataset:
        """Returns an element: the records of the window, after all are stored."""
        return self._filling(window).concatenate(
            tf.data.Dataset.from_tensors(window).map(as_it_is(self._passed_on))
        )

    def _filling(self, window: Example) -> tf.data.Dataset:
        """Returns no element, but stores the missing records of a window when read."""
        missing = _missing(self, window)
        dataset = tf.data.Dataset.from_tensors(missing)
        dataset = dataset.take(tf.cast(missing["take"] > 0, tf.int64))
        dataset = self.interleave.sound(dataset, self.interleave.faults)
        for stage in self.maps:
            dataset = stage.sound(dataset, stage.faults)
        stored = dataset.batch(_CHUNK).map(as_it_is(self._put))
        return stored.filter(as_it_is(lambda _: False))

    def _put(self, batch: Example) -> Example:
        columns = [batch[feature.name] for feature in features(self.spec)]

        def put(records: Array, *columns: Array) -> Array:
            self.store.put(self.rows(records), columns)
            return records

        records = tf.numpy_function(put, [batch["record_id"], *columns], tf.int64)
        return {
            "record_id": tf.ensure_shape(records, [None]),
            "is_real": tf.zeros([0], tf.bool),
            "epoch_seed": tf.zeros([0], tf.int64),
        }

    def _passed_on(self, window: Example) -> Example:
        seed = window.get("shuffle_seed", tf.zeros([2], tf.int64))
        records, is_real = tf.numpy_function(
            self._find_passed_on,
            [window[name] for name in ("num_records", "first_record", "is_real")]
            + [seed, window["skip"], window["take"]],
            (tf.int64, tf.bool),
        )
        # tf.slice is one op; value[start:stop] with tensors is ten.
        begin, size = tf.stack([window["skip"]]), tf.stack([window["take"]])
        return {
            "record_id": tf.slice(tf.ensure_shape(records, [None]), begin, size),
            "is_real": tf.slice(tf.ensure_shape(is_real, [None]), begin, size),
            "epoch_seed": window["epoch_seed"],
        }

    def _find_passed_on(
        self,
        num_records: Array,
        first_record: Array,
        is_real: Array,
        seed: Array,
        skip: Array,
        take: Array,
    ) -> tuple[Array, Array]:
        records = RecordRanges(first_record, num_records).records()
        rows = self.rows(records)
        sound = self.store.are_sound(rows)
        order = philox.shuffled(len(records), seed)
        passed_on = order[skip : skip + take]
        self.store.put_damaged(rows[passed_on][~sound[passed_on]])
        good = np.flatnonzero(sound)
        # As in `stages.stand_in`: the next sound record, at the end the first.
        stand_in = np.arange(len(records))
        if len(good):
            stand_in = good[np.searchsorted(good, stand_in) % len(good)]
        else:
            records = np.full_like(records, self._spare())
        return records[stand_in][order], sound[order] & is_real

    def _spare(self) -> int:
        """Returns the number of a stored record, for a window without sound records."""
        if (found := _first_kept(self)) is not None:
            return found
        for window in self.source.in_order()(State(), 1):
            for _ in self._filling(window):
                pass
            if (found := _first_kept(self)) is not None:
                return found
        raise errors.BadRecordError(
            "No sound record found to stand in for the damaged ones: not one record of "
            f"split {self.source.split!r} of {self.source.data_dir} can be kept. "
            f"{REMEDY}"
        )

    def _get(self, records: Array) -> list[Array]:
        """Returns the features of stored records; damaged rows are made again."""
        rows = self.rows(records)
        for _ in range(_NUM_TRIES):
            try:
                return self.store.get(rows)
            except store.DamagedRowsError as error:
                wrong, cause = error.rows, error.__cause__
            self._make_again(records[np.isin(rows, wrong)], wrong)
        if cause is not None:  # the disk fails, and no record is damaged
            raise cause
        raise errors.BadRecordError(
            f"Records {records[np.isin(rows, wrong)].tolist()[:10]} of split "
            f"{self.source.split!r} are damaged in the cache, and cannot be made again."
            f" {REMEDY}"
        )

    def _make_again(self, damaged: Array, rows: Array) -> None:
        self.store.forget(rows)
        folder = self.store.describe().rpartition(", in ")[2]
        errors.say_once(
            f"cache: {folder} has rows with other bytes than were stored; such rows "
            "are made again. Look at the disk."
        )
        for window in self.source.in_order()(State(), 1):
            lengths = window["num_records"].numpy()
            here = RecordRanges(window["first_record"].numpy(), lengths).records()
            if np.isin(damaged, here).any():
                for _ in self._filling(window):
                    pass

    def _take(self, records: Example) -> Example:
        kept = features(self.spec)
        columns = tf.numpy_function(
            self._get,
            [records["record_id"]],
            [self.spec[feature.name].dtype for feature in kept],
        )
        batch = {
            feature.name: tf.ensure_shape(column, [None, *feature.shape])
            for feature, column in zip(kept, columns, strict=True)
        }
        seed = tf.stack([records["epoch_seed"], records["record_id"]], 1)
        batch |= {**records, "seed": seed}
        if "mask" in self.spec:
            batch["mask"] = tf.cast(records["is_real"], self.spec["mask"].dtype)
        return {name: batch[name] for name in self.spec}


def _first_kept(filled: CachedElements) -> int | None:
    """Returns the number of the first stored record; None for an empty store."""
    numbers = filled.source.record_numbers
    for row in np.flatnonzero(filled.store.have == store.KEPT)[:1]:
        return int(row if numbers is None else numbers[row])
    return None


def _missing(filled: CachedElements, window: Example) -> Example:
    """Returns a window of the missing records, every record once.

    Only records that the window passes on count: reading others would count their
    damage as faults.
    """
    seed = window.get("shuffle_seed", tf.zeros([2], tf.int64))
    extent, offset, count, first, offsets = tf.numpy_function(
        functools.partial(_find_missing, filled),
        [window[name] for name in ("num_records", "first_record", "record_byte_offset")]
        + [seed, window["skip"], window["take"]],
        [tf.int64] * 5,
    )
    of_extents = {name: window[name] for name in ("path", "origin") if name in window}
    extent = tf.ensure_shape(extent, [None])
    return {
        **{name: tf.gather(value, extent) for name, value in of_extents.items()},
        "byte_offset": tf.ensure_shape(offset, [None]),
        "num_records": tf.ensure_shape(count, [None]),
        "first_record": tf.ensure_shape(first, [None]),
        "record_byte_offset": tf.ensure_shape(offsets, [None]),
        "skip": tf.zeros([], tf.int64),
        "take": tf.size(offsets, tf.int64),
        "is_real": tf.constant(True),
        "has_right_lengths": window["has_right_lengths"],
        "epoch_seed": tf.zeros_like(offsets),  # no op before the cache is random
    }


def _find_missing(
    filled: CachedElements,
    num_records: Array,
    first_record: Array,
    offsets: Array,
    seed: Array,
    skip: Array,
    take: Array,
) -> tuple[Array, ...]:
    """Returns the missing records of a window, every record once, as extents.

    Returns:
        extent: int64 [x], the extent of the window that holds each new extent
        byte_offset: int64 [x], byte offset of the new extent
        num_records: int64 [x], number of its records
        first_record: int64 [x], number of its first record in the split
        record_byte_offset: int64 [w], byte offset of each record
    """
    records = RecordRanges(first_record, num_records).records()
    passed_on = np.sort(philox.shuffled(len(records), seed)[skip : skip + take])
    positions = passed_on[filled.store.begin(filled.rows(records[passed_on]))]
    _, once = np.unique(records[positions], return_index=True)
    positions = positions[np.sort(once)]
    records, offsets = records[positions], offsets[positions]
    extent = np.repeat(np.arange(len(num_records)), num_records)[positions]
    begins = np.diff(records, prepend=-2) != 1
    begins |= np.diff(extent, prepend=-1) != 0
    starts = np.flatnonzero(begins)
    count = np.diff(starts, append=len(records))
    return extent[starts], offsets[starts], count, records[starts], offsets
