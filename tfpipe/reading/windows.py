"""Windows of a split as a dataset: the records that a rank reads next, in which order.

In: the order of the records, their files and byte offsets, and where to begin. Out: a
`tf.data.Dataset` of windows for `stages.Interleave`. Through a shard cache, a window
comes out when its records are on the local disk.
"""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe import errors
from tfpipe.reading.order import EpochPosition, Order, Window, epoch_seed
from tfpipe.shard_cache.metadata import DataVersion
from tfpipe.shard_cache.open_cache import OpenCache
from tfpipe.shards import records
from tfpipe.shards.ranges import RecordRanges, by_shard
from tfpipe.shards.records import Ints
from tfpipe.shards.spans import RecordSpans
from tfpipe.stages import basic
from tfpipe.stages.basic import as_it_is
from tfpipe.stages.iterations import drawn, parts


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Windows:
    """The windows of one rank; see `source.TFRecordSource` for an element.

    Attributes:
        order: The order of the records.
        rank: The rank that reads these windows.
        paths: Path of every shard.
        origins: Path or URL of every shard for messages; `paths` without a cache.
        shard_sizes: int64 [num_shards], records in each shard, chosen or not.
        spans: The byte offset and the size of each record in its shard.
        is_unchecked: bool [num_records], whether the length of the record may be wrong;
            updated while windows are made.
        mtimes: int64 [num_shards], time of each shard's last change in ns when its
            lengths were checked; updated with `is_unchecked`.
        cache: The shard cache through which the shards are read; None reads `paths`.
        version: The version of a data set that TensorFlow reads from its store: the
            store is asked for it before each window. None asks nothing.
    """

    order: Order
    rank: int
    paths: Sequence[str]
    origins: Sequence[str]
    shard_sizes: Ints
    spans: RecordSpans
    is_unchecked: npt.NDArray[np.bool_]
    mtimes: Ints
    cache: OpenCache | None = None
    version: DataVersion | None = None

    def dataset(
        self,
        begin: EpochPosition,
        num_epochs: int | None,
        *,
        is_continued: bool = False,
    ) -> tf.data.Dataset:
        """Returns the windows of `num_epochs` from a position on; None is endless.

        If `is_continued`, every iteration of the dataset has the next `num_epochs`, and
        only the first iteration begins at `begin`.
        """
        run = Run(order=self.order, rank=self.rank, begin=begin)
        first, later = run.num_windows(num_epochs)
        if self.cache is not None:
            bounds = parts(first, later) if is_continued else lambda: (0, first)
            windows = _brought(self, self.cache, run, bounds)
        else:
            read = functools.partial(self._read, run)
            windows = (
                drawn(first, later).flat_map(as_it_is(read))
                if is_continued
                else read(0, first)
            )
            # The lengths of the next window are checked while a window is read.
            windows = windows.prefetch(1)
        if is_continued:
            return windows
        count = tf.data.INFINITE_CARDINALITY if num_epochs is None else first
        return windows.apply(tf.data.experimental.assert_cardinality(count))

    def require_room(self) -> None:
        """Checks that the cache, if there is a cache, has room for the windows.

        Raises:
            ValueError: If the cache is too small.
        """
        if self.cache is not None:
            run = Run(order=self.order, rank=self.rank, begin=EpochPosition())
            self.cache.reader(_Position(run, 0).upcoming).close()

    def _read(self, run: "Run", begin: Any, end: Any) -> tf.data.Dataset:
        """Returns the windows from number `begin` to number `end` of a run.

        After an error the next call reads the same window again; `Dataset.map` would
        lose it. After MOST_TRIES errors the next window comes: damage and lost files
        stay, and a caller may pass over errors. Then all reads after the last window
        are errors: nobody takes the windows for all.
        """
        spec = self.spec()

        def read(state: Ints, call: np.int64, end: np.int64) -> list[Any]:
            counter, first_try = state.tolist()
            counter += (int(call) - first_try) // basic.MOST_TRIES
            if counter >= end:
                raise errors.TfpipeError(
                    "The epochs must end with all windows of records read, got windows "
                    f"that failed {basic.MOST_TRIES} times: see the errors before."
                )
            if self.version and (replaced := self.version.replaced()):
                raise replaced
            window = self.features(*run.window(counter))
            next_state = np.array([counter + 1, call + 1])
            return [next_state, *(window[name] for name in spec)]

        def step(state: tf.Tensor, call: tf.Tensor) -> tuple[Any, dict[str, tf.Tensor]]:
            # A Python call for a window costs nothing next to reading its records.
            types = [tf.int64, *(item.dtype for item in spec.values())]
            numbers = [state, call, tf.cast(end, tf.int64)]
            next_state, *items = tf.numpy_function(read, numbers, types, stateful=False)
            for item, item_spec in zip(items, spec.values(), strict=True):
                item.set_shape(item_spec.shape)
            next_state.set_shape([2])
            return next_state, dict(zip(spec, items, strict=True))

        # An error leaves the state as it is, and takes a number of `calls`.
        calls = tf.data.Dataset.range(tf.int64.max)
        start = tf.stack([tf.cast(begin, tf.int64), 0])
        return calls.scan(start, as_it_is(step)).take(end - begin)

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
            paths: Path of each extent, checked by a shard cache; None takes the path of
                the shard.
        """
        shard, ranges = by_shard(window.ranges, self.shard_sizes)
        record_ids = ranges.records()
        copies = window.copies_passed_on()
        seeds = epoch_seed(seed=self.order.seed, epoch=epoch, copy=copies)
        return {
            "path": _encoded(_at(self.paths, shard) if paths is None else paths),
            "byte_offset": self.spans.byte_offsets(ranges.first),
            "num_records": ranges.length,
            "first_record": ranges.first,
            "record_byte_offset": self.spans.byte_offsets(record_ids),
            "record_num_bytes": self.spans.num_bytes(record_ids),
            "has_right_lengths": np.bool_(self.has_right_lengths(shard, ranges)),
            "skip": np.int64(window.skip),
            "take": np.int64(window.take),
            "epoch_seed": seeds,
            "is_real": np.bool_(window.real),
            "shuffle_seed": np.array(window.seed or (0, 0), np.int64),
        } | ({} if paths is None else {"origin": _encoded(_at(self.origins, shard))})

    def has_right_lengths(self, shard: Ints, ranges: RecordRanges) -> bool:
        """Returns whether all lengths are right; checks the unchecked extents.

        Args:
            shard: int64 [num_ranges], the shard of each range.
            ranges: Ranges of records, every range within a shard.
        """
        if self.cache is not None:
            return self.cache.are_sound(ranges)
        record_ids = ranges.records()
        self._forget_changed(np.unique(shard))
        if not self.is_unchecked[record_ids].any():
            return True
        extents = np.split(record_ids, ranges.ends[:-1])
        for shard_index, extent in zip(shard, extents, strict=True):
            if not self.is_unchecked[extent].any():
                continue
            spans = self.spans.byte_offsets(extent), self.spans.num_bytes(extent)
            if not records.lengths_are_right(self.paths[shard_index], *spans):
                return False
            self.is_unchecked[extent] = False
        return True

    def _forget_changed(self, shards: Ints) -> None:
        """Takes the lengths of shards that were written meanwhile as unchecked."""
        ends = np.cumsum(self.shard_sizes)
        for shard in shards.tolist():
            path = self.paths[shard]
            changed = 0 if "://" in path else os.stat(path).st_mtime_ns
            if changed != self.mtimes[shard]:
                self.mtimes[shard] = changed
                first = ends[shard] - self.shard_sizes[shard]
                self.is_unchecked[first : ends[shard]] = True


def _at(paths: Sequence[str], shards: Ints) -> list[str]:
    # Not those of all shards: to encode 100,000 paths takes a tenth of a resumption.
    return [paths[shard] for shard in shards.tolist()]


def _encoded(paths: Sequence[str]) -> npt.NDArray[np.object_]:
    return np.array([os.fsencode(path) for path in paths], object)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """The windows of a rank from a position on, numbered 0, 1, 2, ... in all epochs.

    Attributes:
        order: The order of the records.
        rank: The rank that reads the windows.
        begin: The position of window 0.
    """

    order: Order
    rank: int
    begin: EpochPosition

    def num_windows(self, num_epochs: int | None) -> tuple[int, int]:
        """Returns the number of windows of `num_epochs` from `begin` on, and later."""
        if num_epochs is None:
            return tf.int64.max, tf.int64.max
        later = num_epochs * self._num_later
        return later and len(self._first) + later - self._num_later, later

    def window(self, counter: int) -> tuple[int, Window]:
        """Returns the epoch of window `counter`, and the window."""
        position = self.begin
        if counter < len(self._first):
            index = self._first[counter]
        else:
            later, index = divmod(counter - len(self._first), self._num_later)
            position = EpochPosition(self.begin.epoch + 1 + later)
        return position.epoch, self.order.window(self.rank, position, index)

    @functools.cached_property
    def _first(self) -> range:
        return self.order.windows(self.rank, self.begin)

    @functools.cached_property
    def _num_later(self) -> int:
        return len(self.order.windows(self.rank, EpochPosition()))


def _brought(
    windows: Windows,
    cache: OpenCache,
    run: Run,
    bounds: Callable[[], tuple[int, int]],
) -> tf.data.Dataset:
    """Returns a dataset of windows, each as soon as the cache has its records.

    While a window is read, the cache brings the next window. A window stays on the disk
    until the second window after it is asked for. The last windows stay until the end
    of the dataset is asked for.

    Args:
        windows: The windows.
        cache: Their cache.
        run: The order of the rank.
        bounds: Gives the first window of the next iteration, and the end.
    """
    keys, open_iterations = itertools.count(), dict[int, _Iteration]()

    def opened() -> Iterator[int]:
        key = next(keys)
        open_iterations[key] = _Iteration(windows, cache, run, *bounds())
        try:
            yield key
        finally:
            del open_iterations[key]

    def ahead(key: tf.Tensor) -> tf.data.Dataset:
        iteration = tf.data.Dataset.from_generator(
            lambda key: open_iterations[int(key)],
            args=(key,),
            output_signature=windows.spec(),
        )
        return iteration.prefetch(1)

    # Without `prefetch` in the inner dataset, TensorFlow would ask the outer dataset
    # for its end only after the last window was read.
    outer = tf.data.Dataset.from_generator(
        opened, output_signature=tf.TensorSpec([], tf.int64)
    )
    return outer.flat_map(as_it_is(ahead))


class _Iteration:
    """One iteration through a cache: a Python iterator over the features of windows.

    An iteration has a reader of its own. The reader is closed when `_brought` drops the
    iteration: at the end, or when the iterator of the dataset is deleted. After an
    error the next call tries the same window again, so that no window is lost.
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
        features = self._windows.features(epoch, window, paths)
        return {name: features[name] for name in self._windows.spec()}

    def __del__(self) -> None:
        if hasattr(self, "_reader"):
            self._reader.close()


@dataclasses.dataclass
class _Position:
    """The next window of a run.

    A reader keeps `upcoming` alive. A class of its own has the method, because a reader
    must not keep an `_Iteration` alive.

    Attributes:
        run: The windows.
        counter: Number of the next window.
    """

    run: Run
    counter: int

    def window(self) -> tuple[int, Window]:
        return self.run.window(self.counter)

    def upcoming(self) -> Iterator[RecordRanges]:
        """Yields the records of every window from the next window on, without end."""
        for counter in itertools.count(self.counter):
            yield self.run.window(counter)[1].ranges
