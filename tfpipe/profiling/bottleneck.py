"""Names the bottleneck of a pipeline in a sentence with numbers.

In: a profile. Out: the lowest limit, what to change, and the next limit.
"""

import dataclasses
import math
from typing import TYPE_CHECKING

from tfpipe.errors import count_of
from tfpipe.profiling.limits import Limit, Resource, StageCost

if TYPE_CHECKING:
    from tfpipe.profiling.profile import PipelineProfile

# Fraction of the bandwidth of a copy: a stage that moves more mostly copies.
_MOSTLY_COPIES = 0.5

# A number of calls or cores is told up to this many times the present one. Costs are
# not exact enough to say more, nor is any number that a busy host gives.
_MOST_TIMES = 8


@dataclasses.dataclass(frozen=True)
class Bottleneck:
    """The resource that limits a pipeline.

    Example:
        >>> from tfpipe.profiling.bottleneck import Bottleneck
        >>> source = tfpipe.TFRecordSource("DIR", "train")
        >>> pipeline = tfpipe.Pipeline(source, [tfpipe.Interleave()])
        >>> profile = tfpipe.profile(pipeline, seconds=0.01, repeats=1)
        >>> isinstance(profile.bottleneck, Bottleneck)
        True

    Attributes:
        resource: "sequential stage": a stage works on too few elements at the same
            time. "CPU": all cores are busy. "storage": its bandwidth. "latency": a
            stage waits for too few elements at the same time. "memory": its size or
            its bandwidth. "consumer": the training step is slower than the pipeline.
        stage: Number of the stage to change, or None.
        rate: Outputs per second that the resource allows.
        sentence: The bottleneck with numbers, what to change, and the next limit.
    """

    resource: Resource
    stage: int | None
    rate: float
    sentence: str


def find(profile: "PipelineProfile") -> Bottleneck:
    """Finds the lowest limit of a profile and what to change."""
    first = profile.limits[0]
    largest = max(profile.costs, key=lambda cost: cost.buffered_bytes)
    if _held(profile) > profile.ram_left_bytes:
        sentence = _too_large(profile, largest)
        return Bottleneck("memory", largest.number, first.rate, sentence)
    resource: Resource = first.resource
    tell = {
        "CPU": _more_cores,
        "sequential stage": _more_calls,
        "latency": _more_calls,
        "storage": _faster_storage,
        "consumer": _faster_step,
    }[first.resource]
    sentence = tell(profile, first)
    if first.stage is not None and _is_bound_by_memory(profile, first):
        resource, sentence = "memory", _fewer_bytes(profile, first)
    return Bottleneck(resource, first.stage, first.rate, sentence)


def _rate(profile: "PipelineProfile", limit: Limit) -> str:
    count, unit = profile.unit
    value = limit.rate * count
    return f"{value:,.0f} {unit}/s" if value >= 10 else f"{value:.3g} {unit}/s"


def _cost(profile: "PipelineProfile", limit: Limit) -> StageCost:
    """Returns the cost of the stage that a limit is about."""
    return next(cost for cost in profile.costs if cost.number == limit.stage)


def _after(profile: "PipelineProfile", limit: Limit) -> Limit | None:
    """Returns the lowest limit after a limit is lifted, with its new rate."""
    with_cores = limit.most > limit.rate
    others = [
        dataclasses.replace(other, rate=other.most if with_cores else other.rate)
        for other in profile.limits
        if (other.resource, other.stage) != (limit.resource, limit.stage)
    ]
    others = [o for o in others if limit.rate < o.rate < math.inf]
    return min(others, key=lambda other: other.rate, default=None)


def _held(profile: "PipelineProfile") -> int:
    """Returns the bytes in all buffers."""
    return sum(cost.buffered_bytes for cost in profile.costs)


def _is_bound_by_memory(profile: "PipelineProfile", limit: Limit) -> bool:
    if limit.resource not in ("CPU", "sequential stage"):
        return False
    most = _MOSTLY_COPIES * profile.host.copy_bytes_per_second
    return _moved(_cost(profile, limit)) > most


def _moved(cost: StageCost) -> float:
    """Returns the bytes in and out per CPU-second; nan if unknown."""
    moved = cost.bytes_in_per_output + cost.bytes_out_per_output
    return moved / cost.cpu_seconds_per_output if cost.cpu_seconds_per_output else 0.0


def _more_cores(profile: "PipelineProfile", limit: Limit) -> str:
    cost, host, then = _cost(profile, limit), profile.host, _after(profile, limit)
    text = (
        f"{cost.name} takes {cost.share:.0%} of the CPU, which allows "
        f"{_rate(profile, limit)}"
    )
    if host.num_threads < host.num_cores and "thread" in limit.what:
        text += (
            f" with {limit.what}: raise Tuning.private_threadpool_size to "
            f"{host.num_cores}"
        )
        return text + _next(profile, then)
    if then is None:
        return f"{text}: more cores would give more in proportion."
    if not _can_tell(profile, limit, then):
        return f"{text}: more cores would give more" + _next(profile, then)
    cores = math.ceil(host.num_cores * (then.rate / limit.rate - 1))
    return (
        f"{text}: {count_of(cores, 'more core')} would give "
        f"{_rate(profile, then)}, where {then.what} is the next limit."
    )


def _more_calls(profile: "PipelineProfile", limit: Limit) -> str:
    cost, then = _cost(profile, limit), _after(profile, limit)
    text = f"{limit.what} allows {_rate(profile, limit)}"
    if limit.resource == "latency":
        wait = cost.wait_seconds_per_output / cost.wall_seconds_per_output
        text += f" and waits {wait:.0%} of its time"
    calls = ""
    if then is not None and cost.has_calls and _can_tell(profile, limit, then):
        now = max(1, min(cost.parallelism, profile.host.num_threads))
        calls = f" {math.ceil(now * then.rate / limit.rate)}"
    if cost.has_calls:
        text += f": let it work on{calls or ' more'} elements at a time"
        if (
            limit.resource == "latency"
            and cost.kind == "parallel"
            and cost.parallelism >= profile.host.num_threads
        ):
            text += ", with as many threads in Tuning.private_threadpool_size"
    else:
        text += ": move its work into a Map before it, or put a Prefetch before it"
    return text + _next(profile, then)


def _can_tell(profile: "PipelineProfile", limit: Limit, then: Limit) -> bool:
    return profile.is_quiet and then.rate <= _MOST_TIMES * limit.rate


def _faster_storage(profile: "PipelineProfile", limit: Limit) -> str:
    return (
        f"{limit.what} allows {_rate(profile, limit)}: cache the records in RAM or on "
        "a disk of this host, or read more shards at a time"
    ) + _next(profile, _after(profile, limit))


def _faster_step(profile: "PipelineProfile", limit: Limit) -> str:
    then = _after(profile, limit)
    text = f"{limit.what} takes {_rate(profile, limit)}: the input is fast enough"
    if then is None:
        return f"{text}."
    return f"{text}, as {then.what} allows {_rate(profile, then)}."


def _fewer_bytes(profile: "PipelineProfile", limit: Limit) -> str:
    cost = _cost(profile, limit)
    moved, copied = _moved(cost), profile.host.copy_bytes_per_second
    return (
        f"{cost.name} moves {moved / 1e9:.1f} GB in a CPU-second, a copy on this host "
        f"{copied / 1e9:.1f} GB: memory allows {_rate(profile, limit)}, and more cores "
        "share the same memory. Make elements smaller, as with uint8 in place of "
        "float32, or leave the copy out"
    ) + _next(profile, _after(profile, limit))


def _too_large(profile: "PipelineProfile", largest: StageCost) -> str:
    held, part = _held(profile) / 1e9, largest.buffered_bytes / 1e9
    return (
        f"The buffers hold {held:.2f} GB, of which {largest.name} {part:.2f} GB, but "
        f"{profile.ram_left_bytes / 1e9:.2f} GB of memory are left: make its buffer "
        "shorter, or let fewer ranks share the host."
    )


def _next(profile: "PipelineProfile", then: Limit | None) -> str:
    if then is None:
        return "."
    return f". The next limit is {then.what}, at {_rate(profile, then)}."
