"""Service: the stage that lets other processes or hosts do the stages before it.

In: the address of a tf.data service, see docs/how_to/service.md. Out: the elements
from its workers. The stages before `Service` run on the workers, the stages after it
here.
"""

import dataclasses
import socket
import warnings

import tensorflow as tf

from tfpipe import errors, host
from tfpipe.reading import building
from tfpipe.reading.building import RunFacts
from tfpipe.reading.order import EpochPosition
from tfpipe.reading.source import windows_of
from tfpipe.service.epoch_windows import Tensors
from tfpipe.service.on_workers import POSITION, OnWorkers, Stage
from tfpipe.service.received import Received
from tfpipe.stages.basic import AssertCardinality, as_it_is, keeps_count
from tfpipe.stages.iterations import counters

_TIME_LIMIT = 10.0  # seconds in which the dispatcher must accept a connection


@dataclasses.dataclass(frozen=True)
class Service:
    """Lets the workers of a tf.data service do all stages before `Service`.

    `Interleave`, `Map`, `Batch`, `AssertCardinality` and `Prefetch` may stand before
    it. The other stages, and Python functions within an op, belong after `Service`.

    Every pipeline, so every rank, has its own windows. A worker takes the next free
    window; several trainers share the workers. A record comes once an epoch, and every
    rank makes equal steps, also if a worker is killed: start the worker again with the
    same address, and its records are asked for again. Until then the epoch goes on. An
    epoch with all its records ends without the worker; another one ends with an error
    after `lost_after_s`. The elements and their random numbers are the same as without
    the service. Their order within an epoch is the order in which the workers finish,
    so another run has another order. A run resumed within an epoch repeats some records
    of the epoch and leaves out as many.

    A pipeline with a `Service` calls `keep_freed_memory` for the process when it is
    built, as a batch arrives as a single large message.

    Example:
        >>> source = tfpipe.TFRecordSource("DIR", "train", batch_size=4)
        >>> service = tfpipe.Service("127.0.0.1:5050", lost_after_s=30)
        >>> stages = [tfpipe.Interleave(), service, tfpipe.Batch(4)]
        >>> pipeline = tfpipe.Pipeline(source, stages)

    Args:
        address: "HOST:PORT" of the dispatcher.
        lost_after_s: Seconds without an element after which a worker or dispatcher
            without an answer counts as lost, and ends the run with an error; None waits
            without a limit.
        compress: Whether the workers compress their elements, with Snappy: useful only
            on networks of less than 1 Gbit/s, as pixels hardly get smaller.

    Raises, when the pipeline is built:
        ConnectionError: If no dispatcher answers.
        ValueError: If a stage before `Service` cannot run on a worker.

    Raises, while the dataset is read:
        tf.errors.OpError: If a worker cannot read a record, an op fails, or a worker
            is lost.
    """

    address: str
    _: dataclasses.KW_ONLY
    lost_after_s: float | None = 60.0
    compress: bool = False

    def __post_init__(self) -> None:
        errors.require_kind(self, "address", self.address, str)
        errors.settle_bools(self, "compress")
        errors.settle_numbers(self, ["lost_after_s"], above=0, or_none=True)
        name, _, port = self.address.rpartition(":")
        if not name or "/" in name or not port.isdecimal() or int(port) >= 1 << 16:
            raise ValueError(
                "Service.address must be HOST:PORT of a dispatcher, such as "
                f"127.0.0.1:5050, got {self.address!r}."
            )

    num_out = keeps_count

    def around(self, run: RunFacts) -> Stage:
        """Returns the stage from the source to the elements of the workers.

        Raises:
            ConnectionError: If no dispatcher answers.
            ValueError: If the source or a stage cannot run on a worker.
        """
        remote = OnWorkers(run.source, building.interleaved(run.stages))
        remote.check()
        _require_dispatcher(self.address)
        host.keep_freed_memory()  # a message is larger than glibc would keep
        return lambda _: _dataset(self, remote, run)


def _begin(run: RunFacts) -> tuple[EpochPosition, tf.data.Dataset]:
    """Returns the position of the first epoch, and the numbers of epochs from it."""
    begin = run.source.position(run.state)
    if run.num_epochs is None:
        return begin, tf.data.Dataset.range(tf.int64.max)
    first = run.num_epochs - (begin.epoch - run.state.epoch)
    if run.is_continued:
        return begin, counters(first, run.num_epochs)
    return begin, tf.data.Dataset.range(first)


def _require_dispatcher(address: str) -> None:
    name, _, port = address.rpartition(":")
    try:
        with socket.create_connection((name.strip("[]"), int(port)), _TIME_LIMIT):
            pass
    except OSError as error:
        raise ConnectionError(
            f"The dispatcher of a tf.data service must answer at {address}, got: "
            f"{error}. Start one: python -m benchmarks.service local "
            "--address=HOST:PORT"
        ) from error


def _dataset(service: Service, remote: OnWorkers, run: RunFacts) -> tf.data.Dataset:
    """Returns the elements of the epochs of a run, after the service."""
    begin, epochs_before = _begin(run)
    windows = windows_of(remote.source)
    received = Received(service.address, windows, begin, service.lost_after_s)

    def epoch(num_before: tf.Tensor) -> tf.data.Dataset:
        token = tf.numpy_function(received.begin, [num_before], tf.int64)
        rounds = tf.data.Dataset.range(tf.int64.max).map(
            as_it_is(lambda _: received.arrays(token))
        )
        rounds = rounds.take_while(lambda arrays: tf.size(arrays["piece_window"]) > 0)
        return rounds.flat_map(as_it_is(lambda arrays: job(token, arrays)))

    def job(token: tf.Tensor, arrays: Tensors) -> tf.data.Dataset:
        distribute = tf.data.experimental.service.distribute(
            tf.data.experimental.service.ShardingPolicy.DYNAMIC,
            service.address,
            compression="AUTO" if service.compress else None,
        )
        with warnings.catch_warnings():
            # TensorFlow looks at the options of the dataset, unknown here.
            warnings.simplefilter("ignore", UserWarning)
            elements = remote.elements(arrays).apply(distribute)
        elements = received.new(token, elements)
        if service.lost_after_s is None:
            return elements
        return received.watched(token, elements)

    without = as_it_is(lambda e: {n: e[n] for n in e if n != POSITION})
    elements = epochs_before.flat_map(as_it_is(epoch)).map(without)
    if not remote.has_batch:
        elements = elements.unbatch()
    count = remote.cardinality()
    return elements if count is None else AssertCardinality(count)(elements)
