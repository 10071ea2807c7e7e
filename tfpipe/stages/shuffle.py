"""Shuffle: permutes the elements of an epoch, group by group.

In: a dataset of whole epochs. Out: the same elements, every group of consecutive
elements of an epoch permuted. The groups and their permutations depend only on the
seed, the epoch and the position in the epoch, so a resumed run gets the same elements
as an uninterrupted run.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfpipe import errors
from tfpipe.stages.basic import as_it_is, counted_as, keeps_count
from tfpipe.stages.iterations import counters

if TYPE_CHECKING:
    from tfpipe.reading.building import RunFacts


@dataclasses.dataclass(frozen=True)
class Shuffle:
    """Permutes every group of `buffer_size` consecutive elements of an epoch.

    Element: any dict of dense tensors.

    Two groups are in memory: a group is passed on while the next is read. The stage
    belongs before decoding, where an element is an encoded image of about 110 kB for
    ImageNet. The permutations depend on `seed` alone; the permutations of
    `Dataset.shuffle` also depend on `tf.random.set_seed`, which Keras calls.

    A run resumed within an epoch reads the epoch from its beginning and drops the
    elements before the state. `TFRecordSource(shuffle="window")` shuffles too, and
    reads at most a single window again.

    Example:
        >>> dataset = tfpipe.Shuffle(4, seed=1)(tf.data.Dataset.range(8))
        >>> sorted(int(number) for number in dataset.take(4))
        [0, 1, 2, 3]

    Args:
        buffer_size: Number of elements in a group, >= 1.
        seed: Seed of the permutations, 0 to 2**64 - 1.
    """

    buffer_size: int
    _: dataclasses.KW_ONLY
    seed: int = 0
    # Number of the first epoch, and elements in an epoch; None is a single long epoch.
    _epochs: tuple[int, int] | None = dataclasses.field(
        default=None, repr=False, compare=False
    )
    # Elements in an iteration that goes on after the last; None begins again.
    _iteration_size: int | None = dataclasses.field(
        default=None, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        errors.settle_ints(self, ["buffer_size"], least=1)
        errors.settle_ints(self, ["seed"], least=0, most=errors.MOST_SEED)

    num_out = keeps_count

    def at_start(self, run: "RunFacts") -> "Shuffle":
        """Returns the stage with the bounds of epochs: no group spans two epochs."""
        size = run.epoch_size(self)
        if size is None:
            return self
        every = run.num_epochs * size if run.is_continued and run.num_epochs else None
        epochs = (run.state.epoch, size)
        return dataclasses.replace(self, _epochs=epochs, _iteration_size=every)

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        numbered = dataset.enumerate()
        if (size := self._iteration_size) is not None:
            numbered = tf.data.Dataset.zip((counters(size, size), dataset))
        groups = numbered.group_by_window(
            key_func=lambda position, _: self._group(position),
            reduce_func=self._permuted,
            window_size_func=self._size,
        )
        return counted_as(dataset, groups.prefetch(self.buffer_size))

    def _group(self, position: tf.Tensor) -> tf.Tensor:
        """Returns the number of the group of an element, counted from epoch 0 on."""
        if self._epochs is None:
            return position // self.buffer_size
        first, num_elements = self._epochs
        epoch, within = position // num_elements, position % num_elements
        return (first + epoch) * self._num_groups + within // self.buffer_size

    def _size(self, group: tf.Tensor) -> tf.Tensor:
        size = tf.constant(self.buffer_size, tf.int64)
        if self._epochs is None:
            return size
        before = group % self._num_groups * self.buffer_size
        return tf.minimum(size, self._epochs[1] - before)

    def _permuted(self, group: tf.Tensor, window: tf.data.Dataset) -> tf.data.Dataset:
        seed = tf.bitcast(tf.constant(self.seed, tf.uint64), tf.int64)
        elements = window.map(as_it_is(lambda _, element: element))
        return shuffled(elements, self.buffer_size, (seed, group + 1))

    @property
    def _num_groups(self) -> int:
        """Number of groups in an epoch."""
        assert self._epochs is not None
        return -(-self._epochs[1] // self.buffer_size)


def shuffled(
    dataset: tf.data.Dataset, buffer_size: Any, seed: Sequence[Any]
) -> tf.data.Dataset:
    """Shuffles a dataset with two seeds, whatever TensorFlow's global seed is.

    Args:
        dataset: Elements to shuffle.
        buffer_size: Number of elements among which the next element is drawn.
        seed: Two whole numbers or int64 scalars, not both 0: the op would then draw a
            seed of its own.
    """
    spec = dataset.element_spec
    flat = tf.nest.flatten(spec)
    variant = tf.raw_ops.ShuffleDatasetV3(
        input_dataset=tf.data.experimental.to_variant(dataset),
        buffer_size=tf.cast(buffer_size, tf.int64),
        seed=tf.cast(seed[0], tf.int64),
        seed2=tf.cast(seed[1], tf.int64),
        seed_generator=tf.raw_ops.DummySeedGenerator(),
        output_types=[item.dtype for item in flat],
        output_shapes=[item.shape for item in flat],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(variant, spec)
