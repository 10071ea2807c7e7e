"""Where elements start: extents of a TFRecord data set, or synthetic examples.

In: a data set folder with its index, or a specification. Out: for an epoch, a
`tf.data.Dataset` of extents (for `stages.Interleave` to read) or of examples. A source
is any callable epoch -> Dataset; an epoch may be an int or an int64 scalar tensor.
"""

import dataclasses
import functools
import os

import numpy as np
import tensorflow as tf

from tfpipe import errors, index, order


@dataclasses.dataclass(frozen=True)
class TFRecordSource:
    """Extents of one rank's share of a split, in the order of an epoch.

    Element: extent, all scalars.
        path: string
        byte_offset, num_records, first_record: int64, see `order.Extents`
        epoch_seed: int64, what random ops of this epoch are seeded with

    The index is read, and the sizes of all shards are checked, when the source is made.

    Args:
        data_dir: Folder with index.json, catalog.parquet and the shards.
        split: `train` or `validation`.
        seed: Run seed, 0 to 2**64 - 1; the same on every rank.
        rank: This process.
        num_ranks: All processes.
        shuffle: Whether to permute blocks of records, anew each epoch.
        remainder: "drop" gives every rank the same number of records; "keep" leaves
            none out. See `order.share`.
        block_length: Records of a block.

    Raises:
        BadIndexError: If the index or a shard is missing or wrong.
        ValueError: If an argument is wrong, or there are fewer records than ranks.
    """

    data_dir: str | os.PathLike[str]
    split: str
    _: dataclasses.KW_ONLY
    seed: int = 0
    rank: int = 0
    num_ranks: int = 1
    shuffle: bool = True
    remainder: order.Remainder = "drop"
    block_length: int = 32

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(
                f"TFRecordSource.seed must be 0 to 2**64 - 1, got {self.seed}."
            )
        if self.block_length < 1:
            raise ValueError(
                f"TFRecordSource.block_length must be >= 1, got {self.block_length}."
            )
        index.check(self.index, self.data_dir, self.split)
        _ = self._layout  # the catalog must be there too
        self._share()  # raises if the ranks cannot share the records

    @functools.cached_property
    def index(self) -> index.Index:
        """The index of the data set."""
        return index.load(self.data_dir)

    @property
    def num_records(self) -> int:
        """Records that this rank reads in an epoch."""
        start, stop = self._share()
        return stop - start

    def steps_per_epoch(self, batch_size: int) -> int:
        """Steps that every rank makes in an epoch; see `order.steps_per_epoch`.

        Raises:
            ValueError: If the batch is larger than a rank's records, under "drop".
        """
        return order.steps_per_epoch(
            self.index.num_records(self.split),
            num_ranks=self.num_ranks,
            batch_size=batch_size,
            remainder=self.remainder,
        )

    def _share(self) -> tuple[int, int]:
        return order.share(
            self.index.num_records(self.split),
            rank=self.rank,
            num_ranks=self.num_ranks,
            remainder=self.remainder,
        )

    @functools.cached_property
    def _layout(self) -> order.Layout:
        shards = self.index.splits[self.split]
        catalog = index.load_catalog(self.data_dir, self.split, ["byte_offset"])
        offsets = catalog["byte_offset"].astype(np.int64)
        num_records = self.index.num_records(self.split)
        if len(offsets) != num_records:
            raise errors.BadIndexError(
                f"{index.CATALOG_NAME} in {self.data_dir} must have a row for each of "
                f"the {num_records} records of split {self.split!r}, got "
                f"{len(offsets)}. Convert the data set again."
            )
        return order.Layout(
            shard_sizes=np.array([shard.num_records for shard in shards], np.int64),
            byte_offsets=offsets,
        )

    def __call__(self, epoch: int | tf.Tensor) -> tf.data.Dataset:
        paths = [
            os.path.join(self.data_dir, shard.name)
            for shard in self.index.splits[self.split]
        ]
        # One Python call an epoch: it costs nothing beside the records.
        extents = tf.ensure_shape(
            tf.numpy_function(self._extents, [epoch], tf.int64, stateful=False),
            [5, None],
        )
        shard, byte_offset, num_records, first_record, seed = tf.unstack(extents)
        return tf.data.Dataset.from_tensor_slices(
            {
                "path": tf.gather(tf.constant(paths), shard),
                "byte_offset": byte_offset,
                "num_records": num_records,
                "first_record": first_record,
                "epoch_seed": seed,
            }
        )

    def _extents(self, epoch: np.int64) -> order.Ints:
        """int64 [5, num_extents]: the fields of the extents and the epoch's seed."""
        extents = order.epoch_extents(
            self._layout,
            seed=self.seed,
            epoch=int(epoch),
            rank=self.rank,
            num_ranks=self.num_ranks,
            shuffle=self.shuffle,
            remainder=self.remainder,
            block_length=self.block_length,
        )
        seed = order.epoch_seed(seed=self.seed, epoch=int(epoch))
        return np.stack(
            [
                extents.shard,
                extents.byte_offset,
                extents.num_records,
                extents.first_record,
                np.full_like(extents.shard, seed),
            ]
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticSource:
    """One random image and label again and again: input that costs nothing.

    Element: example.
        image: `dtype` [image_size, image_size, 3], 0..255
        label: int32, 0..num_classes - 1

    Args:
        num_records: Examples in an epoch.
        image_size: Height and width in pixels.
        num_classes: Labels to draw from.
        dtype: Type of the image.
        seed: Of the image and the label.
    """

    num_records: int
    image_size: int = 224
    num_classes: int = 1000
    dtype: str = "uint8"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_records", "image_size", "num_classes"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"SyntheticSource.{name} must be >= 1, got {getattr(self, name)}."
                )

    def __call__(self, epoch: int | tf.Tensor) -> tf.data.Dataset:
        del epoch  # every epoch is the same
        random = np.random.default_rng(self.seed)
        pixels = random.integers(0, 256, (self.image_size, self.image_size, 3))
        example = {
            "image": tf.cast(pixels, self.dtype),
            "label": tf.constant(random.integers(self.num_classes), tf.int32),
        }
        return tf.data.Dataset.from_tensors(example).repeat(self.num_records)
