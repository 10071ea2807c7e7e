"""The batches of a pipeline as NumPy arrays, for training with JAX or PyTorch.

In: a function that builds datasets, and the arguments of `Pipeline.build`. Out: an
iterable with a length; every iteration is the next epoch.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfpipe import errors
from tfpipe.reading.state import State
from tfpipe.stages.basic import as_it_is
from tfpipe.stages.traced import as_they_are


class NumpyBatches:
    """Batches as NumPy arrays; an iteration gives the epochs after the last iteration.

    The first iteration gives the epochs that `build` gives with the same arguments. The
    second iteration gives the same number of epochs after them, and so on. A broken off
    iteration counts as a whole. An endless iteration begins in the epoch after the
    first epoch of the iteration before. A copy, also a pickled one, goes on by itself.

    Element: the element of the pipeline, with arrays in place of tensors.

    Args:
        build: `Pipeline.build`.
        writable: Whether arrays may be written to. An array is then a copy: writing a
            batch to memory once more takes time. Otherwise an array is the memory of
            the tensor.
        arguments: The arguments of `build`.
        ops: Callables batch -> batch to apply on the host.

    Raises:
        ValueError: If an argument is wrong.
    """

    def __init__(
        self,
        build: Callable[..., tf.data.Dataset],
        writable: bool,
        arguments: dict[str, Any],
        ops: Sequence[Callable[[Any], Any]],
    ) -> None:
        self._writable = errors.require_bool("", "writable", writable)
        self._build, self._arguments, self._ops = build, arguments, ops
        self._built: tf.data.Dataset | None = None
        self._built = self._dataset()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_built": None}  # the copy builds a dataset of its own

    def __iter__(self) -> Iterator[Any]:
        dataset, self._built = self._dataset(), None
        self._arguments = _after(**self._arguments)
        iterator: Iterator[Any] = dataset.as_numpy_iterator()
        return map(_copied, iterator) if self._writable else iterator

    def __len__(self) -> int:
        """Returns the number of steps of the next iteration.

        Raises:
            TypeError: If the iteration is endless, or its steps cannot be counted.
        """
        self._built = self._dataset()
        steps = int(self._built.cardinality())
        if steps == tf.data.INFINITE_CARDINALITY:
            raise TypeError(
                "The batches must be of a number of epochs to have a length, got "
                "num_epochs=None, which is endless."
            )
        if steps == tf.data.UNKNOWN_CARDINALITY:
            raise TypeError(
                "The stages must keep count of their elements for the batches to have "
                "a length, got a dataset of unknown cardinality. Put AssertCardinality "
                "after the stage that loses it."
            )
        return steps

    def _dataset(self) -> tf.data.Dataset:
        """Returns the dataset of the next iteration, built at most once."""
        if self._built is not None:
            return self._built
        ops, dataset = self._ops, self._build(**self._arguments)

        def applied(batch: Any) -> Any:
            for op in as_they_are(ops):
                batch = op(batch)
            return batch

        return dataset.map(as_it_is(applied)).prefetch(1) if ops else dataset


def _after(
    *,
    epoch: int = 0,
    num_epochs: int | None = 1,
    start_step: int = 0,
    state: State | None = None,
) -> dict[str, Any]:
    """Returns the arguments of `build` for the epochs of the next iteration."""
    first = epoch if state is None else state.epoch
    return {"epoch": first + (num_epochs or 1), "num_epochs": num_epochs}


def _copied(element: Any) -> Any:
    return tf.nest.map_structure(np.array, element)
