"""The space of settings that a tuner may choose from, within budgets.

In: a pipeline, the costs of its stages, and a budget. Out: `Setting`s: the setting with
all knobs left to AUTOTUNE, the settings that the costs ask for, or a grid; and the
memory that a setting holds.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Mapping, Sequence

from tfpipe import errors, host
from tfpipe.cache.stage import Cache
from tfpipe.pipeline import Pipeline
from tfpipe.profiling.profile import PipelineProfile
from tfpipe.stages.basic import Batch, Prefetch
from tfpipe.stages.map import Map
from tfpipe.tuner import placement
from tfpipe.tuner.placement import Placement
from tfpipe.tuning import AUTOTUNE, Tuning, without_tuning

# Calls of a map for a call at work, and at most for a thread.
_SLACK, _MOST_CALLS = 2, 4

_DEPTH = 2  # batches ahead
_FIRST_DEPTH = 2  # where AUTOTUNE begins


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
        placed = placement.with_cache(pipeline, self.cache)
        calls = self.tuning.num_parallel_maps
        parted = placement.parted_map(pipeline, self.cache)
        if isinstance(calls, tuple) and parted is not None:
            calls = calls[: parted + 1] + calls[parted:]
        tuned = dataclasses.replace(self.tuning, num_parallel_maps=calls)
        return dataclasses.replace(placed, tuning=tuned)


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


def closed_form(
    pipeline: Pipeline,
    profile: PipelineProfile | None,
    budget: Budget,
    *,
    cache: Placement | None = None,
) -> Setting:
    """Returns the setting that the costs of the stages ask for.

    The threads allow the rate X: their number divided by the CPU-seconds of all stages.
    A stage then has X times its own seconds of calls in flight (Little's law). The
    stage gets twice as many calls, so that a thread at the end of a call finds another
    call. The formula is the closed form of the linear program in Kuchnik et al.,
    "Plumber", MLSys 2022.

    | map              | gets calls enough to                                        |
    |------------------|-------------------------------------------------------------|
    | before the cache | fill the cache: a call for each thread, and no more, as a   |
    |                  | full cache leaves the map idle                              |
    | after the cache  | keep all threads busy, the most calls: once the cache is    |
    |                  | full, the map may be the only costly stage. Its own cost is |
    |                  | below the measurement noise beside the cached ops           |

    Args:
        pipeline: The pipeline without tuning, see `opened`.
        profile: The profile of the same pipeline. Without the costs each map gets the
            calls that keep all threads busy, and one batch is made ahead.
        budget: The budget of the pipeline.
        cache: Where a cache stands; None for no cache.
    """
    calls = [_SLACK * budget.num_threads] * len(_most_calls(pipeline, budget))
    if profile is not None:
        cpu = sum(cost.cpu_seconds_per_output for cost in profile.stages)
        rate = budget.num_threads / max(cpu, 1e-9)
        seconds = {cost.number: cost.wall_seconds_per_output for cost in profile.stages}
        numbers = [n for n, s in enumerate(pipeline.stages, 1) if isinstance(s, Map)]
        calls = [max(1, math.ceil(_SLACK * rate * seconds[n])) for n in numbers]
    maps = tuple(map(min, calls, _most_calls(pipeline, budget)))
    if cache is not None:
        cached = placement.num_cached_maps(pipeline, cache)
        placed = placement.with_cache(pipeline, cache)
        most_calls = _most_calls(placed, budget)[-len(maps) :]
        maps = (*[budget.num_threads] * cached, *most_calls[cached:])
    return Setting(
        cache=cache,
        tuning=Tuning(
            num_parallel_maps=maps or 1,
            prefetch_buffer_size=min(_DEPTH, most_batches(profile, budget)),
            private_threadpool_size=budget.num_threads,
            ram_budget_bytes=budget.ram_bytes,
        ),
    )


def with_more_calls(setting: Setting, pipeline: Pipeline, budget: Budget) -> Setting:
    """Returns a setting for elements of microseconds: twice the calls, a batch ahead.

    Elements of microseconds cost less than their way from thread to thread, so the
    costs of the stages ask for too few calls.
    """
    calls = setting.tuning.num_parallel_maps
    if isinstance(calls, tuple):
        most = _most_calls(pipeline, budget)
        calls = tuple(min(2 * n, m) for n, m in zip(calls, most, strict=True))
    tuning = dataclasses.replace(
        setting.tuning, num_parallel_maps=calls, prefetch_buffer_size=1
    )
    return dataclasses.replace(setting, tuning=tuning)


def _most_calls(pipeline: Pipeline, budget: Budget) -> list[int]:
    """Returns the most calls of the maps, in order.

    After `Batch` a call holds a batch, so a thread has at most a single call.
    """
    most, calls = budget.num_threads * _MOST_CALLS, []
    for stage in pipeline.stages:
        if isinstance(stage, Batch):
            most = budget.num_threads
        elif isinstance(stage, Map):
            calls.append(most)
    return calls


def most_batches(profile: PipelineProfile | None, budget: Budget) -> int:
    """Returns how many batches a quarter of the memory holds, at least 1."""
    if profile is None:
        return 1
    size = profile.stages[-1].bytes_out_per_output
    if math.isnan(size) or size < 1:
        return _DEPTH
    return max(1, int(budget.ram_bytes / 4 / size))


def grid(
    pipeline: Pipeline, budget: Budget, caches: Sequence[Placement | None]
) -> list[Setting]:
    """Returns a coarse grid over the whole space, for an exhaustive search.

    Args:
        pipeline: The pipeline without tuning, see `opened`.
        budget: The budget of the pipeline.
        caches: Where a cache may stand; None is no cache.
    """
    calls = [
        sorted({min(n, most) for n in (1, budget.num_threads, 2 * budget.num_threads)})
        for most in _most_calls(pipeline, budget)
    ]
    if len(calls) > 1:
        calls = [sorted({counts[0], counts[-1]}) for counts in calls]
    fuse = (True, False) if can_fuse(pipeline) else (True,)
    reads = (1, 4) if reads_files(pipeline) else (1,)
    points = itertools.product(reads, itertools.product(*calls), (1, 4), fuse, caches)
    return [
        Setting(
            tuning=Tuning(
                num_parallel_reads=num_reads,
                num_parallel_maps=maps or 1,
                prefetch_buffer_size=depth,
                fuse_map_and_batch=fused,
                private_threadpool_size=budget.num_threads,
                ram_budget_bytes=budget.ram_bytes,
            ),
            cache=cache,
        )
        for num_reads, maps, depth, fused, cache in points
    ]


def reads_files(pipeline: Pipeline) -> bool:
    """Checks whether a stage of the pipeline reads files."""
    return any(hasattr(stage, "num_parallel_reads") for stage in pipeline.stages)


def can_fuse(pipeline: Pipeline) -> bool:
    """Checks whether tf.data can fuse a Map and the Batch right after it."""
    pairs = itertools.pairwise(pipeline.stages)
    return any(
        isinstance(mapped, Map) and mapped.faults is None and isinstance(after, Batch)
        for mapped, after in pairs
    )


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
    setting: Setting,
    profile: PipelineProfile | None,
    cache_bytes: Mapping[int, int],
) -> int:
    """Returns the bytes of a setting's cache in RAM and of its buffers, when full.

    A buffer whose size AUTOTUNE chooses counts as nothing: tf.data keeps such buffers
    within `Tuning.ram_budget_bytes`. The buffers of all other stages are as large as
    in the profile.

    Args:
        pipeline: The pipeline without tuning, see `opened`.
        setting: The setting.
        profile: The profile of the same pipeline; None counts the cache alone.
        cache_bytes: Bytes of a full cache, by the number of ops before the cache.
    """
    cache, held = setting.cache, 0.0
    if cache is not None and cache.where == "ram":
        held += cache_bytes.get(cache.num_ops, 0)
    if profile is None:
        return int(held)
    num_maps = 0
    costs = {cost.number: cost for cost in profile.stages}
    for position, stage in enumerate([None, *pipeline.stages]):
        cost = costs[position]
        size = cost.bytes_out_per_output / cost.visit_ratio if cost.visit_ratio else 0
        if isinstance(stage, Map):
            count = setting.tuning.num_parallel_calls(num_maps)
            num_maps += 1
        elif isinstance(stage, Prefetch):
            count = setting.tuning.prefetch_buffer_size
        else:
            count, size = 1, cost.buffered_bytes
        held += count * size if count != AUTOTUNE and math.isfinite(size) else 0.0
    return int(held)


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
