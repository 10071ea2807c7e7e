"""Places for a cache in a pipeline, their sizes, and the pipeline with the cache.

In: a pipeline. Out: `Placement`s, their sizes in bytes, and pipelines. The room `cache`
decides what a cache may hold: elements that are the same in every epoch, so no element
after a random op.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Literal

import tensorflow as tf

from tfpipe.cache.stage import Cache
from tfpipe.pipeline import Pipeline
from tfpipe.reading import building
from tfpipe.reading.source import TFRecordSource
from tfpipe.reading.state import State
from tfpipe.stages.basic import AssertCardinality
from tfpipe.stages.interleave import Interleave
from tfpipe.stages.map import Map, by_examples

# Relative difference of sizes below which two caches hold the same bytes.
_SAME = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """A cache at a place in a pipeline.

    Args:
        where: "ram" or "disk".
        num_ops: Number of ops of all maps before the cache; 0 keeps encoded records.
            With more, ops run on single examples, not on whole batches: a cache keeps
            one element for each record.
        directory: Folder of a cache on disk.
    """

    where: Literal["ram", "disk"]
    num_ops: int
    directory: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.directory is not None:  # a string, which JSON can hold
            object.__setattr__(self, "directory", os.fspath(self.directory))

    def __str__(self) -> str:
        what = (
            f"the result of {self.num_ops} ops" if self.num_ops else "encoded records"
        )
        return f"{what} in RAM" if self.where == "ram" else f"{what} on disk"

    @property
    def cache(self) -> Cache:
        """The cache as a stage."""
        return Cache(self.where, self.directory)


def of_pipeline(pipeline: Pipeline) -> Placement | None:
    """Returns the placement of the first cache of a pipeline, or None."""
    num_ops = 0
    for stage in pipeline.stages:
        if isinstance(stage, Cache):
            return Placement(
                where=stage.where, num_ops=num_ops, directory=stage.directory
            )
        num_ops += len(stage.ops) if isinstance(stage, Map) else 0
    return None


def caches(pipeline: Pipeline) -> list[Cache]:
    """Returns the caches among the stages of a pipeline."""
    return [stage for stage in pipeline.stages if isinstance(stage, Cache)]


def without_cache(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline without its caches."""
    stages = [stage for stage in pipeline.stages if not isinstance(stage, Cache)]
    return dataclasses.replace(pipeline, stages=stages)


def with_cache(pipeline: Pipeline, placement: Placement | None) -> Pipeline:
    """Returns the pipeline with a cache at that place and no other cache.

    A map becomes two maps if the cache stands between its ops. A map of whole batches
    becomes one of examples if a cache keeps the result of its ops.

    Raises:
        ValueError: If the pipeline has fewer ops than the placement says.
    """
    pipeline = without_cache(pipeline)
    if placement is None:
        return pipeline
    before, after = _parted(pipeline.stages, placement.num_ops)
    return dataclasses.replace(pipeline, stages=[*before, placement.cache, *after])


def sizes(pipeline: Pipeline) -> dict[int, int]:
    """Returns the numbers of ops after which a cache can pay, with its size in bytes.

    The places are before all ops, and after as many ops as possible, unless these ops
    only parse. Empty if the pipeline does not begin with the records of a
    TFRecordSource.
    """
    bare = without_cache(pipeline)
    encoded = _size(bare, 0)
    if not encoded:
        return {}
    maps = [stage for stage in by_examples(bare.stages) if isinstance(stage, Map)]
    num_ops = sum(len(stage.ops) for stage in maps)
    for number in range(num_ops, 0, -1):
        if size := _size(bare, number):
            # Elements of the same size are the same bytes, only parsed.
            same = abs(size / encoded - 1) < _SAME
            return {0: encoded} if same else {0: encoded, number: size}
    return {0: encoded}


def num_bytes(pipeline: Pipeline, num_ops: int) -> int:
    """Returns the size in bytes of a full cache after that many ops.

    Raises:
        ValueError: If no cache can stand there.
    """
    bare = without_cache(pipeline)
    before, _ = _parted(bare.stages, num_ops)
    return Cache("ram").num_bytes(bare.source, before)


def _size(pipeline: Pipeline, num_ops: int) -> int | None:
    try:
        return num_bytes(pipeline, num_ops)
    except ValueError:
        return None


def _parted(stages: Sequence[Any], num_ops: int) -> tuple[list[Any], list[Any]]:
    """Splits the stages after that many ops; a map becomes two if needed."""
    # A cache keeps whole records, not their places.
    stages = building.interleaved(stages)
    stages = by_examples(stages) if num_ops else stages
    before: list[Any] = []
    left = num_ops
    for number, stage in enumerate(stages):
        rest = list(stages[number:])
        if isinstance(stage, Map):
            if not left:
                return before, rest
            if left < len(stage.ops):
                head, tail = _part(stage, left)
                return [*before, head], [tail, *rest[1:]]
            left -= len(stage.ops)
        elif not left and not isinstance(stage, (Interleave, AssertCardinality)):
            return before, rest
        before.append(stage)
    if left:
        raise ValueError(
            f"num_ops must be at most the {num_ops - left} ops of all maps, got "
            f"{num_ops}."
        )
    return before, []


def _part(stage: Map, num_ops: int) -> tuple[Map, Map]:
    head, tail = stage.ops[:num_ops], stage.ops[num_ops:]
    own: Any = {"num_parallel_calls": stage.num_parallel_calls, "faults": stage.faults}
    return Map(*head, **own), Map(*tail, **own)


def of_first_window(pipeline: Pipeline, num_batches: int) -> Pipeline:
    """Returns the pipeline on the first batches of its source again and again.

    The cache is full after one pass, so a race shows its worth at once. A pipeline
    without a cache is returned unchanged.

    Args:
        pipeline: A pipeline.
        num_batches: Batches of the window, if the source's windows have so many.
    """
    source = pipeline.source
    if not caches(pipeline) or not isinstance(source, TFRecordSource):
        return pipeline
    values = {f.name: getattr(source, f.name) for f in dataclasses.fields(source)}
    size = min(source.window_size, num_batches * source.batch_size)
    first = _FirstWindow(**values | {"window_size": size})
    return dataclasses.replace(pipeline, source=first)


class _FirstWindow(TFRecordSource):
    def __call__(self, state: State, num_epochs: int | None) -> tf.data.Dataset:
        return super().__call__(state, 1).take(1).repeat()
