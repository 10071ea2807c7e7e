"""The limits of a pipeline: the rates that its resources allow.

In: the costs of the stages, and the host. Out: the limits, the lowest rate first. Pure
arithmetic: the closed form of Plumber's linear program (Kuchnik et al., MLSys 2022),
with additional limits for waiting stages and for stages in a common thread.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Literal

from tfpipe.errors import count_of

Resource = Literal[
    "sequential stage", "CPU", "storage", "latency", "memory", "consumer"
]
Kind = Literal["serial", "buffered", "parallel", "reader"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageCost:
    """The cost of a stage for an output of the pipeline, such as a batch.

    Example:
        >>> from tfpipe.profiling.limits import StageCost
        >>> source = tfpipe.TFRecordSource("DIR", "train")
        >>> pipeline = tfpipe.Pipeline(source, [tfpipe.Interleave()])
        >>> profile = tfpipe.profile(pipeline, seconds=0.01, repeats=1)
        >>> all(isinstance(cost, StageCost) for cost in profile.stages)
        True

    Attributes:
        number: Number of the stage. The source is 0; an op has the number of its `Map`.
        name: The stage, shortened.
        visit_ratio: Elements of the stage for an output; nan if unknown.
        cpu_seconds_per_output: CPU-seconds, with a single thread.
        wall_seconds_per_output: CPU-seconds plus the seconds of waiting.
        bytes_in_per_output: Size of the elements before the stage; nan if unknown.
        bytes_out_per_output: Size of the elements after the stage; nan if unknown.
        buffered_bytes: Bytes in the stage while the pipeline runs; an estimate on
            TensorFlow 2.16, which does not tell.
        parallelism: Elements in work at the same time; AUTOTUNE counts as the number of
            threads.
        kind: How the stage runs. A "parallel" stage makes calls in the threads of the
            pool. A "reader", such as an interleave, has threads of its own. A "serial"
            stage runs in the thread of the next stage. A "buffered" stage ends in a
            buffer, which a thread fills with the stage and the serial stages before.
        share: Fraction of the CPU time of the pipeline, 0 to 1.
        max_rate: Outputs per second of the stage on the host, if all other stages cost
            nothing; inf if the stage costs nothing.
        note: Remark about the figures.
    """

    number: int
    name: str
    visit_ratio: float
    cpu_seconds_per_output: float
    wall_seconds_per_output: float
    bytes_in_per_output: float
    bytes_out_per_output: float
    buffered_bytes: int
    parallelism: int
    kind: Kind
    share: float
    max_rate: float
    note: str = ""

    @property
    def has_calls(self) -> bool:
        """Whether the stage works on several elements at the same time."""
        return self.kind in ("parallel", "reader")

    @property
    def cpu_seconds_per_element(self) -> float:
        """CPU-seconds for an element of the stage; nan if unknown."""
        if not self.visit_ratio > 0:
            return math.nan
        return self.cpu_seconds_per_output / self.visit_ratio

    @property
    def wait_seconds_per_output(self) -> float:
        """Seconds of waiting for an output, as for storage."""
        return max(0.0, self.wall_seconds_per_output - self.cpu_seconds_per_output)


@dataclasses.dataclass(frozen=True)
class Limit:
    """The rate within a resource.

    Attributes:
        resource: The resource.
        rate: Outputs per second.
        what: The resource in words.
        stage: Number of the limiting stage, if any.
        with_cores: Outputs per second within the resource with any number of cores and
            threads; None if more cores and threads would not help.
    """

    resource: Resource
    rate: float
    what: str
    stage: int | None = None
    with_cores: float | None = None

    @property
    def most(self) -> float:
        """Outputs per second with any number of cores."""
        return self.rate if self.with_cores is None else self.with_cores


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """The cores and threads of the pipeline.

    Attributes:
        num_cores: Number of cores.
        num_threads: Threads of the ops: `Tuning.private_threadpool_size`.
        slowdown: CPU time of the pipeline with all cores at work divided by the CPU
            time with a single core. It is above 1 through shared caches, memory and
            hyper-threads, and below 1 where tf.data saves work by fusing stages.
        copy_bytes_per_second: Bytes in and out of a single core while it only copies
            into new memory.
    """

    num_cores: int
    num_threads: int
    slowdown: float = 1.0
    copy_bytes_per_second: float = math.inf

    def slowdown_of(self, num_busy: float) -> float:
        """Returns the slowdown with fewer cores at work, by linear interpolation."""
        if self.num_cores == 1:
            return self.slowdown
        busy = min(max(num_busy, 1), self.num_cores)
        return 1 + (self.slowdown - 1) * (busy - 1) / (self.num_cores - 1)


def stage_rate(cost: StageCost, host: Host) -> float:
    """Returns the outputs per second of a stage alone."""
    calls, cpu, time = _calls(cost, host)
    return min(_per_second(calls, time), _per_second(host.num_cores, cpu))


def limits(costs: Sequence[StageCost], host: Host) -> list[Limit]:
    """Returns the limits of the stages and the cores, the lowest rate first.

    Args:
        costs: The costs of the stages, in the order of the data.
        host: The host of the pipeline.
    """
    all_limits = [_cpu_limit(costs, host), *_pool_limit(costs, host)]
    segment: list[StageCost] = []
    for cost in costs:
        if not cost.has_calls:
            segment.append(cost)
        if cost.kind != "serial":
            all_limits += _serial_limit(segment)
            segment = []
        if cost.has_calls:
            all_limits.append(_stage_limit(cost, host))
    all_limits += _serial_limit(segment)
    return sorted(all_limits, key=lambda limit: limit.rate)


def merged(costs: Sequence[StageCost]) -> list[StageCost]:
    """Returns a cost a stage: the ops of a `Map` are added up."""
    groups = itertools.groupby(costs, key=lambda cost: cost.number)
    rows = [[*ops] for _, ops in groups]
    return [ops[0] if len(ops) == 1 else _sum_of_ops(ops) for ops in rows]


def _sum_of_ops(ops: Sequence[StageCost]) -> StageCost:
    names = [op.name.partition("(")[0] for op in ops]
    return dataclasses.replace(
        ops[-1],
        name=f"Map({', '.join(names)})",
        cpu_seconds_per_output=sum(op.cpu_seconds_per_output for op in ops),
        wall_seconds_per_output=sum(op.wall_seconds_per_output for op in ops),
        bytes_in_per_output=ops[0].bytes_in_per_output,
        share=sum(op.share for op in ops),
    )


def _calls(cost: StageCost, host: Host) -> tuple[int, float, float]:
    """Returns the calls of a stage at a time, and CPU and all seconds of an output."""
    threads = cost.parallelism if cost.kind == "reader" else host.num_threads
    calls = max(1, min(cost.parallelism, threads))
    cpu = cost.cpu_seconds_per_output * host.slowdown_of(calls)
    return calls, cpu, cpu + cost.wait_seconds_per_output


def _cpu_limit(costs: Sequence[StageCost], host: Host) -> Limit:
    cpu = sum(cost.cpu_seconds_per_output for cost in costs) * host.slowdown
    heaviest = max(costs, key=lambda cost: cost.cpu_seconds_per_output)
    what = f"the CPU with {count_of(host.num_cores, 'core')}"
    rate = _per_second(host.num_cores, cpu)
    return Limit("CPU", rate, what, heaviest.number, math.inf)


def _stage_limit(cost: StageCost, host: Host) -> Limit:
    calls, cpu, time = _calls(cost, host)
    resource: Resource = "sequential stage"
    if cost.wait_seconds_per_output > cpu:
        resource = "latency"
    what = f"{cost.name} with {count_of(calls, 'call')} at a time"
    most = None
    if cost.parallelism > calls:
        most = _per_second(cost.parallelism, time)
    elif calls == host.num_threads >= host.num_cores:
        most = math.inf  # AUTOTUNE, or a call for every core
    return Limit(resource, _per_second(calls, time), what, cost.number, most)


def _serial_limit(segment: Sequence[StageCost]) -> list[Limit]:
    """Returns the limit of stages that take turns in a thread."""
    working = [cost for cost in segment if cost.wall_seconds_per_output > 0]
    if not working:
        return []
    cpu = sum(cost.cpu_seconds_per_output for cost in working)
    wait = sum(cost.wait_seconds_per_output for cost in working)
    heaviest = max(working, key=lambda cost: cost.wall_seconds_per_output)
    resource: Resource = "latency" if wait > cpu else "sequential stage"
    what = f"{heaviest.name} in one thread"
    if len(working) > 1:
        what += f" with {count_of(len(working) - 1, 'other')}"
    rate = _per_second(1, cpu + wait)
    return [Limit(resource, rate, what, heaviest.number)]


def _pool_limit(costs: Sequence[StageCost], host: Host) -> list[Limit]:
    """Returns the limit of the threads that all stages share."""
    shared = [cost for cost in costs if cost.kind == "parallel"]
    if not shared:
        return []
    slowdown = host.slowdown_of(host.num_threads)
    cpu = sum(cost.cpu_seconds_per_output for cost in shared) * slowdown
    wait = sum(cost.wait_seconds_per_output for cost in shared)
    heaviest = max(shared, key=lambda cost: cost.wall_seconds_per_output)
    resource: Resource = "latency" if wait > cpu else "CPU"
    what = f"{heaviest.name} in the pool of {count_of(host.num_threads, 'thread')}"
    rate = _per_second(host.num_threads, cpu + wait)
    most = math.inf if host.num_threads >= host.num_cores else None
    return [Limit(resource, rate, what, heaviest.number, most)]


def _per_second(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else math.inf
