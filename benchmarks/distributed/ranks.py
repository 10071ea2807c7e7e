"""Ranks: the processes of one run, and what they tell each other.

The only file that knows Horovod. In: the environment that horovodrun sets. Out: a
`Ranks`, which without Horovod is one rank that talks to nobody. Proves itself with

  horovodrun -np 2 python -m benchmarks.distributed.ranks
"""

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

try:
    import horovod
    import horovod.tensorflow as hvd
    from horovod.common.elastic import ObjectState
except ImportError:
    hvd, ObjectState = None, object

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranks:
    """Which process this is, of how many, on this host and in all."""

    rank: int = 0
    num_ranks: int = 1
    local_rank: int = 0
    num_local_ranks: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which prints and saves."""
        return self.rank == 0

    def now(self) -> "Ranks":
        """This process in the run as it is now: an elastic one may have lost ranks."""
        return self if hvd is None or not hvd.is_initialized() else _current()

    def average(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The mean over ranks of each tensor; usable inside tf.function."""
        if self.num_ranks == 1:
            return list(gradients)
        # One call a tensor: each is sent as soon as the backward pass has made it.
        return [hvd.allreduce(gradient, op=hvd.Average) for gradient in gradients]

    def broadcast(self, variables: Sequence[tf.Variable]) -> None:
        """Gives every rank the values of rank 0."""
        if self.num_ranks > 1:
            hvd.broadcast_variables(variables, root_rank=0)

    def gather(self, value: Any) -> list[Any]:
        """The value of every rank, in the order of ranks; also a barrier."""
        if self.num_ranks == 1:
            return [value]
        values: list[Any] = hvd.allgather_object(value)
        return values


class Committed(ObjectState):  # type: ignore[misc]
    """What all ranks have in common in an elastic run: variables, and objects by name.

    Horovod's own states know neither Keras 3 nor, without a session, how to broadcast.

    Attributes:
        place: A `tfpipe.State` as JSON.
        counts: int64 [num_records], how often each record was used.
    """

    def __init__(self, variables: Sequence[tf.Variable], **objects: Any) -> None:
        self._variables = variables
        super().__init__(
            bcast_object=hvd.broadcast_object, get_rank=hvd.rank, **objects
        )

    def save(self) -> None:
        """Keeps what is now, to go back to."""
        self._values = [variable.numpy() for variable in self._variables]
        super().save()

    def restore(self) -> None:
        """Goes back to what was kept."""
        for variable, value in zip(self._variables, self._values, strict=True):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Gives every rank what rank 0 has."""
        hvd.broadcast_variables(self._variables, root_rank=0)
        super().sync()
        self.save()


def run_elastic(
    variables: Sequence[tf.Variable],
    work: Callable[[Ranks, Committed], Result],
    **objects: Any,
) -> Result:
    """Calls work, and again whenever the ranks have changed, from the last commit on.

    Raises:
        ValueError: If elastic Horovod did not start this process.
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
    """Joins the run that horovodrun started, or makes a run of one rank.

    Rank r takes local GPU r, where there are GPUs. Call it before TensorFlow is used.

    Raises:
        ValueError: If horovodrun started this process and Horovod is not installed.
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
    _take_gpu(ranks.local_rank)
    return ranks


def _current() -> Ranks:
    return Ranks(
        rank=hvd.rank(),
        num_ranks=hvd.size(),
        local_rank=hvd.local_rank(),
        num_local_ranks=hvd.local_size(),
    )


def _take_gpu(local_rank: int) -> None:
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        gpu = gpus[local_rank % len(gpus)]
        tf.config.set_visible_devices(gpu, "GPU")
        tf.config.experimental.set_memory_growth(gpu, True)


def version() -> str | None:
    """Horovod's version; None where it is not installed."""
    return None if hvd is None else str(horovod.__version__)


def main() -> int:
    """Adds up the rank numbers over all ranks and says whether the sum is right."""
    ranks = connect()
    (mean,) = ranks.average([tf.constant(float(ranks.rank))])
    total = round(float(mean) * ranks.num_ranks)
    expected = sum(range(ranks.num_ranks))
    if ranks.is_first:
        result = {"num_ranks": ranks.num_ranks, "sum": total, "expected": expected}
        print(
            json.dumps(
                {"command": "benchmarks.distributed.ranks", "schema_version": 1}
                | result
            )
        )
    return 0 if total == expected else 1


if __name__ == "__main__":
    sys.exit(main())
