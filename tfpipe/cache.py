"""Cache: what the stages before it make of each record is made once, then kept.

In: windows, and the stages that would read and change their records. Out: the very same
elements in the very same order, those that are kept from the store. What is kept goes
by the number of the record, so seeds, orders, ranks and epochs stay what they are
without the cache, a run may stop anywhere, and ranks of one host share a folder.
"""

import dataclasses
import functools
import os
import sys
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import tensorflow as tf

import tfpipe
from tfpipe import errors, host, index, philox, repeatable, store, store_folder
from tfpipe.arguments import settle_ints
from tfpipe.pipeline import Stage
from tfpipe.source import TFRecordSource
from tfpipe.stages import (
    RECORD_SPEC,
    AssertCardinality,
    Example,
    Interleave,
    Map,
    Op,
    Prefetch,
)
from tfpipe.tuning import Tuning

Array = npt.NDArray[Any]

# Records that go to and from the store in one call.
_CHUNK = 32


@dataclasses.dataclass(frozen=True)
class Cache:
    """Keeps what the stages before it make of each record, in RAM or on local disk.

    Element: record or example -> the same. Stands anywhere between `Interleave` and the
    first random op: after `Interleave()` it keeps encoded records, after
    `Map(Parse(...), CenterCrop(image_size=256, fraction=1.0))` decoded images.

    The first epoch reads each window to its end before passing it on. A damaged
    record is not kept but looked for each time, so that `Interleave.faults` counts it.

    Args:
        where: "ram", in this process, or "disk".
        directory: Folder on a disk of this host, for all its ranks and for any number
            of caches, each in a folder of its own that tells what it was made of;
            /dev/shm is RAM that the ranks of a host share. An unfinished cache outlives
            the process, but not the boot.
        max_bytes: The most that all caches in the directory, or this one in RAM, may
            have when full; others there are evicted, the least recently used first.
        num_parallel_reads: Chunks of 32 elements read at the same time.

    Raises:
        ValueError: If an argument is wrong; when the pipeline is built, if a stage
            before it is random or does not make one element of one record, or if the
            cache does not fit.
        OSError: When the pipeline is built, if the disk has not enough space.
    """

    where: Literal["ram", "disk"]
    directory: str | os.PathLike[str] | None = None
    _: dataclasses.KW_ONLY
    max_bytes: int | None = None
    num_parallel_reads: int | None = None
    # Open stores by fingerprint, for the next build; with what the fingerprint is of.
    _stores: dict[str, tuple[store.Store, Sequence[Op]]] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.where not in ("ram", "disk"):
            raise ValueError(
                f'Cache.where must be "ram" or "disk", got {self.where!r}.'
            )
        if (self.where == "disk") != (self.directory is not None):
            raise ValueError(
                'Cache needs a directory for "disk" and none for "ram", '
                f"got {self.where!r} and {self.directory!r}."
            )
        settle_ints(self, ["max_bytes", "num_parallel_reads"], least=1, also=[None])

    def tuned(self, tuning: Tuning) -> "Cache":
        reads = self.num_parallel_reads or tuning.num_parallel_reads
        return dataclasses.replace(self, num_parallel_reads=reads)

    def opened(self) -> "Cache":
        return dataclasses.replace(self, num_parallel_reads=None)

    def describe(self) -> str:
        """How full it is and where; "not open" before a pipeline with it is built."""
        texts = [kept.describe() for kept, _ in self._stores.values()]
        return f"cache: {'; '.join(texts) or 'not open'}"

    def close(self) -> None:
        """Gives back what it holds in this process; datasets that read it then fail.

        TensorFlow keeps the Python functions of a dataset, and so what they hold, to
        the end of the process, however soon the dataset is gone.
        """
        for kept, _ in self._stores.values():
            kept.close()
        self._stores.clear()

    def around(self, source: Any, stages: Sequence[object]) -> Stage:
        """The stage from windows to elements, in place of `stages` and this one.

        Args:
            source: Of the windows, a `TFRecordSource`.
            stages: Those before this one.

        Raises:
            ValueError: If the source or a stage is none that can be cached.
        """
        interleave, ops = _upstream(source, stages)
        asserts = [stage for stage in stages if isinstance(stage, AssertCardinality)]

        def cached(windows: tf.data.Dataset) -> tf.data.Dataset:
            spec = repeatable.repeatable(ops, RECORD_SPEC)
            filled = _Filled(
                store=self._open(source, ops, spec),
                interleave=interleave,
                maps=[stage for stage in stages if isinstance(stage, Map)],
                spec=spec,
            )
            dataset = filled(windows, self.num_parallel_reads)
            for stage in asserts:
                dataset = stage(dataset)
            return dataset

        return cached

    def num_bytes(self, source: Any, stages: Sequence[object]) -> int:
        """What it will have when it is full, after those stages.

        Raises:
            ValueError: As `around` and what it gives.
        """
        _, ops = _upstream(source, stages)
        spec = repeatable.repeatable(ops, RECORD_SPEC)
        return _content(source, ops, spec).num_bytes

    def _open(
        self, source: TFRecordSource, ops: Sequence[Op], spec: Example
    ) -> store.Store:
        content = _content(source, ops, spec)
        if content.fingerprint not in self._stores:
            opened = self._open_anew(content, ops)
            self._stores[content.fingerprint] = (opened, ops)
            # One in RAM is always empty here; how full a folder is was not known.
            if source.rank == 0 and self.directory is not None:
                print(f"cache: {opened.describe()}", file=sys.stderr)
        return self._stores[content.fingerprint][0]

    def _open_anew(
        self, content: store_folder.Content, ops: Sequence[Op]
    ) -> store.Store:
        if self.directory is not None:
            repeatable.require_telling(ops)
            return store_folder.open_store(
                self.directory, content, max_bytes=self.max_bytes
            )
        need, left = content.num_bytes, host.ram_left()
        if self.max_bytes is not None and need > self.max_bytes:
            raise ValueError(
                f"Cache.max_bytes must be >= {need} for this cache, got "
                f"{self.max_bytes}."
            )
        if need > left:
            raise ValueError(
                f"The cache needs {need} bytes of memory in this process, there are "
                f'{left}. Use Cache("disk", DIRECTORY), or a smaller image_size.'
            )
        return store.RamStore(content.features, content.num_records)


def _content(
    source: TFRecordSource, ops: Sequence[Op], spec: Example
) -> store_folder.Content:
    shards = source.index.splits[source.split]
    return store_folder.Content(
        made_of=_made_of(source, ops),
        features=_features(spec),
        num_records=source.order.num_records,
        string_bytes=sum(shard.num_bytes for shard in shards),
    )


def _upstream(source: object, stages: Sequence[object]) -> tuple[Interleave, list[Op]]:
    """The reading stage and all ops after it."""
    if not isinstance(source, TFRecordSource):
        raise ValueError(f"Cache needs a TFRecordSource, got {source!r}.")
    known = (Map, AssertCardinality, Prefetch)
    if not stages or not isinstance(stages[0], Interleave):
        raise ValueError(f"Cache must come after Interleave, got {[*stages]}.")
    for stage in stages[1:]:
        if not isinstance(stage, known):
            raise ValueError(
                "Cache keeps one element for each record, so only Map, "
                "AssertCardinality and Prefetch may stand between Interleave and it, "
                f"got {stage!r}. Move it after Cache, or write it as an op of Map."
            )
    maps = [stage for stage in stages if isinstance(stage, Map)]
    return stages[0], [op for stage in maps for op in stage.ops]


def _features(spec: Example) -> list[store.Feature]:
    """What is to be kept of an element."""
    features = []
    for name, item in sorted(spec.items()):
        if name in repeatable.OF_WINDOW:
            continue
        if not item.shape.is_fully_defined() or (
            item.dtype == tf.string and item.shape.rank
        ):
            raise ValueError(
                f"Cache needs numbers of fixed shape, or one string; got {name}: "
                f"{item}. Give all images one size before it, or cache them encoded."
            )
        dtype = np.dtype(item.dtype.as_numpy_dtype)
        features.append(store.Feature(name, dtype, tuple(item.shape)))
    return features


def _made_of(source: TFRecordSource, ops: Sequence[Op]) -> dict[str, Any]:
    """All that decides what is kept, but the features and the number of records."""
    shards = source.index.splits[source.split]
    return {
        "split": source.split,
        "shards": index.digest(repr(shards)),
        "ops": [repr(op) for op in ops],
        # An op that was edited prints as before.
        "code": [repeatable.code_digest(op) for op in ops],
        "tfpipe": tfpipe.__version__,
        "tensorflow": tf.version.VERSION,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Filled:
    """Windows -> elements: makes what is missing of a window, then takes all of it."""

    store: store.Store
    interleave: Interleave
    maps: Sequence[Map]
    spec: Example

    def __call__(
        self, windows: tf.data.Dataset, num_parallel_reads: int | None
    ) -> tf.data.Dataset:
        # The next window is made while the elements of one are taken.
        records = windows.flat_map(self._window).prefetch(1).unbatch()
        chunks = records.batch(_CHUNK).map(
            self._take, num_parallel_calls=num_parallel_reads, deterministic=True
        )
        return chunks.unbatch()

    def _window(self, window: Example) -> tf.data.Dataset:
        """One element: the records of the window, once all of them are there."""
        missing = self._missing(window)
        dataset = tf.data.Dataset.from_tensors(missing)
        dataset = dataset.take(tf.cast(missing["take"] > 0, tf.int64))
        # What stands in for a damaged record is there under its own number.
        dataset = self.interleave(dataset).filter(lambda record: record["is_real"])
        for stage in self.maps:
            dataset = stage(dataset)
        put = dataset.batch(_CHUNK).map(self._put).filter(lambda _: False)
        return put.concatenate(
            tf.data.Dataset.from_tensors(window).map(self._passed_on)
        )

    def _missing(self, window: Example) -> Example:
        """The window of those records that are not in the store, each once."""
        extent, offset, count, first, offsets = tf.numpy_function(
            self._find_missing,
            [
                window["num_records"],
                window["first_record"],
                window["record_byte_offset"],
            ],
            [tf.int64] * 5,
        )
        return {
            "path": tf.gather(window["path"], tf.ensure_shape(extent, [None])),
            "byte_offset": tf.ensure_shape(offset, [None]),
            "num_records": tf.ensure_shape(count, [None]),
            "first_record": tf.ensure_shape(first, [None]),
            "record_byte_offset": tf.ensure_shape(offsets, [None]),
            "skip": tf.zeros([], tf.int64),
            "take": tf.size(offsets, tf.int64),
            "is_real": tf.constant(True),
            "epoch_seed": window["epoch_seed"],
        }

    def _find_missing(
        self, num_records: Array, first_record: Array, offsets: Array
    ) -> tuple[Array, ...]:
        records = _record_ids(num_records, first_record)
        chosen = self.store.have[records] == 0
        if self.interleave.faults is not None and chosen.any():
            # One that is sound, for those that are damaged each time.
            chosen[np.flatnonzero(~chosen)[:1]] = True
        positions = np.flatnonzero(chosen)
        _, once = np.unique(records[positions], return_index=True)
        positions = positions[np.sort(once)]
        records, offsets = records[positions], offsets[positions]
        extent = np.repeat(np.arange(len(num_records)), num_records)[positions]
        begins = np.diff(records, prepend=-2) != 1
        begins |= np.diff(extent, prepend=-1) != 0
        starts = np.flatnonzero(begins)
        count = np.diff(starts, append=len(records))
        return extent[starts], offsets[starts], count, records[starts], offsets

    def _put(self, batch: Example) -> Example:
        columns = [batch[feature.name] for feature in _features(self.spec)]

        def put(records: Array, *columns: Array) -> Array:
            self.store.put(records, columns)
            return records

        records = tf.numpy_function(put, [batch["record_id"], *columns], tf.int64)
        return {
            "record_id": tf.ensure_shape(records, [None]),
            "is_real": tf.zeros([0], tf.bool),
            "epoch_seed": tf.zeros([0], tf.int64),
        }

    def _passed_on(self, window: Example) -> Example:
        seed = window.get("shuffle_seed", tf.zeros([2], tf.int64))
        may_lack = self.interleave.faults is not None
        records, is_real = tf.numpy_function(
            functools.partial(_find_passed_on, self.store, may_lack),
            [window["num_records"], window["first_record"], window["is_real"], seed],
            (tf.int64, tf.bool),
        )
        start, stop = window["skip"], window["skip"] + window["take"]
        return {
            "record_id": tf.ensure_shape(records, [None])[start:stop],
            "is_real": tf.ensure_shape(is_real, [None])[start:stop],
            "epoch_seed": tf.fill([window["take"]], window["epoch_seed"]),
        }

    def _take(self, records: Example) -> Example:
        features = _features(self.spec)
        columns = tf.numpy_function(
            self.store.get,
            [records["record_id"]],
            [self.spec[feature.name].dtype for feature in features],
        )
        batch = {
            feature.name: tf.ensure_shape(column, [None, *feature.shape])
            for feature, column in zip(features, columns, strict=True)
        }
        seed = tf.stack([records["epoch_seed"], records["record_id"]], 1)
        batch |= {**records, "seed": seed}
        if "mask" in self.spec:
            batch["mask"] *= tf.cast(records["is_real"], batch["mask"].dtype)
        return {name: batch[name] for name in self.spec}


def _record_ids(num_records: Array, first_record: Array) -> Array:
    starts = first_record - (np.cumsum(num_records) - num_records)
    return np.repeat(starts, num_records) + np.arange(num_records.sum())


def _find_passed_on(
    kept: store.Store,
    may_lack: bool,
    num_records: Array,
    first_record: Array,
    is_real: Array,
    seed: Array,
) -> tuple[Array, Array]:
    records = _record_ids(num_records, first_record)
    sound = kept.have[records] != 0
    good = np.flatnonzero(sound)
    if not sound.all() and (not may_lack or not len(good)):
        raise errors.BadRecordError(
            f"{(~sound).sum()} records of a window could not be made."
        )
    # As in `faults`: the next sound one stands in, or at the end the first.
    stand_in = good[np.searchsorted(good, np.arange(len(sound))) % len(good)]
    order: Any = ...
    if seed.any():
        order = philox.shuffled(len(sound), tuple(seed.tolist()))
    return records[stand_in][order], sound[order] & is_real
