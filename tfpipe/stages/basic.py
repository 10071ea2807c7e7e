"""Small stages, Dataset -> Dataset: AssertCardinality, Batch, Prefetch and Take.

In and out: a `tf.data.Dataset`. A stage is any callable of that form; those here are
frozen dataclasses, so that a pipeline prints as what it does. The method `with_tuning`
of a stage fills its knobs that are None from the pipeline's `Tuning`.
"""

import dataclasses

import tensorflow as tf

from tfpipe import errors
from tfpipe.tuning import AUTOTUNE, Tuning

Example = dict[str, tf.Tensor]


# For functions without Python control flow on tensors: AutoGraph would take a second at
# the start of every run to find that out.
as_it_is = tf.autograph.experimental.do_not_convert


def require_positive(stage: object, name: str, *also: int | None) -> None:
    """Checks that a knob of a stage is a whole number >= 1, or one of `also`."""
    errors.settle_ints(stage, [name], least=1, also=also)


@dataclasses.dataclass(frozen=True)
class AssertCardinality:
    """States the number of elements; another number is an error at the end.

    Element: any. Equals tf.data.experimental.assert_cardinality.

    Args:
        num_elements: Number of elements, >= 0, or -1 for an endless dataset; None is
            the number of records that the source gives.
    """

    num_elements: int | None = None

    def __post_init__(self) -> None:
        if not tf.is_tensor(self.num_elements):  # `Map` gives a tensor
            also = (None, tf.data.INFINITE_CARDINALITY)
            errors.settle_ints(self, ["num_elements"], least=0, also=also)

    def with_cardinality(self, num_records: int | None) -> "AssertCardinality":
        """Returns the stage with its number set; None is an endless dataset."""
        if self.num_elements is not None:
            return self
        return AssertCardinality(
            tf.data.INFINITE_CARDINALITY if num_records is None else num_records
        )

    def num_out(self, num_in: int) -> int:
        """Returns the number of elements that come out for `num_in` elements."""
        return num_in

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        if self.num_elements is None:
            return dataset
        return dataset.apply(tf.data.experimental.assert_cardinality(self.num_elements))


@dataclasses.dataclass(frozen=True)
class Batch:
    """Stacks examples into batches. Equals tf.data.Dataset.batch.

    Element: example -> batch. Every shape is static if `drop_remainder`.

    Args:
        batch_size: Examples in a batch.
        drop_remainder: Whether a last batch that is not full is left out.
    """

    batch_size: int
    _: dataclasses.KW_ONLY
    drop_remainder: bool = True

    def __post_init__(self) -> None:
        require_positive(self, "batch_size")
        errors.settle_bools(self, "drop_remainder")

    def num_out(self, num_in: int) -> int:
        """Returns the number of elements that come out for `num_in` elements."""
        full, rest = divmod(num_in, self.batch_size)
        return full if self.drop_remainder or not rest else full + 1

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.batch(self.batch_size, drop_remainder=self.drop_remainder)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prefetch:
    """Prepares the next elements while the consumer works on the current one.

    Element: any. Equals tf.data.Dataset.prefetch.

    Args:
        buffer_size: Elements kept ready; -1 is AUTOTUNE, None is filled from the
            tuning.
    """

    buffer_size: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, "buffer_size", None, AUTOTUNE)

    def with_tuning(self, tuning: Tuning) -> "Prefetch":
        """Returns the stage with its knob set."""
        size = self.buffer_size or tuning.prefetch_buffer_size
        return Prefetch(buffer_size=size)

    def without_tuning(self) -> "Prefetch":
        """Returns the stage with its knob open."""
        return Prefetch()

    def num_out(self, num_in: int) -> int:
        """Returns the number of elements that come out for `num_in` elements."""
        return num_in

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.prefetch(self.buffer_size)


@dataclasses.dataclass(frozen=True)
class Take:
    """Passes on only the first `count` elements. Equals tf.data.Dataset.take.

    Element: any.

    Args:
        count: Number of elements, >= 1.
    """

    count: int

    def __post_init__(self) -> None:
        require_positive(self, "count")

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.take(self.count)
