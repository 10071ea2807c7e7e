"""NUMA: which cores a rank should keep to, on a host with several memory nodes.

In: the nodes that the kernel tells of (kernel: Documentation/admin-guide/mm/numaperf),
and how many ranks share the host. Out: the cores of a node for each rank, ranks with
neighboring numbers on the same node, as they are on neighboring GPUs.
"""

import dataclasses
import os
import pathlib
import platform
from collections.abc import Sequence

import tfpipe
from benchmarks.distributed.ranks import Ranks

_NODES = pathlib.Path("/sys/devices/system/node")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a rank works.

    Attributes:
        nodes: Numbers of the memory nodes it is bound to; none where it is not bound.
        cores: That it may use.
        num_ranks: That use the same cores.
        most_threads: Its share of what the host allows its processes together.
    """

    nodes: tuple[int, ...]
    cores: frozenset[int]
    num_ranks: int
    most_threads: int | None = None

    @property
    def num_threads(self) -> int:
        """Its share of the cores, 1 at least."""
        share = len(self.cores) // self.num_ranks
        most = share if self.most_threads is None else self.most_threads
        return max(1, min(share, most))


def unbound(num_local_ranks: int) -> Seat:
    """The seat of a rank that shares all cores with the others."""
    quota = tfpipe.cpu_quota()
    return Seat(
        nodes=(),
        cores=frozenset(os.sched_getaffinity(0)),
        num_ranks=num_local_ranks,
        most_threads=quota and quota // num_local_ranks,
    )


def take_seat(ranks: Ranks) -> Seat:
    """Binds this process to the cores of its node; call it before threads start.

    Where the launcher has bound the ranks of the host already they stay so.
    """
    free = unbound(ranks.num_local_ranks)
    everyone = ranks.gather((platform.node(), free.cores))
    here = [cores for host, cores in everyone if host == platform.node()]
    if len(set(here)) > 1:
        return dataclasses.replace(free, num_ranks=here.count(free.cores))
    nodes = read_nodes(_NODES)
    seat = assign(nodes, free, ranks.local_rank, ranks.num_local_ranks)
    if seat.nodes:
        os.sched_setaffinity(0, seat.cores)
    return seat


def assign(
    nodes: Sequence[frozenset[int]], free: Seat, local_rank: int, num_local_ranks: int
) -> Seat:
    """The seat of a rank among the nodes, of cores that all local ranks may use.

    A single rank keeps all of them, as do the ranks of a host with one node.
    """
    usable = [number for number, node in enumerate(nodes) if node & free.cores]
    if len(usable) < 2 or num_local_ranks == 1:
        return free
    spans = [
        _span(rank, num_local_ranks, len(usable)) for rank in range(num_local_ranks)
    ]
    mine = tuple(usable[place] for place in spans[local_rank])
    return dataclasses.replace(
        free,
        nodes=mine,
        cores=free.cores & frozenset().union(*(nodes[number] for number in mine)),
        num_ranks=spans.count(spans[local_rank]),
    )


def _span(rank: int, num_ranks: int, num_nodes: int) -> range:
    """Which nodes: several where there are more of them than ranks."""
    first, end = (r * num_nodes // num_ranks for r in (rank, rank + 1))
    return range(first, max(first + 1, end))


def read_nodes(folder: pathlib.Path) -> list[frozenset[int]]:
    """The cores of each node that has some, in the order of their numbers."""
    paths = sorted(folder.glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    lists = [(path / "cpulist").read_text().strip() for path in paths]
    return [parse_cpulist(text) for text in lists if text]


def parse_cpulist(text: str) -> frozenset[int]:
    """Numbers of a list such as "0-3,8" (kernel: cpu-lists)."""
    ranges = [part.partition("-") for part in text.split(",")]
    return frozenset(
        core
        for first, _, last in ranges
        for core in range(int(first), int(last or first) + 1)
    )
