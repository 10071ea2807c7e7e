"""Small stages, Dataset -> Dataset: AssertCardinality, Batch, Prefetch and Take.

In and out: a `tf.data.Dataset`. A stage is any callable of this form. The stages here
are frozen dataclasses, so that a pipeline prints its work. The method `with_tuning` of
a stage fills its knobs from the pipeline's `Tuning` where they are None.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfpipe import errors
from tfpipe.tuning import AUTOTUNE, Tuning

if TYPE_CHECKING:
    from tfpipe.reading.building import RunFacts

Example = dict[str, tf.Tensor]


# For functions without Python control flow on tensors: AutoGraph would search them for
# a second at the start of every run.
as_it_is = tf.autograph.experimental.do_not_convert

# Calls of a function for an element: damage and lost files stay, and a caller that
# passes over errors must come to the next element.
MOST_TRIES = 100


def keeps_count(stage: object, num_in: int) -> int:
    """Returns the number of elements that come out for `num_in` elements: as many."""
    return num_in


def counted_as(before: tf.data.Dataset, after: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a dataset with the cardinality of another one, if it is known."""
    count = before.cardinality()
    if count == tf.data.UNKNOWN_CARDINALITY:
        return after
    return after.apply(tf.data.experimental.assert_cardinality(count))


@dataclasses.dataclass(frozen=True)
class AssertCardinality:
    """States the number of elements; another number is an error at the end.

    Element: any. Equals tf.data.experimental.assert_cardinality.

    Example:
        >>> some = tf.data.Dataset.range(5).filter(lambda n: n > 1)
        >>> len(tfpipe.AssertCardinality(3)(some))
        3

    Args:
        num_elements: Number of elements, >= 0, or -1 for an endless dataset; None is
            the number of records from the source.
    """

    num_elements: int | None = None

    def __post_init__(self) -> None:
        also = (None, tf.data.INFINITE_CARDINALITY)
        errors.settle_ints(self, ["num_elements"], least=0, also=also)

    def at_start(self, run: "RunFacts") -> "AssertCardinality":
        """Returns the stage with its number set, if the run knows it."""
        is_set = self.num_elements is not None
        return self if is_set else AssertCardinality(run.cardinality())

    num_out = keeps_count

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        if self.num_elements is None:
            return dataset
        return dataset.apply(tf.data.experimental.assert_cardinality(self.num_elements))


@dataclasses.dataclass(frozen=True)
class Batch:
    """Stacks examples into batches. Equals tf.data.Dataset.batch.

    Element: example -> batch. Every shape is static if `drop_remainder`.

    Example:
        >>> batches = tfpipe.Batch(4, drop_remainder=False)(tf.data.Dataset.range(6))
        >>> [batch.tolist() for batch in batches.as_numpy_iterator()]
        [[0, 1, 2, 3], [4, 5]]

    Args:
        batch_size: Examples in a batch.
        drop_remainder: Whether a last batch with fewer examples is left out.
    """

    batch_size: int
    _: dataclasses.KW_ONLY
    drop_remainder: bool = True

    def __post_init__(self) -> None:
        errors.settle_ints(self, ["batch_size"], least=1)
        errors.settle_bools(self, "drop_remainder")

    def num_out(self, num_in: int) -> int:
        full, rest = divmod(num_in, self.batch_size)
        return full if self.drop_remainder or not rest else full + 1

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.batch(self.batch_size, drop_remainder=self.drop_remainder)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prefetch:
    """Prepares the next elements while the consumer works on the current element.

    Element: any. Equals tf.data.Dataset.prefetch.

    Example:
        >>> len(tfpipe.Prefetch(buffer_size=2)(tf.data.Dataset.range(5)))
        5

    Args:
        buffer_size: Elements kept ready; -1 is AUTOTUNE, None is filled from the
            tuning.
    """

    buffer_size: int | None = None

    def __post_init__(self) -> None:
        errors.settle_ints(self, ["buffer_size"], least=1, also=(None, AUTOTUNE))

    def with_tuning(self, tuning: Tuning) -> "Prefetch":
        size = self.buffer_size or tuning.prefetch_buffer_size
        return Prefetch(buffer_size=size)

    def without_tuning(self) -> "Prefetch":
        return Prefetch()

    num_out = keeps_count

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.prefetch(self.buffer_size)


@dataclasses.dataclass(frozen=True)
class Take:
    """Passes on only the first `count` elements. Equals tf.data.Dataset.take.

    Element: any.

    Example:
        >>> [int(n) for n in tfpipe.Take(2)(tf.data.Dataset.range(5))]
        [0, 1]

    Args:
        count: Number of elements, >= 1.
    """

    count: int

    def __post_init__(self) -> None:
        errors.settle_ints(self, ["count"], least=1)

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.take(self.count)


def mapped_again(
    dataset: tf.data.Dataset, function: Callable[[Any], Any]
) -> tf.data.Dataset:
    """Returns `dataset.map(function)`; after an error the same element comes again.

    `Dataset.map` gives the next element after an error: that of the error is lost. Here
    the function is called again, until it has failed MOST_TRIES times: then the next
    element comes. This takes 0.1 ms more for each element. Each iterator prepares the
    function in a dataset of its own, which takes CPU-ms: the function should have a
    small graph.
    """

    def attempts(element: Any) -> tf.data.Dataset:
        # `take` counts results, and no errors.
        tries = tf.data.Dataset.from_tensors(element).repeat(MOST_TRIES)
        return tries.map(as_it_is(function)).take(1)

    return dataset.flat_map(as_it_is(attempts))


def batch_or_empty(batches: tf.data.Dataset) -> Any:
    """Returns the first batch of a dataset, or a batch of no elements if it is empty.

    Args:
        batches: Dataset of any structure of tensors [n, ...].
    """
    empty = tf.nest.map_structure(
        lambda item: tf.zeros([0, *(size or 0 for size in item.shape[1:])], item.dtype),
        batches.element_spec,
    )
    batches = batches.concatenate(tf.data.Dataset.from_tensors(empty))
    return batches.take(1).get_single_element()
