"""The settings that a tuner may choose from, within budgets.

In: a pipeline, the size of its batches, and a budget. Out: `Setting`s: all knobs left
to AUTOTUNE, or the most calls, with a cache or without; and the memory of a setting.
"""

import dataclasses
import math
import os
from collections.abc import Mapping

from tfpipe import errors, host
from tfpipe.cache.stage import Cache
from tfpipe.pipeline import Pipeline
from tfpipe.reading.source import TFRecordSource
from tfpipe.stages.basic import Batch, Prefetch
from tfpipe.stages.map import Map
from tfpipe.stages.shuffle import Shuffle
from tfpipe.tuner import placement
from tfpipe.tuner.placement import Placement
from tfpipe.tuning import AUTOTUNE, Tuning, without_tuning

_MOST_CALLS = 4  # calls of a map for a thread
_FIRST_DEPTH = 2  # batches ahead, where AUTOTUNE begins


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """The part of its host that a process may use.

    Example:
        >>> from tfpipe.tuner.space import Budget
        >>> budget = Budget(num_threads=4, ram_bytes=10**9)
        >>> budget.any_order
        False

    Args:
        num_threads: Threads of the pipeline's own pool.
        ram_bytes: Bytes of memory for buffers and caches.
        disk_bytes: Bytes for a cache in `cache_dir`, which all ranks of the host share.
        cache_dir: Folder for a cache on a disk of the host; None allows no such cache.
        any_order: Whether elements may come in the order in which they become ready,
            see `Tuning.deterministic`.
    """

    num_threads: int
    ram_bytes: int
    disk_bytes: int = 0
    cache_dir: str | os.PathLike[str] | None = None
    any_order: bool = False

    def __post_init__(self) -> None:
        errors.settle_ints(self, ["num_threads", "ram_bytes"], least=1)
        errors.settle_ints(self, ["disk_bytes"], least=0)
        errors.settle_bools(self, "any_order")
        errors.require_local_path(self, "cache_dir", self.cache_dir)
        if bool(self.disk_bytes) != (self.cache_dir is not None):
            raise ValueError(
                "Budget must have both disk_bytes and cache_dir or neither, got "
                f"{self.disk_bytes} and {self.cache_dir}."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """A point of the space: a tuning, and where a cache stands, if any.

    Example:
        >>> from tfpipe.tuner.space import Setting, opened
        >>> setting = Setting(tuning=tfpipe.Tuning(prefetch_buffer_size=2))
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4)
        >>> setting.of(opened(pipeline)).tuning.prefetch_buffer_size
        2
    """

    tuning: Tuning
    cache: Placement | None = None

    def __post_init__(self) -> None:
        errors.require_kind(self, "tuning", self.tuning, Tuning)
        errors.require_kind(self, "cache", self.cache, Placement, or_none=True)

    def of(self, pipeline: Pipeline) -> Pipeline:
        """Returns a pipeline from `opened` with the setting."""
        placed, tuning = placement.with_cache(pipeline, self.cache), self.tuning
        calls = tuning.num_parallel_maps
        is_map = [
            isinstance(s, Map) for s in placed.stages if isinstance(s, Map | Cache)
        ]
        num_maps = sum(isinstance(stage, Map) for stage in pipeline.stages)
        if isinstance(calls, tuple) and sum(is_map) > num_maps:
            # The cache parts a map: its number is that of both parts.
            at = is_map.index(False)
            calls = calls[:at] + calls[at - 1 :]
            tuning = dataclasses.replace(tuning, num_parallel_maps=calls)
        return dataclasses.replace(placed, tuning=tuning)


def of_pipeline(pipeline: Pipeline) -> Setting:
    """Returns the tuning of a pipeline and its cache as a setting."""
    return Setting(tuning=pipeline.tuning, cache=placement.of_pipeline(pipeline))


def excess(pipeline: Pipeline, budget: Budget) -> str:
    """Says how a pipeline exceeds a budget; empty if it does not.

    Its threads count, and the sizes of its caches when they are full. A cache on disk
    is allowed if the budget has no disk_bytes, since its owner chose the folder.
    """
    threads = pipeline.tuning.private_threadpool_size or host.num_cores()
    if threads > budget.num_threads:
        own = errors.count_of(threads, "thread")
        return f"it has {own}, at most {budget.num_threads} allowed"
    for position, stage in enumerate(pipeline.stages):
        if not isinstance(stage, Cache):
            continue
        most = budget.ram_bytes if stage.where == "ram" else budget.disk_bytes
        size = stage.num_bytes(pipeline.source, pipeline.stages[:position])
        if size > most and (stage.where == "ram" or most):
            least, limit = f"{size / 1e6:,.0f} MB", f"{most / 1e6:,.0f}"
            return f"its cache needs {least}, at most {limit} allowed"
    return ""


def opened(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline without tuning: no cache, no knob of a stage set.

    A Prefetch is added at the end if there is none.

    Example:
        >>> from tfpipe.tuner.space import opened
        >>> pipeline = tfpipe.Pipeline(
        ...     tfpipe.TFRecordSource("DIR", "train"), [tfpipe.Interleave()]
        ... )
        >>> opened(pipeline).stages[-1]
        Prefetch(buffer_size=None)
    """
    errors.require_kind("", "pipeline", pipeline, Pipeline)
    stages = without_tuning(placement.without_cache(pipeline).stages)
    if not stages or not isinstance(stages[-1], Prefetch):
        stages.append(Prefetch())
    return dataclasses.replace(pipeline, stages=stages)


def with_steady_buffers(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline with a fixed depth for every Prefetch that AUTOTUNE sets.

    The depth is the first depth of AUTOTUNE. The fixed Prefetch also replaces the
    prefetch that tf.data adds to a dataset without a prefetch at its end. AUTOTUNE
    doubles a buffer that was full and then is empty, as in every turn of a race. When a
    consumer reads without pause, the buffer is never full and keeps its depth.
    """
    stages = [
        Prefetch(buffer_size=_FIRST_DEPTH)
        if isinstance(stage, Prefetch) and stage.buffer_size == AUTOTUNE
        else stage
        for stage in pipeline.tuned_stages()
    ]
    if not stages or not isinstance(stages[-1], Prefetch):
        stages.append(Prefetch(buffer_size=_FIRST_DEPTH))
    return dataclasses.replace(pipeline, stages=stages)


def autotuned(budget: Budget) -> Setting:
    """Returns the setting with all knobs left to AUTOTUNE, within the budget."""
    return Setting(
        tuning=Tuning(
            private_threadpool_size=budget.num_threads,
            ram_budget_bytes=budget.ram_bytes,
        )
    )


def with_most_calls(
    budget: Budget, batch_bytes: int, *, cache: Placement | None = None
) -> Setting:
    """Returns the setting with four calls of a map for a thread.

    More calls than threads make up for their way from thread to thread, which costs
    more than elements of microseconds. After a cache the map may be the only costly
    stage; before a cache it is idle once the cache is full. A map of batches has at
    most a call for a thread, see `Tuning.num_parallel_maps`.

    Args:
        budget: The budget of the pipeline.
        batch_bytes: Bytes of a batch. With a cache two batches are made ahead, if
            the memory holds eight.
        cache: Where a cache stands; None for no cache.
    """
    is_ahead = cache is not None and 8 * batch_bytes <= budget.ram_bytes
    tuning = dataclasses.replace(
        autotuned(budget).tuning,
        num_parallel_maps=_MOST_CALLS * budget.num_threads,
        prefetch_buffer_size=2 if is_ahead else 1,
    )
    return Setting(tuning=tuning, cache=cache)


def words(setting: Setting) -> str:
    """Returns the knobs with another value than the default, in words."""
    default = Tuning()
    chosen = [
        f"{field.name}={getattr(setting.tuning, field.name)}"
        for field in dataclasses.fields(Tuning)
        if getattr(setting.tuning, field.name) != getattr(default, field.name)
    ]
    cache = [] if setting.cache is None else [f"a cache of {setting.cache}"]
    return ", ".join(chosen + cache)


def held_bytes(
    pipeline: Pipeline,
    budget: Budget,
    sizes: Mapping[int, int],
    *,
    batch_bytes: int,
    batch_size: int,
) -> int:
    """Returns the most bytes in the buffers beside a cache.

    The buffers hold two windows of encoded records, two groups of each Shuffle, an
    example or a batch for each call of each map, and two batches ahead.

    Args:
        pipeline: The pipeline without tuning, see `opened`.
        budget: The budget of the pipeline.
        sizes: Bytes of a full cache, see `placement.sizes`.
        batch_bytes: Bytes of a batch.
        batch_size: Examples in a batch.
    """
    source = pipeline.source
    if not sizes or not isinstance(source, TFRecordSource):
        return 0
    num_records = source.order.num_records
    held = 2 * sizes[0] * min(1.0, source.window_size / num_records) + 2 * batch_bytes
    size = sizes[0] / num_records
    mapped = max(batch_bytes / batch_size, *(s / num_records for s in sizes.values()))
    calls = _MOST_CALLS * budget.num_threads
    for stage in pipeline.stages:
        if isinstance(stage, Batch):
            size, mapped, calls = batch_bytes, batch_bytes, budget.num_threads
        elif isinstance(stage, Map):
            size = mapped
            held += size * calls
        elif isinstance(stage, Shuffle):
            held += 2 * size * min(stage.buffer_size, num_records)
    return math.ceil(held)


def admitted(
    sizes: Mapping[int, int], budget: Budget, held: int
) -> tuple[list[Placement], dict[Placement, str]]:
    """Returns the caches that fit, and the caches that do not, with the reason.

    Args:
        sizes: Bytes of a full cache, by the number of ops before the cache.
        budget: The budget of the pipeline. A cache in RAM must fit beside the buffers.
            The caches on disk are there at the same time and must fit together.
        held: Bytes of the buffers.
    """
    fitting: list[Placement] = []
    refused: dict[Placement, str] = {}
    left = {"ram": max(0, budget.ram_bytes - held), "disk": budget.disk_bytes}
    # The results of many ops first: such a cache saves the most work.
    for num_ops, size in sorted(sizes.items(), reverse=True):
        caches = [Placement(where="ram", num_ops=num_ops)]
        if (folder := budget.cache_dir) is not None:
            caches.append(Placement(where="disk", num_ops=num_ops, directory=folder))
        for cache in caches:
            most = left[cache.where]
            if size > most:
                need, limit = f"{size / 1e6:,.0f} MB", f"{most / 1e6:,.0f} MB"
                refused[cache] = f"it needs {need}, {limit} are allowed"
                continue
            fitting.append(cache)
            left["disk"] -= size if cache.where == "disk" else 0
    return fitting, refused
