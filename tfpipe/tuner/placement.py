"""Where a cache may stand in a pipeline, what it would hold, and the pipeline with it.

In: a pipeline. Out: `Placement`s, their sizes in bytes, and pipelines. What a cache may
hold is for `cache` to say: the same in every epoch, so nothing after a random op.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Literal

import tensorflow as tf

from tfpipe.cache.stage import Cache
from tfpipe.pipeline import Pipeline
from tfpipe.reading.source import TFRecordSource
from tfpipe.reading.state import State
from tfpipe.stages.basic import AssertCardinality
from tfpipe.stages.interleave import Interleave
from tfpipe.stages.map import Map, Op


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """A cache at a place.

    Args:
        where: "ram" or "disk".
        num_ops: Ops of the maps that come before it; 0 keeps encoded records.
        directory: Folder of a cache on disk.
    """

    where: Literal["ram", "disk"]
    num_ops: int
    directory: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.directory is not None:  # as it is in a file of JSON
            object.__setattr__(self, "directory", os.fspath(self.directory))

    def __str__(self) -> str:
        what = (
            f"the result of {self.num_ops} ops" if self.num_ops else "encoded records"
        )
        return f"{what} in RAM" if self.where == "ram" else f"{what} on disk"

    @property
    def cache(self) -> Cache:
        """The stage."""
        return Cache(self.where, self.directory)


def of_pipeline(pipeline: Pipeline) -> Placement | None:
    """The placement of the cache that a pipeline has, if any."""
    num_ops = 0
    for stage in pipeline.stages:
        if isinstance(stage, Cache):
            return Placement(
                where=stage.where, num_ops=num_ops, directory=stage.directory
            )
        num_ops += len(stage.ops) if isinstance(stage, Map) else 0
    return None


def caches(pipeline: Pipeline) -> list[Cache]:
    """The caches among the stages of a pipeline."""
    return [stage for stage in pipeline.stages if isinstance(stage, Cache)]


def without_cache(pipeline: Pipeline) -> Pipeline:
    """The pipeline that computes everything in every epoch."""
    stages = [stage for stage in pipeline.stages if not isinstance(stage, Cache)]
    return dataclasses.replace(pipeline, stages=stages)


def with_cache(pipeline: Pipeline, placement: Placement | None) -> Pipeline:
    """The pipeline with its cache at a place, and no other one.

    A map whose ops it parts becomes two.

    Raises:
        ValueError: If there are not so many ops.
    """
    pipeline = without_cache(pipeline)
    if placement is None:
        return pipeline
    before, after = _parted(pipeline.stages, placement.num_ops)
    return dataclasses.replace(pipeline, stages=[*before, placement.cache, *after])


def num_cached_stages(pipeline: Pipeline, placement: Placement) -> int:
    """How many stages come before a cache at that place; one that it parts does not."""
    _, after = _parted(pipeline.stages, placement.num_ops)
    return len(pipeline.stages) - len(after)


def parted_map(pipeline: Pipeline, placement: Placement | None) -> int | None:
    """Which map a cache at that place makes two of, counted from 0; None for none."""
    left = 0 if placement is None else placement.num_ops
    for number, stage in enumerate(s for s in pipeline.stages if isinstance(s, Map)):
        if 0 < left < len(stage.ops):
            return number
        left -= len(stage.ops)
    return None


def sizes(pipeline: Pipeline) -> dict[int, int]:
    """Numbers of ops after which a cache can pay, and what a full one has in bytes.

    After none, and after as many as possible, unless these only parse. Empty if the
    pipeline does not begin with the records of a TFRecordSource.
    """
    bare = without_cache(pipeline)
    encoded = _size(bare, 0)
    if not encoded:
        return {}
    maps = [stage for stage in bare.stages if isinstance(stage, Map)]
    num_ops = sum(len(stage.ops) for stage in maps)
    for number in range(num_ops, 0, -1):
        if size := _size(bare, number):
            # Of the same size it is the same bytes, only parsed.
            same = abs(size / encoded - 1) < _SAME
            return {0: encoded} if same else {0: encoded, number: size}
    return {0: encoded}


def num_bytes(pipeline: Pipeline, num_ops: int) -> int:
    """What a full cache after that many ops has.

    Raises:
        ValueError: If there can be none.
    """
    bare = without_cache(pipeline)
    before, _ = _parted(bare.stages, num_ops)
    return Cache("ram").num_bytes(bare.source, before)


_SAME = 0.02


def _size(pipeline: Pipeline, num_ops: int) -> int | None:
    try:
        return num_bytes(pipeline, num_ops)
    except ValueError:
        return None


def _parted(stages: Sequence[Any], num_ops: int) -> tuple[list[Any], list[Any]]:
    """The stages up to and with that many ops, and those after."""
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
    def made(ops: Sequence[Op]) -> Map:
        return Map(
            *ops, num_parallel_calls=stage.num_parallel_calls, faults=stage.faults
        )

    return made(stage.ops[:num_ops]), made(stage.ops[num_ops:])


def of_first_window(pipeline: Pipeline) -> Pipeline:
    """The pipeline on the first window of its source again and again, if it caches.

    Its cache is full after one pass, so that what it is worth shows at once.
    """
    source = pipeline.source
    if not caches(pipeline) or not isinstance(source, TFRecordSource):
        return pipeline
    values = {f.name: getattr(source, f.name) for f in dataclasses.fields(source)}
    return dataclasses.replace(pipeline, source=_FirstWindow(**values))


class _FirstWindow(TFRecordSource):
    def __call__(self, state: State, num_epochs: int | None) -> tf.data.Dataset:
        return super().__call__(state, 1).take(1).repeat()
