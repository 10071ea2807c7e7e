"""Windows of a split as a dataset: what a rank reads next, and how to pass it on.

In: the order of the records, their files and byte offsets, and where to begin. Out: a
`tf.data.Dataset` of windows for `stages.Interleave`. Through a shard cache, a window
comes out when its records are on the local disk.
"""

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe.reading.order import Order, Place, Window, epoch_seed
from tfpipe.shard_cache.open_cache import OpenCache
from tfpipe.shards import lengths
from tfpipe.shards.ranges import RecordRanges, by_shard
from tfpipe.shards.records import Ints
from tfpipe.stages.iterations import counters, parts


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Windows:
    """The windows of one rank; see `source.TFRecordSource` for an element.

    Attributes:
        order: The order of the records.
        rank: The rank that reads these windows.
        paths: Path of each shard.
        origins: Place of each shard for messages; `paths`, unless there is a cache.
        shard_sizes: int64 [num_shards], records in each shard, chosen or not.
        byte_offsets: int64 [num_records], byte offset of each record in its shard.
        shard_bytes: int64 [num_shards], size of each shard.
        is_checked: bool [num_records], whether the record's length was found right;
            updated while windows are made.
        cache: The shard cache through which the shards are read; None reads `paths`.
    """

    order: Order
    rank: int
    paths: Sequence[str]
    origins: Sequence[str]
    shard_sizes: Ints
    byte_offsets: Ints
    shard_bytes: Ints
    is_checked: npt.NDArray[np.bool_]
    cache: OpenCache | None = None

    def dataset(
        self, place: Place, num_epochs: int | None, *, is_continued: bool = False
    ) -> tf.data.Dataset:
        """Returns the windows from a place on in `num_epochs`; None is endless.

        If `is_continued`, each iteration of the dataset has the next `num_epochs`, and
        the first iteration alone begins at `place`.
        """
        run = Run(order=self.order, rank=self.rank, begin=place)
        first, later = run.num_windows(num_epochs)
        if self.cache is not None:
            return _brought(self, self.cache, run, first, later, is_continued)
        if is_continued:
            windows = self._mapped(run, counters(first, later))
        else:
            windows = self._mapped(run, tf.data.Dataset.range(first))
        # The lengths of the next window are checked while this one is read.
        return windows.prefetch(1)

    def require_room(self) -> None:
        """Checks that the cache, if there is one, has room for the windows.

        Raises:
            ValueError: If it has not.
        """
        if self.cache is not None:
            run = Run(order=self.order, rank=self.rank, begin=Place())
            self.cache.reader(_Position(run, 0).upcoming).close()

    def _mapped(self, run: "Run", numbers: tf.data.Dataset) -> tf.data.Dataset:
        spec = self.spec()

        def read(counter: npt.NDArray[np.int64]) -> list[Any]:
            window = self.features(*run.window(int(counter)))
            return [window[name] for name in spec]

        def make(counter: tf.Tensor) -> dict[str, tf.Tensor]:
            # One Python call a window costs nothing next to reading its records.
            types = [item.dtype for item in spec.values()]
            items = tf.numpy_function(read, [counter], types, stateful=False)
            for item, known in zip(items, spec.values(), strict=True):
                item.set_shape(known.shape)
            return dict(zip(spec, items, strict=True))

        return numbers.map(tf.autograph.experimental.do_not_convert(make))

    def spec(self) -> dict[str, tf.TensorSpec]:
        """Returns the element_spec of a window."""
        extents = ("byte_offset", "num_records", "first_record")
        lists = (*extents, "record_byte_offset", "record_num_bytes", "epoch_seed")
        spec = {"path": tf.TensorSpec([None], tf.string)}
        if self.cache is not None:
            spec["origin"] = tf.TensorSpec([None], tf.string)
        spec |= {name: tf.TensorSpec([None], tf.int64) for name in lists}
        spec |= {name: tf.TensorSpec([], tf.int64) for name in ("skip", "take")}
        for name in ("is_real", "has_right_lengths"):
            spec[name] = tf.TensorSpec([], tf.bool)
        if self.order.shuffle != "none":
            spec["shuffle_seed"] = tf.TensorSpec([2], tf.int64)
        return spec

    def features(
        self, epoch: int, window: Window, paths: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Returns the features of a window of an epoch.

        Args:
            epoch: Number of the epoch.
            window: The window.
            paths: Path of each extent, which a shard cache has checked; None takes the
                path of its shard.
        """
        shard, ranges = by_shard(window.ranges, self.shard_sizes)
        records = ranges.records()
        offsets = self.byte_offsets[records]
        copies = window.copies_passed_on()
        seeds = epoch_seed(seed=self.order.seed, epoch=epoch, copy=copies)
        return {
            "path": self._paths[shard] if paths is None else _encoded(paths),
            "byte_offset": self.byte_offsets[ranges.first],
            "num_records": ranges.length,
            "first_record": ranges.first,
            "record_byte_offset": offsets,
            "record_num_bytes": self.num_bytes[records],
            "has_right_lengths": np.bool_(self.has_right_lengths(shard, ranges)),
            "skip": np.int64(window.skip),
            "take": np.int64(window.take),
            "epoch_seed": seeds,
            "is_real": np.bool_(window.real),
            "shuffle_seed": np.array(window.seed or (0, 0), np.int64),
        } | ({} if paths is None else {"origin": self._origins[shard]})

    def has_right_lengths(self, shard: Ints, ranges: RecordRanges) -> bool:
        """Returns whether all lengths are right; checks extents not checked before.

        Args:
            shard: int64 [num_ranges], the shard of each range.
            ranges: Ranges of records, each of one shard.
        """
        if self.cache is not None:
            return self.cache.are_sound(ranges)
        if self.is_checked[ranges.records()].all():
            return True
        bounds = np.cumsum(ranges.length)[:-1]
        for number, records in zip(
            shard, np.split(ranges.records(), bounds), strict=True
        ):
            if self.is_checked[records].all():
                continue
            places = self.byte_offsets[records], self.num_bytes[records]
            if not lengths.is_right(self.paths[number], *places):
                return False
            self.is_checked[records] = True
        return True

    @functools.cached_property
    def num_bytes(self) -> Ints:
        """int64 [num_records], size of each record with its header and footer."""
        ends = np.append(self.byte_offsets[1:], 0)
        sizes = self.shard_sizes
        filled = sizes > 0
        ends[np.cumsum(sizes)[filled] - 1] = self.shard_bytes[filled]
        return ends - self.byte_offsets

    @functools.cached_property
    def _paths(self) -> npt.NDArray[np.object_]:
        return _encoded(self.paths)

    @functools.cached_property
    def _origins(self) -> npt.NDArray[np.object_]:
        return _encoded(self.origins)


def _encoded(paths: Sequence[str]) -> npt.NDArray[np.object_]:
    return np.array([os.fsencode(path) for path in paths], object)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """The windows of a rank from a place on, numbered 0, 1, 2, ... through all epochs.

    Attributes:
        order: The order of the records.
        rank: The rank that reads the windows.
        begin: The place of window 0.
    """

    order: Order
    rank: int
    begin: Place

    def num_windows(self, num_epochs: int | None) -> tuple[int, int]:
        """Returns the windows of `num_epochs` from the place on, and in later ones."""
        if num_epochs is None:
            return tf.int64.max, tf.int64.max
        later = num_epochs * self._num_later
        return later and len(self._first) + later - self._num_later, later

    def window(self, counter: int) -> tuple[int, Window]:
        """Returns the epoch of the window with this number, and the window."""
        place, number = self.begin, counter
        if counter < len(self._first):
            number = self._first[counter]
        else:
            later, number = divmod(counter - len(self._first), self._num_later)
            place = Place(self.begin.epoch + 1 + later)
        return place.epoch, self.order.window(self.rank, place, number)

    @functools.cached_property
    def _first(self) -> range:
        return self.order.windows(self.rank, self.begin)

    @functools.cached_property
    def _num_later(self) -> int:
        return len(self.order.windows(self.rank, Place()))


def _brought(
    windows: Windows,
    cache: OpenCache,
    run: Run,
    first: int,
    later: int,
    is_continued: bool,
) -> tf.data.Dataset:
    """Returns the windows, each as soon as the cache has its records.

    The next window is brought while this one is read: a window stays until the one
    after the next is asked for, and the last ones until the end is asked for.
    """
    bounds = parts(first, later) if is_continued else lambda: (0, first)
    numbers, open_iterations = itertools.count(), dict[int, _Iteration]()

    def opened() -> Iterator[int]:
        number = next(numbers)
        open_iterations[number] = _Iteration(windows, cache, run, *bounds())
        try:
            yield number
        finally:
            del open_iterations[number]

    def ahead(number: tf.Tensor) -> tf.data.Dataset:
        found = tf.data.Dataset.from_generator(
            lambda number: open_iterations[int(number)],
            args=(number,),
            output_signature=windows.spec(),
        )
        return found.prefetch(1)

    # TensorFlow asks the outer dataset for its end after the last window was read. The
    # `prefetch` of the inner dataset makes it ask for the end before that.
    outer = tf.data.Dataset.from_generator(
        opened, output_signature=tf.TensorSpec([], tf.int64)
    )
    found = outer.flat_map(tf.autograph.experimental.do_not_convert(ahead))
    if is_continued:
        return found
    return found.apply(tf.data.experimental.assert_cardinality(first))


class _Iteration:
    """One iteration through a cache: a Python iterator over the features of windows.

    An iteration has a reader of its own, which is closed when `_brought` drops the
    iteration. This happens at the end, or when the iterator of the dataset is deleted.
    After an error the next call tries the same window again, so that none is lost.
    """

    def __init__(
        self, windows: Windows, cache: OpenCache, run: Run, begin: int, end: int
    ) -> None:
        self._windows, self._end = windows, end
        self._position = _Position(run, begin)
        self._reader = cache.reader(self._position.upcoming)

    def __iter__(self) -> "_Iteration":
        return self

    def __next__(self) -> dict[str, Any]:
        if self._position.counter == self._end:
            raise StopIteration
        epoch, window = self._position.window()
        paths = self._reader.next_window(window.ranges)
        self._position.counter += 1
        found = self._windows.features(epoch, window, paths)
        return {name: found[name] for name in self._windows.spec()}

    def __del__(self) -> None:
        if hasattr(self, "_reader"):
            self._reader.close()


@dataclasses.dataclass
class _Position:
    """A window of a run. It is no part of `_Iteration`, which no reader may keep alive.

    Attributes:
        run: The windows.
        counter: Number of the window that comes next.
    """

    run: Run
    counter: int

    def window(self) -> tuple[int, Window]:
        return self.run.window(self.counter)

    def upcoming(self) -> Iterator[RecordRanges]:
        """Yields the records of each window from this one on, without end."""
        for counter in itertools.count(self.counter):
            yield self.run.window(counter)[1].ranges
