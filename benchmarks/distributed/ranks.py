"""Ranks: the processes of a run, their collective operations, and their cores.

No other file imports Horovod. In: the environment of horovodrun. Out: a `Ranks`;
without Horovod a single rank, which communicates with nobody. A test of Horovod:

  horovodrun -np 2 python -m benchmarks.distributed.ranks

On a host with several memory nodes (NUMA, kernel: admin-guide/mm/numaperf) a rank has
a `Seat`, the cores of a node. Neighboring ranks share a node, as they use neighboring
GPUs.
"""

import dataclasses
import itertools
import json
import os
import pathlib
import platform
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

import tfpipe

try:
    import horovod
    import horovod.tensorflow as hvd
    from horovod.common.elastic import ObjectState
except ImportError:
    hvd, ObjectState = None, object

_NODES = pathlib.Path("/sys/devices/system/node")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranks:
    """The number of the process among all processes of the run, and on its host."""

    rank: int = 0
    num_ranks: int = 1
    local_rank: int = 0
    num_local_ranks: int = 1

    @property
    def is_first(self) -> bool:
        """Whether the process is rank 0, which prints and saves for all ranks."""
        return self.rank == 0

    def now(self) -> "Ranks":
        """Returns the current ranks: an elastic run may have lost some."""
        return self if hvd is None or not hvd.is_initialized() else _current()

    def average(
        self, gradients: Sequence[tf.Tensor], *, fp16: bool = False
    ) -> list[tf.Tensor]:
        """Returns the means of tensors over ranks; also within a tf.function.

        With `fp16` the ranks exchange float16, half of the bytes of float32.
        """
        if self.num_ranks == 1:
            return list(gradients)
        form = hvd.Compression.fp16 if fp16 else hvd.Compression.none
        # A call for every tensor, sent as soon as the backward pass has computed it.
        return [
            hvd.allreduce(gradient, op=hvd.Average, compression=form)
            for gradient in gradients
        ]

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        if self.num_ranks > 1:
            hvd.broadcast_variables(variables, root_rank=0)

    def gather(self, value: Any) -> list[Any]:
        """Returns the value of every rank, in the order of ranks; acts as a barrier."""
        if self.num_ranks == 1:
            return [value]
        values: list[Any] = hvd.allgather_object(value)
        return values

    def hosts(self) -> tuple[int, ...]:
        """Returns the number of each rank's host, from 0; all ranks call it together.

        Hosts are told apart by the names that the launcher gave them.
        """
        name = os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()
        names = self.gather(name)
        distinct = list(dict.fromkeys(names))
        return tuple(distinct.index(name) for name in names)


class Committed(ObjectState):  # type: ignore[misc]
    """The shared state of the ranks of an elastic run: variables and named objects.

    Horovod's own state classes do not support Keras 3, and cannot broadcast without a
    TensorFlow session.

    Attributes:
        data_state: How far the data was read, a `tfpipe.State` as JSON.
        counts: int64 [num_records], uses of the records.
    """

    def __init__(self, variables: Sequence[tf.Variable], **objects: Any) -> None:
        self._variables = variables
        super().__init__(
            bcast_object=hvd.broadcast_object, get_rank=hvd.rank, **objects
        )

    def save(self) -> None:
        """Keeps a copy of the current values for `restore`."""
        self._values = [variable.numpy() for variable in self._variables]
        super().save()

    def restore(self) -> None:
        """Sets all values back to the values of the last `save`."""
        for variable, value in zip(self._variables, self._values, strict=True):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Gives every rank the values of rank 0."""
        hvd.broadcast_variables(self._variables, root_rank=0)
        super().sync()
        self.save()


def run_elastic(
    variables: Sequence[tf.Variable],
    work: Callable[[Ranks, Committed], Result],
    **objects: Any,
) -> Result:
    """Calls `work`, and again from the last commit after a change of the ranks.

    The ranks share the variables, and a loss sets the variables back.
    """
    if hvd is None or "HOROVOD_ELASTIC" not in os.environ:
        raise ValueError(
            "--elastic must run under elastic Horovod: horovodrun -np 2 --min-np 1 "
            "--host-discovery-script SCRIPT python -m benchmarks.train --elastic"
        )

    @hvd.elastic.run  # type: ignore[untyped-decorator]
    def run(committed: Committed) -> Result:
        return work(_current(), committed)

    result: Result = run(Committed(variables, **objects))
    return result


def connect() -> Ranks:
    """Joins the run of horovodrun, or returns a run of a single rank.

    A rank uses the local GPU with its number, if there are GPUs. Call the function
    before TensorFlow is used: the choice of GPUs cannot change afterwards.
    """
    if hvd is None:
        if "HOROVOD_RANK" in os.environ:
            raise ValueError(
                "horovodrun started this process, but this Python has no Horovod. "
                "Install it as BUILD.md says, or start without horovodrun."
            )
        return Ranks()
    hvd.init()
    ranks = _current()
    _take_gpu(ranks)
    return ranks


def set_inter_op_threads() -> int:
    """Gives TensorFlow the threads of NVIDIA's examples for ops side by side.

    The number is the rank's share of the cores less 2, at least 2. Call the function
    before `connect`: TensorFlow cannot change the number after its first op.
    """
    num_local_ranks = int(os.environ.get("HOROVOD_LOCAL_SIZE", 1))
    threads = max(2, tfpipe.host.num_cores() // num_local_ranks - 2)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    return threads


def _current() -> Ranks:
    return Ranks(
        rank=hvd.rank(),
        num_ranks=hvd.size(),
        local_rank=hvd.local_rank(),
        num_local_ranks=hvd.local_size(),
    )


def _take_gpu(ranks: Ranks) -> None:
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        if ranks.num_local_ranks > len(gpus):
            raise ValueError(
                f"A host must have a GPU for each of its ranks, got "
                f"{ranks.num_local_ranks} ranks and {len(gpus)} GPUs. Start fewer "
                "ranks, or set CUDA_VISIBLE_DEVICES= to use no GPU."
            )
        gpu = gpus[ranks.local_rank]
        tf.config.set_visible_devices(gpu, "GPU")
        tf.config.experimental.set_memory_growth(gpu, True)


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


def version() -> str | None:
    """Returns Horovod's version; None without Horovod."""
    return None if hvd is None else str(horovod.__version__)


def main() -> int:
    """Adds up the rank numbers over all ranks and prints whether the sum is right."""
    ranks = connect()
    (mean,) = ranks.average([tf.constant(float(ranks.rank))])
    total = round(float(mean) * ranks.num_ranks)
    expected = sum(range(ranks.num_ranks))
    if ranks.is_first:
        head = {"command": "benchmarks.distributed.ranks", "schema_version": 1}
        result = {"num_ranks": ranks.num_ranks, "sum": total, "expected": expected}
        print(json.dumps(head | result))
    return 0 if total == expected else 1


if __name__ == "__main__":
    sys.exit(main())
