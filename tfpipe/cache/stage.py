"""Cache: what the stages before it make of each record is made once, then kept.

In: windows, and the stages that would read and change their records. Out: the very same
elements in the very same order, those that are kept from the store. What is kept goes
by the number of the record, so seeds, orders, ranks and epochs stay what they are
without the cache, a run may stop anywhere, and ranks of one host share a folder.
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
from tfpipe.cache.filled import Filled, features
from tfpipe.errors import settle_ints
from tfpipe.pipeline import Stage
from tfpipe.reading.source import TFRecordSource
from tfpipe.shards import index
from tfpipe.stages.basic import AssertCardinality, Example, Prefetch
from tfpipe.stages.interleave import RECORD_SPEC, Interleave
from tfpipe.stages.map import Map, Op
from tfpipe.tuning import Tuning


@dataclasses.dataclass(frozen=True)
class Cache:
    """Keeps what the stages before it make of each record, in RAM or on local disk.

    Element: record or example -> the same. Stands anywhere between `Interleave` and the
    first random op: after `Interleave()` it keeps encoded records, after
    `Map(Parse(...), CenterCrop(image_size=256, fraction=1.0))` decoded images.

    The first epoch reads each window to its end before passing it on. A damaged
    record is not kept but looked for each time, so that `Interleave.faults` counts it,
    and one that was repaired is taken.

    What an op does goes by its values and by the code that it reaches through imports.
    Where that is not all, as with a file that it reads, give the op an attribute
    `version`, and change that with what the op does. An op that calls Python, or that
    has a state, is refused unless its attribute `repeatable` is True.

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
            before it is random, depends on more than the record, or does not make one
            element of one record, or if the cache does not fit.
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

    def with_tuning(self, tuning: Tuning) -> "Cache":
        reads = self.num_parallel_reads or tuning.num_parallel_reads
        return dataclasses.replace(self, num_parallel_reads=reads)

    def num_out(self, num_in: int) -> int:
        """Returns the number of elements that come out for `num_in` elements."""
        return num_in

    def without_tuning(self) -> "Cache":
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
            spec = cacheable.repeatable(ops, RECORD_SPEC)
            filled = Filled(
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
        """What it will have when it is full, after those stages.

        Raises:
            ValueError: As `around` and what it gives.
        """
        _, ops = _upstream(source, stages)
        spec = cacheable.repeatable(ops, RECORD_SPEC)
        return _content(source, ops, spec).num_bytes

    def _open(
        self, source: TFRecordSource, ops: Sequence[Op], spec: Example
    ) -> store.Store:
        content = _content(source, ops, spec)
        if content.fingerprint not in self._stores:
            opened = _open_anew(self, content, ops)
            self._stores[content.fingerprint] = (opened, ops)
            # One in RAM is always empty here; how full a folder is was not known.
            if source.rank == 0 and self.directory is not None:
                print(f"cache: {opened.describe()}", file=sys.stderr)
        return self._stores[content.fingerprint][0]


def _open_anew(
    cache: Cache, content: folders.Content, ops: Sequence[Op]
) -> store.Store:
    """A store of its own for a cache, in RAM, or as far as its folder is filled.

    Raises:
        ValueError: If it does not fit, or an op does not tell what it does.
        OSError: If the disk has not enough space.
    """
    if cache.directory is not None:
        cacheable.require_telling(ops)
        return folders.open_store(cache.directory, content, max_bytes=cache.max_bytes)
    need, left = content.num_bytes, host.ram_left()
    if cache.max_bytes is not None and need > cache.max_bytes:
        raise ValueError(
            f"Cache.max_bytes must be >= {need} for this cache, got {cache.max_bytes}."
        )
    if need > left:
        raise ValueError(
            f"The cache needs {need} bytes of memory in this process, there are "
            f'{left}. Use Cache("disk", DIRECTORY), or a smaller image_size.'
        )
    return store.RamStore(content.features, content.num_records)


def _content(
    source: TFRecordSource, ops: Sequence[Op], spec: Example
) -> folders.Content:
    return folders.Content(
        made_of=_made_of(source, ops),
        features=features(spec),
        num_records=source.order.num_records,
        string_bytes=sum(shard.num_bytes for shard in source.shards),
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


def _made_of(source: TFRecordSource, ops: Sequence[Op]) -> dict[str, Any]:
    """All that decides what is kept, but the features and the number of records."""
    return {
        "split": source.split,
        "shards": index.digest(repr(source.shards)),
        # An op that was edited prints as before.
        "ops": [cacheable.made_by(op) for op in ops],
        "tfpipe": tfpipe.__version__,
        "tensorflow": tf.version.VERSION,
        "python": "{}.{}".format(*sys.version_info),
    }
