"""The memory that a setting holds, so that a search stays within its budget.

In: a pipeline, a setting, and the sizes that a profile measured. Out: bytes.
"""

import math
from collections.abc import Mapping

from tfpipe.pipeline import Pipeline
from tfpipe.profiling.profile import Profile
from tfpipe.stages.basic import Prefetch
from tfpipe.stages.map import Map
from tfpipe.tuner.placement import Placement
from tfpipe.tuner.result import Trial
from tfpipe.tuner.space import Budget, Setting
from tfpipe.tuning import AUTOTUNE


def held_bytes(
    pipeline: Pipeline,
    setting: Setting,
    profile: Profile | None,
    cache_bytes: Mapping[int, int],
) -> int:
    """Returns the bytes of a setting's cache in RAM and of its buffers, when full.

    A buffer that AUTOTUNE sizes counts as nothing: tf.data keeps such buffers within
    `Tuning.ram_budget_bytes`. The buffers of all other stages are those that the
    profile found.

    Args:
        pipeline: The pipeline without tuning, see `space.opened`.
        setting: The setting.
        profile: The profile of that pipeline; None counts the cache alone.
        cache_bytes: Bytes of a full cache after that many ops.
    """
    cache, held = setting.cache, 0.0
    if cache is not None and cache.where == "ram":
        held += cache_bytes.get(cache.num_ops, 0)
    if profile is None:
        return int(held)
    num_maps = 0
    costs = {cost.number: cost for cost in profile.stages}
    for number, stage in enumerate([None, *pipeline.stages]):
        cost = costs[number]
        size = cost.bytes_out_per_output / cost.visit_ratio if cost.visit_ratio else 0
        if isinstance(stage, Map):
            held += _many(setting.tuning.num_parallel_calls(num_maps), size)
            num_maps += 1
        elif isinstance(stage, Prefetch):
            held += _many(setting.tuning.prefetch_buffer_size, size)
        else:
            held += cost.buffered_bytes
    return int(held)


def _many(count: int, size: float) -> float:
    return count * size if count != AUTOTUNE and math.isfinite(size) else 0.0


def admitted(
    sizes: Mapping[int, int], budget: Budget, held: int
) -> tuple[list[Placement], list[Trial]]:
    """Returns the places of caches that fit, and a trial for each that does not.

    Args:
        sizes: Bytes of a full cache after that many ops.
        budget: The budget of the pipeline. A cache in RAM must fit beside the buffers.
            The caches on disk are there at the same time and must fit together.
        held: Bytes of the buffers.
    """
    found: list[Placement] = []
    refused: list[Trial] = []
    left = {"ram": max(0, budget.ram_bytes - held), "disk": budget.disk_bytes}
    # The results of many ops first: they are worth more.
    for num_ops, size in sorted(sizes.items(), reverse=True):
        places = [Placement(where="ram", num_ops=num_ops)]
        if (folder := budget.cache_dir) is not None:
            places.append(Placement(where="disk", num_ops=num_ops, directory=folder))
        for place in places:
            most = left[place.where]
            if size <= most:
                found.append(place)
                left["disk"] -= size if place.where == "disk" else 0
                continue
            error = f"it needs {size / 1e6:,.0f} MB, {most / 1e6:,.0f} MB are allowed"
            refused.append(Trial(name=f"cache of {place}", setting=None, error=error))
    return found, refused
