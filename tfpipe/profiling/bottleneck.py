"""Names the bottleneck of a pipeline in a sentence with numbers.

In: the cost of each stage, and the limits of the pipeline. Out: the lowest limit, what
to change, and the next limit.
"""

import dataclasses
import math
from collections.abc import Sequence

from tfpipe.errors import count_of
from tfpipe.profiling.limits import Host, Limit, Resource, StageCost

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Situation:
    """The figures from which the bottleneck is found.

    Attributes:
        costs: The cost of each stage.
        limits: The limits of the pipeline, the lowest rate first.
        host: The host on which the pipeline runs.
        held_bytes: Bytes in all buffers.
        ram_left_bytes: Memory that was available for buffers.
        count: Number of examples or elements in an output.
        unit: The word for them.
        is_quiet: Whether other processes left the host alone.
    """

    costs: Sequence[StageCost]
    limits: Sequence[Limit]
    host: Host
    held_bytes: int
    ram_left_bytes: int
    count: int
    unit: str
    is_quiet: bool = True

    def rate(self, limit: Limit) -> str:
        """Returns the rate of a limit in words."""
        value = limit.rate * self.count
        text = f"{value:,.0f}" if value >= 10 else f"{value:.3g}"
        return f"{text} {self.unit}/s"

    def cost(self, limit: Limit) -> StageCost:
        """Returns the cost of the stage that a limit is about."""
        return next(cost for cost in self.costs if cost.number == limit.stage)

    def after(self, limit: Limit) -> Limit | None:
        """Returns the lowest limit after a limit is lifted, with its new rate."""
        with_cores = limit.most > limit.rate
        others = [
            dataclasses.replace(other, rate=other.most if with_cores else other.rate)
            for other in self.limits
            if (other.resource, other.stage) != (limit.resource, limit.stage)
        ]
        others = [o for o in others if limit.rate < o.rate < math.inf]
        return min(others, key=lambda other: other.rate, default=None)


def find(situation: Situation) -> Bottleneck:
    """Finds the lowest limit and what to change."""
    first = situation.limits[0]
    if situation.held_bytes > situation.ram_left_bytes:
        largest = max(situation.costs, key=lambda cost: cost.buffered_bytes)
        sentence = _too_large(situation, largest)
        return Bottleneck("memory", largest.number, first.rate, sentence)
    resource: Resource = first.resource
    tell = {
        "CPU": _more_cores,
        "sequential stage": _more_calls,
        "latency": _more_calls,
        "storage": _faster_storage,
        "consumer": _faster_step,
    }[first.resource]
    sentence = tell(situation, first)
    if first.stage is not None and _is_bound_by_memory(situation, first):
        resource, sentence = "memory", _fewer_bytes(situation, first)
    return Bottleneck(resource, first.stage, first.rate, sentence)


def _is_bound_by_memory(situation: Situation, limit: Limit) -> bool:
    if limit.resource not in ("CPU", "sequential stage"):
        return False
    most = _MOSTLY_COPIES * situation.host.copy_bytes_per_second
    return _moved(situation.cost(limit)) > most


def _moved(cost: StageCost) -> float:
    """Returns the bytes in and out per CPU-second; nan if unknown."""
    moved = cost.bytes_in_per_output + cost.bytes_out_per_output
    return moved / cost.cpu_seconds_per_output if cost.cpu_seconds_per_output else 0.0


def _more_cores(situation: Situation, limit: Limit) -> str:
    cost, host, then = situation.cost(limit), situation.host, situation.after(limit)
    text = (
        f"{cost.name} takes {cost.share:.0%} of the CPU, which allows "
        f"{situation.rate(limit)}"
    )
    if host.num_threads < host.num_cores and "thread" in limit.what:
        text += (
            f" with {limit.what}: raise Tuning.private_threadpool_size to "
            f"{host.num_cores}"
        )
        return text + _next(situation, then)
    if then is None:
        return f"{text}: more cores would give more in proportion."
    if not _can_tell(situation, limit, then):
        return f"{text}: more cores would give more" + _next(situation, then)
    cores = math.ceil(host.num_cores * (then.rate / limit.rate - 1))
    return (
        f"{text}: {count_of(cores, 'more core')} would give "
        f"{situation.rate(then)}, where {then.what} is the next limit."
    )


def _more_calls(situation: Situation, limit: Limit) -> str:
    cost, then = situation.cost(limit), situation.after(limit)
    text = f"{limit.what} allows {situation.rate(limit)}"
    if limit.resource == "latency":
        wait = cost.wait_seconds_per_output / cost.wall_seconds_per_output
        text += f" and waits {wait:.0%} of its time"
    calls = ""
    if then is not None and cost.has_calls and _can_tell(situation, limit, then):
        now = max(1, min(cost.parallelism, situation.host.num_threads))
        calls = f" {math.ceil(now * then.rate / limit.rate)}"
    if cost.has_calls:
        text += f": let it work on{calls or ' more'} elements at a time"
        if (
            limit.resource == "latency"
            and cost.kind == "parallel"
            and cost.parallelism >= situation.host.num_threads
        ):
            text += ", with as many threads in Tuning.private_threadpool_size"
    else:
        text += ": move its work into a Map before it, or put a Prefetch before it"
    return text + _next(situation, then)


def _can_tell(situation: Situation, limit: Limit, then: Limit) -> bool:
    return situation.is_quiet and then.rate <= _MOST_TIMES * limit.rate


def _faster_storage(situation: Situation, limit: Limit) -> str:
    return (
        f"{limit.what} allows {situation.rate(limit)}: cache the records in RAM or on "
        "a disk of this host, or read more shards at a time"
    ) + _next(situation, situation.after(limit))


def _faster_step(situation: Situation, limit: Limit) -> str:
    then = situation.after(limit)
    text = f"{limit.what} takes {situation.rate(limit)}: the input is fast enough"
    if then is None:
        return f"{text}."
    return f"{text}, as {then.what} allows {situation.rate(then)}."


def _fewer_bytes(situation: Situation, limit: Limit) -> str:
    cost = situation.cost(limit)
    moved, copied = _moved(cost), situation.host.copy_bytes_per_second
    return (
        f"{cost.name} moves {moved / 1e9:.1f} GB in a CPU-second, a copy on this host "
        f"{copied / 1e9:.1f} GB: memory allows {situation.rate(limit)}, and more cores "
        "share the same memory. Make elements smaller, as with uint8 in place of "
        "float32, or leave the copy out"
    ) + _next(situation, situation.after(limit))


def _too_large(situation: Situation, largest: StageCost) -> str:
    held, part = situation.held_bytes / 1e9, largest.buffered_bytes / 1e9
    return (
        f"The buffers hold {held:.2f} GB, of which {largest.name} {part:.2f} GB, but "
        f"{situation.ram_left_bytes / 1e9:.2f} GB of memory are left: make its buffer "
        "shorter, or let fewer ranks share the host."
    )


def _next(situation: Situation, then: Limit | None) -> str:
    if then is None:
        return "."
    return f". The next limit is {then.what}, at {situation.rate(then)}."
