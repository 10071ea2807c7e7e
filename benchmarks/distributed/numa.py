"""NUMA: the cores of a rank, on a host with several memory nodes.

In: the nodes of the kernel (kernel: Documentation/admin-guide/mm/numaperf), and the
number of ranks on the host. Out: the cores of a node for each rank. Neighboring ranks
share a node, as they use neighboring GPUs.
"""

import dataclasses
import itertools
import os
import pathlib
import platform
from collections.abc import Sequence

import tfpipe
from benchmarks.distributed.ranks import Ranks

_NODES = pathlib.Path("/sys/devices/system/node")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seat:
    """The cores of a rank.

    Attributes:
        nodes: Numbers of the memory nodes of the rank; empty for a rank without a bond.
        num_ranks: Number of ranks that use the same cores.
        most_threads: The rank's share of the CPU quota of the host; None without a
            quota.
    """

    nodes: tuple[int, ...]
    cores: frozenset[int]
    num_ranks: int
    most_threads: int | None = None

    @property
    def num_threads(self) -> int:
        """The rank's share of the cores, within the quota; at least 1."""
        share = len(self.cores) // self.num_ranks
        most = share if self.most_threads is None else self.most_threads
        return max(1, min(share, most))


def unbound(num_local_ranks: int) -> Seat:
    """Returns the seat of a rank on all cores, shared with the other ranks."""
    quota = tfpipe.host.cpu_quota()
    return Seat(
        nodes=(),
        cores=frozenset(os.sched_getaffinity(0)),
        num_ranks=num_local_ranks,
        most_threads=quota and quota // num_local_ranks,
    )


def take_seat(ranks: Ranks) -> Seat:
    """Binds this process to the cores of its node, and returns the seat.

    Call the function before threads start: a thread keeps the cores of its start. A
    rank that the launcher has bound to cores keeps its cores.
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
    """Returns the seat of a rank: the usable cores of a node or of several nodes.

    A single rank, and the ranks of a host with a single node, keep all cores.
    """
    usable = [index for index, node in enumerate(nodes) if node & free.cores]
    if len(usable) < 2 or num_local_ranks == 1:
        return free
    ranks = range(num_local_ranks + 1)
    borders = [rank * len(usable) // num_local_ranks for rank in ranks]
    # Several nodes are one rank's if there are more nodes than ranks.
    spans = [range(a, max(a + 1, b)) for a, b in itertools.pairwise(borders)]
    mine = tuple(usable[index] for index in spans[local_rank])
    return dataclasses.replace(
        free,
        nodes=mine,
        cores=free.cores & frozenset().union(*(nodes[index] for index in mine)),
        num_ranks=spans.count(spans[local_rank]),
    )


def read_nodes(folder: pathlib.Path) -> list[frozenset[int]]:
    """Reads the cores of each node with cores, in the order of nodes."""
    paths = sorted(folder.glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    lists = [(path / "cpulist").read_text().strip() for path in paths]
    return [parse_cpulist(text) for text in lists if text]


def parse_cpulist(text: str) -> frozenset[int]:
    """Returns the numbers of a list such as "0-3,8" (kernel: cpu-lists)."""
    ranges = [part.partition("-") for part in text.split(",")]
    return frozenset(
        core
        for first, _, last in ranges
        for core in range(int(first), int(last or first) + 1)
    )
