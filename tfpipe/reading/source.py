"""Sources start a pipeline: windows of a TFRecord data set, or synthetic batches.

In: a data set folder with its index, or the shape of synthetic batches. Out: from a
state on, a `tf.data.Dataset` of batches, or of windows for `stages.Interleave`. A
source is any callable (state, num_epochs) -> Dataset.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tfpipe import errors
from tfpipe.location.files import Files
from tfpipe.location.location import Location
from tfpipe.reading import parts, state as state_of_run
from tfpipe.reading.order import EpochPosition, Order, Remainder, Shuffle
from tfpipe.reading.parts import Part
from tfpipe.reading.sampling import ExpectedCopies, Sampling
from tfpipe.reading.split_index import CacheChoice, SplitIndex, require_cache_choice
from tfpipe.reading.state import State
from tfpipe.reading.windows import Windows
from tfpipe.shard_cache import metadata
from tfpipe.shard_cache.generation_view import Generation
from tfpipe.shard_cache.open_cache import CacheStatistics
from tfpipe.shard_cache.settings import FillFigures, fill_part
from tfpipe.shards import generations, index, subset as subsets
from tfpipe.shards.index import Index, Shard
from tfpipe.shards.records import Ints
from tfpipe.shards.subset import Chosen, Subset
from tfpipe.stages.iterations import counters

OnError = Literal["raise", "skip"]
Reading = Literal["auto", "native", "tensorflow"]


@dataclasses.dataclass(frozen=True)
class TFRecordSource:
    """Windows of one rank's share of a split, epoch after epoch.

    The index is read, and the sizes of all shards are checked, when the source is made.
    Shards without an index are scanned for their records, once; see `scan.scan`.

    Element: window of w records in x extents.
        path: string [x], the shard of every extent
        origin: string [x], the shard's path or URL; absent without a shard cache
        byte_offset, num_records, first_record: int64 [x], the extent in its shard
        record_byte_offset, record_num_bytes: int64 [w], the byte offset of every record
            in its shard, and its size with header and footer; in reading order
        shuffle_seed: int64 [2], seed of the permutation; absent without shuffling
        skip, take: int64, the records to pass on, after the permutation
        is_real: bool, False if the records only fill up the last batch
        has_right_lengths: bool, False if a header states another length than the index
        epoch_seed: int64 [take], the epoch's half of the seed of random ops, for every
            record passed on; copies of a record have different seeds

    Example:
        >>> source = tfpipe.TFRecordSource("DIR", "train", batch_size=8)
        >>> source.steps_per_epoch
        3

    Args:
        data_dir: Folder or URL with index.json, catalog.parquet and the shards.
        split: `train`, `validation` or `test`; with `files` any name.
        files: Pattern of the shards' names, for shards of other tools: a pattern of
            `pathlib.Path.glob` below the folder, such as "part-*.tfrecord" or
            "**/*.tfrec". The shards are sorted by name, 2 before 10, and scanned; an
            index is then not read. Compressed shards are refused, and so are shards
            whose names say different splits, unless `split` is no such name ("all").
        shard_cache: How the shards are read. "auto" reads a local folder in place, and
            a URL through a `ShardCache` in $TFPIPE_SHARD_CACHE, or without it in
            ~/.cache/tfpipe/shards. A `ShardCache` is used for a URL and for a folder,
            such as a shared mount. "direct" reads a URL with tensorflow-io.
        subset: A `Subset`, or the path of a file that `python -m converters.query
            --save` wrote. Only the chosen records of the split are read. A record keeps
            its number in the split, and so its random augmentation. None reads all
            records.
        part: ("train", share) or ("validation", share), to take both from one split: a
            share of its records, such as 0.1, is for validation, about as much of each
            class, and all others are for training. None reads both.
        seed: Run seed, 0 to 2**64 - 1; the same on every rank.
        rank: Number of this rank, 0 to num_ranks - 1.
        num_ranks: Number of ranks.
        batch_size: Examples in a batch of this rank. All ranks make the same number of
            steps, and a batch never holds records of two epochs.
        shuffle: "window", "full" or "none"; see `order.Order`.
        remainder: "drop" leaves out the records that do not fill a step on every rank,
            other records in every epoch; "pad" leaves out no record and fills the last
            batch with records that are marked as not real.
        block_length: Records of a block, the longest range that is read at once.
        window_size: Records of a window; two windows are in memory, encoded.
        sampling: How often each record comes in an epoch, see `Sampling`; it needs a
            shuffle. None is once.
        affinity: Number of epochs for which a host reads the same part of the records,
            so that its shard cache need only hold this part. Each record still comes
            once an epoch. More epochs fetch less, and the records of different hosts
            come together less often. None shares the records anew in every epoch.
        hosts: With affinity the number of each rank's host, such as (0, 0, 1, 1); the
            same on every rank. None is a single host.
        on_error: The presets' answer to a record that is damaged or cannot be decoded.
            "raise" stops and names the record; "skip" reads another record instead and
            counts the fault in `pipeline.faults`; a shard without an index that is cut
            short is read up to the cut. A file that cannot be read, for example because
            too many files are open, stops the run either way.
        max_faults: Number of records that may be skipped; a further fault raises an
            error.
        reading: Who reads in a preset: "native" is the native op, for whole batches,
            in a folder or through a `ShardCache`; "auto" is "native" where the native
            op can read, or else TensorFlow.
        generation: Generation of a growing data set: its number, or "latest", the
            newest when the source is made. The field then holds the number. Ranks need
            the same number: a rank reads "latest", and sends its number to the others.
        refresh: Whether `at_state` takes the newest generation for a new epoch.

    Raises:
        BadIndexError: If the index or a shard is missing or wrong.
        BadSubsetError: If the subset belongs to other data, cannot be read, or has no
            record of the split.
        RemoteError: If a URL cannot be read.
        ValueError: If an argument is wrong, or an epoch has no step.
    """

    data_dir: str | os.PathLike[str]
    split: str = "train"
    _: dataclasses.KW_ONLY
    files: str | None = None
    shard_cache: CacheChoice = "auto"
    subset: str | os.PathLike[str] | Subset | None = None
    part: Part | None = None
    seed: int = 0
    rank: int = 0
    num_ranks: int = 1
    batch_size: int = 1
    shuffle: Shuffle = "window"
    remainder: Remainder = "drop"
    block_length: int = 32
    window_size: int = 1024
    sampling: Sampling | None = None
    affinity: int | None = None
    hosts: Sequence[int] | None = None
    on_error: OnError = "raise"
    max_faults: int = 100
    reading: Reading = "auto"
    generation: Generation = "latest"
    refresh: bool = False

    def __post_init__(self) -> None:
        _check(self)

    def __getstate__(self) -> dict[str, Any]:
        # A copy reads the index again. It opens a shard cache of its own.
        names = [field.name for field in dataclasses.fields(self)]
        return {name: getattr(self, name) for name in names}

    @functools.cached_property
    def split_index(self) -> SplitIndex:
        """The shards of the split, and the byte offsets of its records."""
        return SplitIndex(
            self.data_dir,
            self.split,
            self.files,
            self.shard_cache,
            skips_damage=self.on_error == "skip",
            generation=self.generation,
        )

    @property
    def index(self) -> Index:
        """The index of the data set, from index.json or from a scan of the shards."""
        return self.split_index.whole

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards of the split, in order."""
        return self.split_index.shards

    @property
    def paths(self) -> list[str]:
        """The path or URL from which TensorFlow reads each of `shards`."""
        return self.split_index.paths

    @property
    def index_folder(self) -> str:
        """A folder of this machine with the index and the catalog."""
        return self.split_index.storage.folder

    def cache_statistics(self) -> CacheStatistics | None:
        """Returns the figures of the shard cache; None without a shard cache."""
        cache = self.split_index.open_cache
        return None if cache is None else cache.statistics()

    def fill_cache(
        self, on_progress: Callable[[int, int], object] | None = None
    ) -> FillFigures:
        """Brings the records of this rank's host into its shard cache, before a run.

        With affinity the host has a part, otherwise all records. Arguments and errors
        are as for `ShardCache.fill`.

        Raises:
            ValueError: If the source has no shard cache.
        """
        ranges = self.order.records_of_host(self.rank)
        return fill_part(self.split_index.open_cache, ranges, on_progress)

    def close_cache(self) -> None:
        """Ends the fetching of the shard cache; datasets that read through it fail."""
        cache = self.split_index.open_cache
        if cache is not None:
            cache.close()

    @functools.cached_property
    def chosen(self) -> Chosen | None:
        """The records of the subset and the part; None is all records of the split."""
        chosen = None
        if isinstance(self.subset, Subset):
            chosen = self.subset.of_split(self.index, self.split)
        if self.part is None:
            return chosen
        name, share = self.part
        is_here = self.split_index.are_for_validation(share) == (name == "validation")
        sizes = self.split_index.shard_sizes
        return (chosen or Chosen.of_all(sizes)).where(is_here, sizes)

    @functools.cached_property
    def record_numbers(self) -> Ints | None:
        """int64, rising: the numbers of `chosen` in the split; None is all records."""
        if self.chosen is None:
            return None
        return self.chosen.numbers(self.split_index.shard_sizes)

    @functools.cached_property
    def order(self) -> Order:
        """The order of the records, as arithmetic."""
        sizes = self.split_index.shard_sizes
        if self.chosen is not None:
            sizes = np.bincount(self.chosen.shard, minlength=len(sizes))
        return Order(
            shard_sizes=sizes,
            chosen=self.record_numbers,
            seed=self.seed,
            shuffle=self.shuffle,
            block_length=self.block_length,
            window_size=self.window_size,
            num_ranks=self.num_ranks,
            batch_size=self.batch_size,
            remainder=self.remainder,
            expected_copies=_expected_copies(self),
            affinity=self.affinity,
            hosts=None if self.hosts is None else tuple(self.hosts),
        )

    @functools.cached_property
    def digest(self) -> str:
        """A digest of all that must be equal on every rank and in a resumed run.

        The digest covers the shards with their digests, the split, the records of a
        subset, the seed, the sampling, the affinity and the shuffling. It covers
        neither the rank nor the number of ranks and hosts.
        """
        numbers = (self.seed, self.block_length, self.window_size)
        copies, chosen = self.order.expected_copies, self.chosen
        # Without these choices older versions of tfpipe give the same digest.
        order = (
            *(self.split, numbers, self.shuffle, self.remainder),
            *((copies.digest,) if copies else ()),
            *(() if chosen is None else ("subset", chosen.digest)),
            *(() if self.affinity is None else ("affinity", self.affinity)),
        )
        return index.digest(repr((index.rows_of(self.shards), order)))

    @functools.cached_property
    def data_digest(self) -> str:
        """A digest of the shards of the split with their digests, in any order."""
        return index.digest(repr(index.rows_of(self.shards)))

    @property
    def index_digest(self) -> str:
        """The digest of index.json; "" for a growing data set, and after a scan."""
        return self.split_index.digest

    @functools.cached_property
    def tags(self) -> str:
        """A digest of the ETags of the shards; "" unless each shard has one."""
        return metadata.tags_digest(self.split_index.tags)

    @property
    def steps_per_epoch(self) -> int:
        """Steps that every rank makes in an epoch."""
        return self.order.num_steps()

    def newest_generation(self) -> int:
        """Returns the number of the newest generation; 0 for a usual data set.

        Raises:
            BadIndexError: If the log of the data set is damaged.
            RemoteError: If the data set cannot be read.
        """
        storage = self.split_index.storage
        if not storage.generation:
            return 0
        return len(generations.read_log(Files(storage.location)))

    def at_state(
        self, state: State, *, newest: int | None = None
    ) -> tuple["TFRecordSource", State]:
        """Returns the source and the state with which a run goes on.

        In the middle of an epoch, the source reads the generation of the state. At the
        beginning of an epoch, a source with `refresh` reads the newest generation.

        Example:
            >>> source = tfpipe.TFRecordSource("DIR", "train", batch_size=8)
            >>> source, state = source.at_state(tfpipe.State())

        Args:
            state: Where the run is.
            newest: Number of the generation for a new epoch, the same on every rank;
                needed with `refresh` and several ranks. None reads the data set.

        Raises:
            ValueError: If several ranks would read the data set, each at its own time.
            BadIndexError: If there is no such generation.
            RemoteError: If the data set cannot be read.
        """
        if not (is_of := self.split_index.storage.generation):
            return self, state
        wanted = state.generation or is_of
        if self.refresh and not state.step and not state.phases:
            if newest is None and self.num_ranks > 1:
                raise ValueError(
                    "TFRecordSource.at_state needs newest for several ranks: call "
                    "newest_generation() on one rank, and send it to all others."
                )
            wanted = self.newest_generation() if newest is None else newest
            state = dataclasses.replace(state, digest="", data="", tags="")
        state = dataclasses.replace(state, generation=wanted)
        if wanted == is_of:
            return self, state
        return dataclasses.replace(self, generation=wanted), state

    def position(self, state: State) -> EpochPosition:
        """Returns the position of a state in the order of this source.

        Raises:
            ValueError: If the state belongs to other data or another order.
        """
        state_of_run.require_same_data(state, self)
        return state_of_run.position(state, self.order)

    def advance(self, state: State, num_steps: int = 1) -> State:
        """Returns the state `num_steps` later."""
        later = state_of_run.advance(self.position(state), self.order, num_steps)
        return dataclasses.replace(
            later,
            digest=self.digest,
            data=self.data_digest,
            tags=self.tags,
            generation=self.split_index.storage.generation,
        )

    def num_steps(self, state: State, num_epochs: int | None) -> int | None:
        """Returns the steps from a state on in `num_epochs` epochs; None is endless."""
        return state_of_run.num_steps(state, self.order, num_epochs)

    def num_records(self, state: State, num_epochs: int | None) -> int | None:
        """Returns the records this rank reads in `num_steps`; None is endless."""
        steps = self.num_steps(state, num_epochs)
        return None if steps is None else steps * self.batch_size

    def window_starts(self, state: State) -> Iterator[int]:
        """Yields the number of records between a state and every window: 0, and so on.

        Epochs never end. `Interleave` reads a whole window while it uses the last
        window.
        """
        return self.order.window_starts(self.rank, self.position(state))

    def in_order(self) -> "TFRecordSource":
        """Returns a source of the same records on one rank, in disk order.

        Nothing is checked again: a shard may be damaged by now.
        """
        source = object.__new__(TFRecordSource)
        kept = {n: v for n, v in vars(self).items() if n not in ("order", "digest")}
        alone = {"rank": 0, "num_ranks": 1, "batch_size": 1}
        in_order = {"shuffle": "none", "remainder": "drop", "sampling": None}
        in_order |= {"affinity": None, "hosts": None}
        vars(source).update(kept | alone | in_order)
        return source

    def locate(self, record_id: int) -> tuple[str, int]:
        """Returns the path or URL of a record's shard, and the record's byte offset."""
        split = self.split_index
        ends = np.cumsum(split.shard_sizes)
        shard = int(np.searchsorted(ends, record_id, side="right"))
        offset = split.spans.byte_offsets(np.array([record_id]))[0]
        return split.origins[shard], int(offset)

    def read_again(self, record_id: int) -> bytes | None:
        """Returns a record that was damaged on its way, as its store has it.

        Returns:
            The record with header and footer; None without a shard cache, or if the
            store has the same damage.

        Raises:
            RemoteError: If the store does not answer.
        """
        cache = self.split_index.open_cache
        return None if cache is None else cache.read_again(record_id)

    def __call__(self, state: State, num_epochs: int | None) -> tf.data.Dataset:
        begin = self.position(state)
        passed = begin.epoch - state.epoch
        return windows_of(self).dataset(begin, num_epochs and num_epochs - passed)

    def continued(self, state: State, num_epochs: int) -> tf.data.Dataset:
        """Returns the same windows, but every iteration has the next `num_epochs`.

        Only the first iteration begins at the state, in the middle of an epoch or not.
        """
        begin = self.position(state)
        return windows_of(self).dataset(begin, num_epochs, is_continued=True)


def _expected_copies(source: TFRecordSource) -> ExpectedCopies | None:
    """Returns how often each record is drawn in an epoch; None is once."""
    if source.sampling is None:
        return None
    split, chosen = source.split_index, source.chosen
    return source.sampling.expected_copies(
        int(split.shard_sizes.sum()),
        lambda: split.labels,
        split.whole.classes,
        chosen=source.record_numbers,
        weight=None if chosen is None else chosen.weight,
    )


def windows_of(source: TFRecordSource) -> Windows:
    """Returns the windows of the rank of a source."""
    split = source.split_index
    return Windows(
        order=source.order,
        rank=source.rank,
        paths=split.paths,
        origins=split.origins,
        shard_sizes=split.shard_sizes,
        spans=split.spans,
        is_unchecked=split.is_unchecked,
        mtimes=split.mtimes,
        cache=split.open_cache,
        version=split.version,
    )


def _check(source: TFRecordSource) -> None:
    location = Location.from_user("data_dir", source.data_dir, owner=source)
    if not location.is_local:
        errors.settle(source, "data_dir", location.text)
    require_cache_choice(source, "shard_cache", source.shard_cache)
    sizes = ("num_ranks", "batch_size", "block_length", "window_size")
    errors.settle_ints(source, sizes, least=1)
    errors.settle_ints(source, ["rank", "max_faults"], least=0)
    errors.require_choice(source, "on_error", source.on_error, ("raise", "skip"))
    readers = ("auto", "native", "tensorflow")
    errors.require_choice(source, "reading", source.reading, readers)
    errors.require_kind(source, "sampling", source.sampling, Sampling, or_none=True)
    errors.settle_ints(source, ["seed"], least=0, most=errors.MOST_SEED)
    errors.settle_ints(source, ["affinity"], least=1, also=[None])
    if source.hosts is not None:
        errors.settle(source, "hosts", tuple(source.hosts))
    if source.rank >= source.num_ranks:
        raise ValueError(
            "TFRecordSource.rank must be 0 to num_ranks - 1 = "
            f"{source.num_ranks - 1}, got {source.rank}."
        )
    _check_files(source, location)
    errors.settle_bools(source, "refresh")
    errors.settle_ints(source, ["generation"], least=1, also=["latest"])
    source.split_index.check()
    if is_of := source.split_index.storage.generation:
        # All copies of the source read the same generation.
        errors.settle(source, "generation", is_of)
    if source.subset is not None:
        # All copies of the source read the same records, even if the file changes.
        subset = subsets.require(source, "subset", source.subset)
        errors.settle(source, "subset", subset)
    if source.part is not None:
        errors.settle(source, "part", parts.require(source, "part", source.part))
    # A bad catalog or cache is reported when the source is made.
    windows_of(source).require_room()


def _check_files(source: TFRecordSource, location: Location) -> None:
    errors.require_kind(source, "files", source.files, str, or_none=True)
    if source.files is not None and (not source.files or source.files[0] == "/"):
        raise ValueError(
            "TFRecordSource.files must be a pattern relative to data_dir, such as "
            f"'*.tfrecord', got {source.files!r}."
        )
    is_in_place = location.is_local and source.shard_cache == "auto"
    if source.files is not None and not is_in_place:
        raise ValueError(
            "TFRecordSource.files needs a folder that is read in place, as the shards "
            f"are scanned; got {source.data_dir} with shard_cache="
            f"{source.shard_cache!r}. Write an index beside the shards: python -m "
            "converters.verify FOLDER --level=crc --write_index."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticSource:
    """Repeats one random batch: input that costs nothing.

    Element: batch.
        image: `dtype` [batch_size, height, width, 3], 0..255
        label: int32 [batch_size], 0..num_classes - 1

    Example:
        >>> source = tfpipe.SyntheticSource(batch_size=4, image_size=32)
        >>> batch = next(iter(tfpipe.Pipeline(source, []).build()))
        >>> batch["image"].shape
        TensorShape([4, 32, 32, 3])

    Args:
        batch_size: Examples in a batch.
        steps_per_epoch: Batches in an epoch.
        image_size: Height and width in pixels: one number, or (height, width).
        num_classes: Number of classes that labels are drawn from.
        dtype: Type of the image.
        seed: Seed of the images and the labels.
    """

    batch_size: int
    steps_per_epoch: int = 1000
    image_size: int | tuple[int, int] = 224
    num_classes: int = 1000
    dtype: str = "uint8"
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = ("batch_size", "steps_per_epoch", "num_classes")
        errors.settle_ints(self, sizes, least=1)
        errors.settle_sides(self, "image_size")
        errors.settle_ints(self, ["seed"], least=0)
        dtypes = ("uint8", "float32", "bfloat16", "float16", "int32", "float64")
        errors.require_choice(self, "dtype", self.dtype, dtypes)

    def __call__(self, state: State, num_epochs: int | None) -> tf.data.Dataset:
        batch = tf.data.Dataset.from_tensors(self._batch())
        return batch.repeat(self.num_steps(state, num_epochs))

    def continued(self, state: State, num_epochs: int) -> tf.data.Dataset:
        """Returns the same batches; only the first iteration begins at the state."""
        steps = [self.num_steps(each, num_epochs) or 0 for each in (state, State())]
        batch = self._batch()
        return counters(*steps).map(lambda _: batch)

    def _batch(self) -> dict[str, tf.Tensor]:
        random = np.random.default_rng(self.seed)
        sides = errors.require_sides(self, "image_size", self.image_size)
        shape = (self.batch_size, *sides, 3)
        pixels = random.integers(0, 256, shape, dtype=np.uint8)
        labels = random.integers(self.num_classes, size=self.batch_size)
        return {
            "image": tf.cast(pixels, self.dtype),
            "label": tf.constant(labels, tf.int32),
        }

    def window_starts(self, state: State) -> Iterator[int]:
        """Yields nothing, because nothing is read."""
        return iter(())

    def advance(self, state: State, num_steps: int = 1) -> State:
        """Returns the state `num_steps` later."""
        epochs, step = divmod(state.step + num_steps, self.steps_per_epoch)
        return dataclasses.replace(state, epoch=state.epoch + epochs, step=step)

    def num_steps(self, state: State, num_epochs: int | None) -> int | None:
        """Returns the steps from a state to the end of `num_epochs`; None is endless.

        Raises:
            ValueError: If an epoch has fewer steps than the state says.
        """
        if state.step > self.steps_per_epoch:
            raise ValueError(
                f"An epoch has {self.steps_per_epoch} steps, got a start at step "
                f"{state.step} of it."
            )
        if num_epochs is None:
            return None
        return num_epochs * self.steps_per_epoch - state.step
