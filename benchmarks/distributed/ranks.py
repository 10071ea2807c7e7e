"""Ranks: the processes of a run, and their collective operations.

No other file imports Horovod. In: the environment of horovodrun. Out: a `Ranks`;
without Horovod a single rank, which communicates with nobody. A test of Horovod:

  horovodrun -np 2 python -m benchmarks.distributed.ranks
"""

import dataclasses
import json
import os
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
