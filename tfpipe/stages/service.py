"""Service: the stage that lets other processes or hosts do the stages before it.

In: the address of a tf.data service, see docs/service.md. Out: the elements that its
workers make. The stages before this one run on the workers, those after it here.
"""

import dataclasses
import functools
import itertools
import socket
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfpipe import errors
from tfpipe.reading import window_tensors
from tfpipe.reading.iterations import counters
from tfpipe.reading.order import Place
from tfpipe.reading.source import TFRecordSource, windows_of
from tfpipe.reading.state import State
from tfpipe.reading.window_tensors import EpochWindows, Tensors
from tfpipe.reading.windows import Windows
from tfpipe.stages.basic import AssertCardinality, Batch, Example, Prefetch, as_it_is
from tfpipe.stages.interleave import Interleave, read_extents
from tfpipe.stages.map import Map, converted
from tfpipe.stages.traced import traced

Stage = Callable[[tf.data.Dataset], tf.data.Dataset]
Array = npt.NDArray[Any]

# The feature in which an element says which records of the epoch it holds.
_POSITION = "service/position"

# Examples in a message, if `Batch` comes after the service. A message of 5 MB, as 32
# images of 224 pixels are, costs little beside its bytes.
_CHUNK_LENGTH = 32

_TIME_LIMIT = 10.0  # seconds in which the dispatcher must accept a connection


@dataclasses.dataclass(frozen=True)
class Service:
    """Lets the workers of a tf.data service do all stages before this one.

    `Interleave`, `Map`, `Batch`, `AssertCardinality` and `Prefetch` may stand before
    it. The other stages, and Python functions within an op, belong after it.

    Each pipeline, so each rank, has its own windows. A worker takes the next window
    that is left; several trainers share the workers. Each record comes once an epoch,
    and every rank makes equal steps, also if workers are killed: the records that a
    worker takes with it are asked for again. The elements are those of the pipeline
    without the service, with the same random numbers. Their order within an epoch is
    that in which the workers finish, so another run has another order, and a run that
    is resumed within an epoch repeats some records of it and leaves out as many.

    Args:
        address: "HOST:PORT" of the dispatcher.
        compress: Whether what the workers send is compressed, with Snappy. It pays only
            on networks of less than 1 Gbit/s: pixels hardly get smaller.

    Raises, when the pipeline is built:
        ConnectionError: If no dispatcher answers.
        ValueError: If a stage before this one cannot run on a worker.

    Raises, while the dataset is read:
        tf.errors.OpError: If a worker cannot read a record or an op fails.
    """

    address: str
    _: dataclasses.KW_ONLY
    compress: bool = False
    _run: "_Run | None" = dataclasses.field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        errors.require_kind(self, "address", self.address, str)
        errors.settle_bools(self, "compress")
        host, _, port = self.address.rpartition(":")
        if not host or "/" in host or not port.isdecimal() or int(port) >= 1 << 16:
            raise ValueError(
                "Service.address must be HOST:PORT of a dispatcher, such as "
                f"127.0.0.1:5050, got {self.address!r}."
            )

    def num_out(self, num_in: int) -> int:
        """Returns the number of elements that come out for `num_in` elements."""
        return num_in

    def from_state(
        self, state: State, num_epochs: int | None, *, is_continued: bool
    ) -> "Service":
        """Returns the stage with the place where the run begins, and its epochs."""
        run = _Run(state, num_epochs, is_continued)
        return dataclasses.replace(self, _run=run)

    def around(self, source: Any, stages: Sequence[object]) -> Stage:
        """Returns the stage from the source to the elements of `stages`.

        Raises:
            ConnectionError: If no dispatcher answers.
            ValueError: If the source or a stage cannot be that of a worker.
        """
        run = self._run or _Run(State(), 1, False)
        remote = _Remote(source, [*stages])
        remote.check()
        _require_dispatcher(self.address)
        return lambda _: _dataset(self, remote, run)


@dataclasses.dataclass(frozen=True)
class _Run:
    """Where a run begins; the arguments of `building.applied`."""

    state: State
    num_epochs: int | None
    is_continued: bool

    def places(self, source: TFRecordSource) -> tuple[Place, tf.data.Dataset]:
        """Returns where the first epoch begins, and the numbers of epochs from it."""
        place = source.place(self.state)
        if self.num_epochs is None:
            return place, tf.data.Dataset.range(tf.int64.max)
        first = self.num_epochs - (place.epoch - self.state.epoch)
        if self.is_continued:
            return place, counters(first, self.num_epochs)
        return place, tf.data.Dataset.range(first)


@dataclasses.dataclass(frozen=True)
class _Remote:
    """What the workers do: read windows of a source, and apply stages."""

    source: Any
    stages: Sequence[Any]

    def check(self) -> None:
        """Checks that a worker can do all of it.

        Raises:
            ValueError: If it cannot.
        """
        if not isinstance(self.source, TFRecordSource):
            raise ValueError(f"Service needs a TFRecordSource, got {self.source!r}.")
        if not self.stages or not isinstance(self.stages[0], Interleave):
            raise ValueError(f"Service must come after Interleave, got {self.stages}.")
        for stage in self.stages:
            _require_remote(stage)
        size = int(np.prod([s.batch_size for s in self.stages if isinstance(s, Batch)]))
        if self.source.window_size % size:
            raise ValueError(
                "TFRecordSource.window_size must be a multiple of the batch size "
                f"{size} if Batch comes before Service, so that a worker makes whole "
                f"batches; got {self.source.window_size}. Change it, or move Batch "
                "after Service."
            )
        nothing = {
            name: tf.zeros([n or 0 for n in spec.shape], spec.dtype)
            for name, spec in window_tensors.ARRAYS.items()
        }
        dataset = self.windows(nothing)
        for number, stage in enumerate(self.stages, start=1):
            dataset = _on_worker(stage)(dataset)
            if _calls_python(dataset):
                raise ValueError(
                    f"Stage {number} before Service must not call Python, which "
                    f"workers do not run: {stage!r}. Move such an op after Service, or "
                    "write it with TensorFlow's ops."
                )

    def windows(self, arrays: Tensors) -> tf.data.Dataset:
        """Returns the windows of the arrays of an epoch."""
        order = self.source.order
        return window_tensors.dataset(
            arrays,
            [*map(str, self.source.paths)],
            is_shuffled=order.shuffle != "none",
            has_copies=order.expected_copies is not None,
        )

    def elements(self, arrays: Tensors) -> tf.data.Dataset:
        """Returns the batches or chunks of examples that a worker sends."""
        dataset = self.windows(arrays)
        for stage in self.stages:
            dataset = _on_worker(stage)(dataset)
        if not self.has_batch:
            shapes = [item.shape for item in tf.nest.flatten(dataset.element_spec)]
            is_static = all(shape.is_fully_defined() for shape in shapes)
            dataset = dataset.batch(_CHUNK_LENGTH if is_static else 1)
        options = tf.data.Options()
        options.deterministic = True
        return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)

    @property
    def has_batch(self) -> bool:
        """Whether workers make batches."""
        return any(isinstance(stage, Batch) for stage in self.stages)

    def cardinality(self) -> int | None:
        """Returns the number of elements if a stage states it; -1 is endless."""
        count = None
        for stage in self.stages:
            if isinstance(stage, AssertCardinality):
                count = stage.num_elements
            elif count is not None and count > 0:
                count = stage.num_out(count)
        return count


def _require_remote(stage: Any) -> None:
    if not isinstance(stage, (Interleave, Map, Batch, AssertCardinality, Prefetch)):
        raise ValueError(
            "Only Interleave, Map, Batch, AssertCardinality and Prefetch may stand "
            f"before Service, got {stage!r}. Move it after Service, or write it as an "
            "op of Map."
        )
    faults = getattr(stage, "faults", None)
    if faults is not None and faults.max_faults:
        raise ValueError(
            "Workers cannot count damaged records: before Service the source must have "
            f'on_error="raise", and a FaultLog max_faults=0; got {stage!r}.'
        )


def _on_worker(stage: Any) -> Stage:
    """Returns a stage as workers do it: without Python, and with `_POSITION`."""
    if isinstance(stage, Interleave):
        read = functools.partial(
            _read, stage.num_parallel_reads, stage.read_buffer_bytes
        )
        return lambda dataset: dataset.map(as_it_is(read)).prefetch(1).unbatch()
    if isinstance(stage, Map):
        apply = converted(stage.ops, functools.partial(_apply, stage.ops))
        calls = stage.num_parallel_calls
        return lambda dataset: dataset.map(apply, num_parallel_calls=calls)
    if isinstance(stage, AssertCardinality):
        return lambda dataset: dataset  # a worker has only a part of the elements
    made: Stage = stage
    return made


def _read(
    num_parallel_reads: int | None, read_buffer_bytes: int | None, window: Example
) -> Example:
    """Returns the records that a window passes on, [take] of each feature."""
    read = traced(read_extents, num_parallel_reads, read_buffer_bytes)
    records = read(window)
    is_whole = tf.size(records["record"], tf.int64) == tf.reduce_sum(
        window["num_records"]
    )
    message = (
        "A worker of the tf.data service cannot read all records of a window. Each "
        "worker must reach the shards under the paths that the trainer uses; python -m "
        "converters.verify names damaged records. The first shards of the window:"
    )
    with tf.control_dependencies(
        [tf.debugging.Assert(is_whole, [message, window["path"]])]
    ):
        place = window["skip"] + tf.range(window["take"])
    last = window["num_real"] - 1
    passed_on = {
        name: tf.gather(value, tf.minimum(place, last))
        for name, value in records.items()
    }
    return passed_on | {
        "is_real": tf.logical_and(window["is_real"], place <= last),
        "epoch_seed": window["epoch_seed"],
        _POSITION: window["start"] + tf.range(window["take"]),
    }


def _apply(ops: Sequence[Any], example: Example) -> Example:
    """Applies ops to an example, past which its position goes."""
    position = example[_POSITION]
    example = {n: value for n, value in example.items() if n != _POSITION}
    for op in ops:
        example = op(example)
    return example | {_POSITION: position}


def _calls_python(dataset: tf.data.Dataset) -> bool:
    """Checks whether the graph of a dataset has an op that calls Python."""
    variant = tf.data.experimental.to_variant(dataset)
    text = tf.raw_ops.DatasetToGraphV2(input_dataset=variant).numpy()
    graph = tf.compat.v1.GraphDef.FromString(text)
    functions = (function.node_def for function in graph.library.function)
    return any("PyFunc" in node.op for node in itertools.chain(graph.node, *functions))


def _require_dispatcher(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _TIME_LIMIT):
            pass
    except OSError as error:
        raise ConnectionError(
            f"The dispatcher of a tf.data service must answer at {address}, got: "
            f"{error}. Start one: python -m benchmarks.service local "
            "--address=HOST:PORT"
        ) from error


def _dataset(service: Service, remote: _Remote, run: _Run) -> tf.data.Dataset:
    """Returns the elements of the epochs of a run, after the service."""
    place, numbers = run.places(remote.source)
    received = _Received(service.address, windows_of(remote.source), place)

    def epoch(number: tf.Tensor) -> tf.data.Dataset:
        token = tf.numpy_function(received.begin, [number], tf.int64)
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
            # TensorFlow looks at the options of the dataset, which cannot be told here.
            warnings.simplefilter("ignore", UserWarning)
            elements = remote.elements(arrays).apply(distribute)
        return elements.filter(
            as_it_is(lambda element: received.add(token, element[_POSITION]))
        )

    made = numbers.flat_map(as_it_is(epoch)).map(as_it_is(_without_position))
    if not remote.has_batch:
        made = made.unbatch()
    count = remote.cardinality()
    return made if count is None else AssertCardinality(count)(made)


def _without_position(element: Example) -> Example:
    return {n: value for n, value in element.items() if n != _POSITION}


class _Received:
    """Which records of an epoch were received; each iteration counts its own."""

    def __init__(self, address: str, windows: Windows, first: Place) -> None:
        self._address = address
        self._windows = windows
        self._first = first
        self._tokens = itertools.count()  # its `next` is atomic
        self._epochs: dict[int, tuple[EpochWindows, Array]] = {}
        self._rounds: dict[int, int] = {}

    def begin(self, number: Array) -> Any:
        """Begins an epoch; returns int64, the token of the iteration's epoch."""
        place = self._first
        if number:
            place = Place(place.epoch + int(number))
        token = next(self._tokens)
        epoch = window_tensors.epoch_windows(self._windows, place)
        self._epochs[token] = epoch, np.zeros(epoch.num_records, np.bool_)
        return np.int64(token)

    def arrays(self, token: tf.Tensor) -> Tensors:
        """Returns the arrays of the windows with records that were not received."""
        specs = window_tensors.ARRAYS
        types = [spec.dtype for spec in specs.values()]
        values = tf.numpy_function(self._missing, [token], types)
        for value, spec in zip(values, specs.values(), strict=True):
            value.set_shape(spec.shape)
        return dict(zip(specs, values, strict=True))

    def _missing(self, token: Array) -> list[Array]:
        epoch, is_received = self._epochs[int(token)]
        num_missing = int((~is_received).sum())
        last = self._rounds.get(int(token))
        if last == num_missing:
            raise RuntimeError(
                f"The tf.data service at {self._address} must give {num_missing} "
                "records more in this epoch, but has ended twice without them. "
                "Look at the messages of its workers."
            )
        self._rounds[int(token)] = num_missing
        if last is not None and num_missing:
            print(
                f"tfpipe: {num_missing} of {len(is_received)} records are asked for "
                f"again: a worker of the tf.data service at {self._address} is gone.",
                file=sys.stderr,
            )
        if not num_missing:
            del self._epochs[int(token)], self._rounds[int(token)]
        arrays = epoch.missing(is_received)
        return [arrays[name] for name in window_tensors.ARRAYS]

    def add(self, token: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Returns bool, whether these records are new, and counts them."""
        is_new = tf.numpy_function(self._add, [token, positions], tf.bool)
        return tf.ensure_shape(is_new, [])

    def _add(self, token: Array, positions: Array) -> Any:
        is_received = self._epochs[int(token)][1]
        were = is_received[positions]
        if were.any() and not were.all():
            raise RuntimeError("A batch of the tf.data service holds records again.")
        is_received[positions] = True
        return np.bool_(not were.any())
