"""Cache: keeps the results of earlier stages, which then run once a record.

In: windows, and the stages for reading and changing the records. Out: the same elements
in the same order, from the second time on read from a store. The store is addressed by
the number of the record. So seeds, orders, ranks and epochs are the same as without the
cache, a run may stop anywhere, and the ranks of a host share a folder.
"""

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any, Literal

import tensorflow as tf

import tfpipe
from tfpipe import host
from tfpipe.cache import cacheable, folders, store
from tfpipe.cache.filled import CachedElements, features
from tfpipe.errors import require_choice, require_local_path, settle_ints
from tfpipe.pipeline import Stage
from tfpipe.reading import building
from tfpipe.reading.source import TFRecordSource
from tfpipe.shard_cache import disk
from tfpipe.shards import index
from tfpipe.stages.basic import AssertCardinality, Example, Prefetch, keeps_count
from tfpipe.stages.interleave import RECORD_SPEC, Interleave
from tfpipe.stages.map import Map
from tfpipe.stages.traced import Op
from tfpipe.tuning import Tuning


@dataclasses.dataclass(frozen=True)
class Cache:
    """Keeps the results of earlier stages, in RAM or on a local disk.

    Element: record or example -> the same. The cache stands anywhere between
    `Interleave` and the first random op. After `Interleave()` it keeps encoded records;
    after `Map(Parse(...), CenterCrop(image_size=256, fraction=1.0))`, decoded images.

    Example:
        >>> source = tfpipe.TFRecordSource("DIR", "train", batch_size=8)
        >>> cache = tfpipe.Cache("ram")
        >>> stages = [tfpipe.Interleave(), cache, tfpipe.Batch(8)]
        >>> batches = list(tfpipe.Pipeline(source, stages).build())
        >>> cache.describe()
        'cache: 24 of 24 records there, in RAM'

    In the first epoch, a window is read before its first record is passed on. A
    damaged record is not kept but read again every time, so that `Interleave.faults`
    counts the record, and a repaired record is used.

    The identity of an op is its values and all code reached through imports. If an op
    depends on more, such as a file, give the op an attribute `version` and change the
    attribute with the result. An op with calls of Python, or with a state, is refused
    unless its attribute `repeatable` is True.

    Args:
        where: "ram", in this process, or "disk".
        directory: Folder on a disk of this host, for "disk" only. All ranks of the host
            and any number of caches share the folder; every cache has a folder of its
            own with a description of its content. /dev/shm is RAM shared by the ranks
            of a host. An unfinished cache survives the process, but not a restart of
            the host.
        max_bytes: Most bytes of all full caches in the directory, or of the cache in
            RAM, >= 1. Other caches in the directory are evicted, the least recently
            opened first. None is no limit.
        num_parallel_reads: Number of chunks of 32 elements read at the same time; None
            is filled from the tuning.

    Raises:
        ValueError: If an argument is wrong. When the pipeline is built: if a stage
            before the cache is random, depends on more than the record, or does not
            make one element from one record, or if the cache does not fit.
        OSError: When the pipeline is built, if the disk has not enough space.
    """

    where: Literal["ram", "disk"]
    directory: str | os.PathLike[str] | None = None
    _: dataclasses.KW_ONLY
    max_bytes: int | None = None
    num_parallel_reads: int | None = None
    # Open stores by fingerprint, for the next build. The ops are kept alive with them:
    # a fingerprint may hold the address of an op.
    _stores: dict[str, tuple[store.RecordStore, Sequence[Op]]] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        require_choice(self, "where", self.where, ("ram", "disk"))
        if (self.where == "disk") != (self.directory is not None):
            raise ValueError(
                'Cache needs a directory for "disk" and none for "ram", '
                f"got {self.where!r} and {self.directory!r}."
            )
        require_local_path(self, "directory", self.directory)
        settle_ints(self, ["max_bytes", "num_parallel_reads"], least=1, also=[None])

    def __getstate__(self) -> dict[str, Any]:
        # A copy opens its stores when a pipeline with the copy is built.
        return vars(self) | {"_stores": {}}

    def with_tuning(self, tuning: Tuning) -> "Cache":
        reads = self.num_parallel_reads or tuning.num_parallel_reads
        return dataclasses.replace(self, num_parallel_reads=reads)

    num_out = keeps_count

    def without_tuning(self) -> "Cache":
        return dataclasses.replace(self, num_parallel_reads=None)

    def describe(self) -> str:
        """Returns the number of stored records and the place of the stores.

        Before a pipeline with the cache is built, the text says "not open".
        """
        texts = [kept.describe() for kept, _ in self._stores.values()]
        return f"cache: {'; '.join(texts) or 'not open'}"

    def close(self) -> None:
        """Frees the memory and files of the cache; reading datasets then fail.

        TensorFlow keeps the Python functions of a dataset, and all they refer to, to
        the end of the process, even if the dataset was deleted.
        """
        for kept, _ in self._stores.values():
            kept.close()
        self._stores.clear()

    def around(self, run: building.RunFacts) -> Stage:
        """Returns the stage from windows to elements, in place of those before it.

        Raises:
            ValueError: If the source or a stage cannot be cached.
        """
        source, stages = run.source, run.stages
        interleave, ops = _upstream(source, stages)
        asserts = [stage for stage in stages if isinstance(stage, AssertCardinality)]

        def cached(windows: tf.data.Dataset) -> tf.data.Dataset:
            spec = cacheable.repeatable(ops, RECORD_SPEC)
            filled = CachedElements(
                store=self._open(source, ops, spec),
                source=source,
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
        """Returns the bytes of the full cache after the stages.

        Raises:
            ValueError: If the source, a stage or an op cannot be cached.
        """
        _, ops = _upstream(source, stages)
        spec = cacheable.repeatable(ops, RECORD_SPEC)
        return _content(source, ops, spec).num_bytes

    def _open(
        self, source: TFRecordSource, ops: Sequence[Op], spec: Example
    ) -> store.RecordStore:
        content = _content(source, ops, spec)
        if content.fingerprint not in self._stores:
            if self.directory is not None:
                cacheable.require_telling(ops)
                with disk.advised(self.directory):
                    opened: store.RecordStore = folders.open_store(
                        self.directory, content, max_bytes=self.max_bytes
                    )
            else:
                _require_ram(content.num_bytes, self.max_bytes)
                opened = store.RamStore(content.features, content.num_records)
            self._stores[content.fingerprint] = (opened, ops)
            # Only a folder may hold records already; a store in RAM is empty here.
            if source.rank == 0 and self.directory is not None:
                print(f"cache: {opened.describe()}", file=sys.stderr)
        return self._stores[content.fingerprint][0]


def _require_ram(need: int, max_bytes: int | None) -> None:
    if max_bytes is not None and need > max_bytes:
        raise ValueError(
            f"Cache.max_bytes must be >= {need} for this cache, got {max_bytes}."
        )
    if need > (left := host.ram_left()):
        raise ValueError(
            f"The cache needs {need} bytes of memory in this process, there are "
            f'{left}. Use Cache("disk", DIRECTORY), or a smaller image_size.'
        )


def _content(
    source: TFRecordSource, ops: Sequence[Op], spec: Example
) -> folders.CacheContent:
    string_bytes = sum(shard.num_bytes for shard in source.shards)
    if source.record_numbers is not None:
        sizes = source.split_index.spans.num_bytes(source.record_numbers)
        string_bytes = int(sizes.sum())
    return folders.CacheContent(
        made_of=_made_of(source, ops),
        features=features(spec),
        num_records=source.order.num_records,
        string_bytes=string_bytes,
    )


def _upstream(source: object, stages: Sequence[object]) -> tuple[Interleave, list[Op]]:
    """Returns the reading stage and all ops after it."""
    if not isinstance(source, TFRecordSource):
        raise ValueError(f"Cache needs a TFRecordSource, got {source!r}.")
    known = (Map, AssertCardinality, Prefetch)
    stages = building.interleaved(stages)
    if not stages or not isinstance(stages[0], Interleave):
        raise ValueError(f"Cache must come after Interleave, got {[*stages]}.")
    for stage in stages[1:]:
        if not isinstance(stage, known):
            raise ValueError(
                "Cache keeps one element for each record, so only Map, "
                "AssertCardinality and Prefetch may stand between Interleave and it, "
                f"got {stage!r}. Move it after Cache, or write it as an op of Map. A "
                "preset makes examples before batches with whole_batches=False."
            )
    maps = [stage for stage in stages if isinstance(stage, Map)]
    return stages[0], [op for stage in maps for op in stage.ops]


def _made_of(source: TFRecordSource, ops: Sequence[Op]) -> dict[str, Any]:
    """Returns all that decides the content but features and number of records."""
    chosen = {} if source.chosen is None else {"subset": source.chosen.digest}
    return chosen | {
        "split": source.split,
        "shards": index.digest(repr(source.shards)),
        # With its code: the text of an op that was edited is the same as before.
        "ops": [cacheable.made_by(op) for op in ops],
        "tfpipe": tfpipe.__version__,
        "tensorflow": tf.version.VERSION,
        "python": "{}.{}".format(*sys.version_info),
    }
