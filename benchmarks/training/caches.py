"""The batches of a run, and its caches: in RAM, shard caches, and the page cache.

In: the pipeline of a preset, or a `Setting`. Out: the batches; caches in the state that
a run claims, and their proof after the run, the sections `cache` and `storage` of the
result. `benchmarks.page_cache` measures.
"""

from __future__ import annotations

import atexit
import collections
import dataclasses
import math
import pathlib
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.options.config import DataAccess
from benchmarks.page_cache import labels, states
from benchmarks.page_cache.labels import EpochCache
from benchmarks.page_cache.reads import EpochReads
from benchmarks.page_cache.states import CacheStatus
from benchmarks.system.figures import joined

if TYPE_CHECKING:  # a setting has caches
    from benchmarks.training.setting import Setting

Batch = dict[str, tf.Tensor]

_CROPS = (
    *(tfpipe.RandomCrop, tfpipe.RandomScaleCrop),
    *(tfpipe.CenterCrop, tfpipe.Resize),
)
_OF_CROPS = ("quality", "dtype", "crop_op", "jpeg_only")
_KEPT = 0.875  # the customary 224 of 256 pixels
_BATCHES_AHEAD = 2  # batches copied to the GPU in advance
# Why a claimed state did not hold, with a shard cache and without.
_HINTS = {
    ("cold", False): "Another process reads the files, or the pipeline keeps records "
    "in memory.",
    ("warm", False): "The files do not fit in memory, or somebody evicts them.",
    ("cold", True): "The records were fetched before the timing began, or after its "
    "end: time whole epochs (--num_epochs) of more data.",
    ("warm", True): "Pieces were evicted: another run uses --shard_cache_dir too.",
}


@dataclasses.dataclass(frozen=True)
class RandomPart:
    """Cuts a random part out of `image`. Element: example -> example."""

    height: int
    width: int

    def __call__(self, example: Batch) -> Batch:
        size = (self.height, self.width, 3)
        part = tf.image.stateless_random_crop(example["image"], size, example["seed"])
        return example | {"image": part}


def with_images(pipeline: tfpipe.Pipeline) -> tfpipe.Pipeline:
    """Returns the pipeline of a preset with its decoded images in RAM.

    A center crop is kept as it is. A random crop differs in each epoch, so the whole
    image is kept instead: its central part, 1 / 0.875 times as large as the result. A
    random part of that, half of the time mirrored, takes the place of the crop. The
    cache keeps single examples, so the preset has whole_batches=False.
    """
    stages = [*pipeline.stages]
    maps = ((n, s) for n, s in enumerate(stages) if isinstance(s, tfpipe.Map))
    index, stage = next(maps)  # a preset with images has a map
    before, after = _parted(stage)
    stages[index : index + 1] = [before, tfpipe.Cache("ram"), after]
    return dataclasses.replace(pipeline, stages=stages)


def _parted(stage: tfpipe.Map) -> tuple[tfpipe.Map, tfpipe.Map]:
    """Returns the map to decoded images, for the cache, and the map after the cache."""
    crops = (n for n, op in enumerate(stage.ops) if isinstance(op, _CROPS))
    index = next(crops, None)
    if index is None:
        raise ValueError(f"--ram_cache=images needs a map with a crop, got {stage}.")
    before, crop, after = stage.ops[:index], stage.ops[index], stage.ops[index + 1 :]
    again: list[Any] = []
    if isinstance(crop, (tfpipe.RandomCrop, tfpipe.RandomScaleCrop)):
        height, width = crop.sides
        again = [RandomPart(height, width), *([tfpipe.Flip()] if crop.flip else [])]
        size = (math.ceil(height / _KEPT), math.ceil(width / _KEPT))
        same = {name: getattr(crop, name) for name in _OF_CROPS}
        crop = tfpipe.CenterCrop(image_size=size, fraction=1.0, **same)
    return (
        tfpipe.Map(*before, crop, faults=stage.faults),
        tfpipe.Map(*again, *after, faults=stage.faults),
    )


def fill(pipeline: tfpipe.Pipeline) -> None:
    """Fills the caches of a pipeline with all records of its split."""
    source: Any = pipeline.source
    last = max(n for n, s in enumerate(pipeline.stages) if isinstance(s, tfpipe.Cache))
    whole = dataclasses.replace(
        pipeline,
        source=source.in_order(),
        stages=pipeline.stages[: last + 1],
        device_ops=(),
    )
    collections.deque(whole.build(num_epochs=1), maxlen=0)


class EmptyCaches:
    """Gives the ranks of a host an empty shard cache after another, for cold runs.

    The caches are in a folder of their own: a cold run removes nothing of another run.
    All ranks call the methods together. A cache is removed when the next cache is made,
    and the last cache when the process ends.
    """

    def __init__(self, access: DataAccess, ranks: Ranks) -> None:
        self._access, self._is_first = access, ranks.local_rank == 0
        (name, *_) = ranks.gather(f"cold-{uuid.uuid4().hex}")
        self._folder = pathlib.Path(str(access.shard_cache_dir), name)
        self._count = 0
        self._source: Any = None
        if self._is_first:
            atexit.register(shutil.rmtree, self._folder, ignore_errors=True)

    @property
    def directory(self) -> pathlib.Path:
        return self._folder / str(self._count)

    def renew(self, source: Any) -> Any:
        """Returns a source with a new cache; readers of the last cache must stop."""
        self.close()
        if self._is_first:
            shutil.rmtree(self.directory, ignore_errors=True)
        self._count += 1
        cache = self._access.shard_cache(self.directory)
        self._source = dataclasses.replace(source, shard_cache=cache)
        return self._source

    def close(self) -> None:
        if self._source is not None:
            self._source.close_cache()
            self._source = None


def local_files(source: Any) -> list[str]:
    """Returns the paths of the local files of a source, or of its shard cache."""
    return [path for path in source.paths if tfpipe.Location(path).is_local]


def split_bytes(source: Any) -> int:
    """Returns the size of the shards of the split."""
    return sum(shard.num_bytes for shard in source.index.splits[source.split])


class Batches:
    """Iterates over the batches of a pipeline; can stop and start elsewhere.

    Args:
        empty_caches: The shard caches of a cold run; None if the run has others.
        on_device: Whether batches are copied to the GPU in advance.
    """

    def __init__(
        self,
        pipeline: tfpipe.Pipeline,
        *,
        empty_caches: EmptyCaches | None = None,
        on_device: bool = False,
    ) -> None:
        # The steps apply the device ops, if the run has a model; none needs a reminder.
        self._pipeline = dataclasses.replace(pipeline, device_ops=())
        self._empty_caches, self._on_device = empty_caches, on_device
        self._iterator: Iterator[Batch] | None = None

    def start(self, state: tfpipe.State, num_epochs: int | None) -> None:
        """Makes the next batch the first batch after a state, and begins to read ahead.

        The batches end after `num_epochs` epochs; None is endless.
        """
        if self._empty_caches is not None:
            source = self._empty_caches.renew(self._pipeline.source)
            self._pipeline = dataclasses.replace(self._pipeline, source=source)
        dataset = self._pipeline.build(state=state, num_epochs=num_epochs)
        self._iterator = iter(to_device(dataset) if self._on_device else dataset)

    def stop(self) -> None:
        self._iterator = None  # the last reference: its threads end
        if self._empty_caches is not None:
            self._empty_caches.close()

    def fetched(self) -> Any:
        """Returns the statistics of the shard cache in use; None without one."""
        look = getattr(self._pipeline.source, "cache_statistics", None)
        return look and look()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._iterator is None:
            raise RuntimeError("Batches.start must be called before a batch is read.")
        return next(self._iterator)


def to_device(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Copies batches to the GPU in advance; returns the same dataset without a GPU."""
    gpus = tf.config.list_logical_devices("GPU")
    if not gpus:
        return dataset
    return dataset.apply(
        tf.data.experimental.prefetch_to_device(gpus[0].name, _BATCHES_AHEAD)
    )


def prepare(setting: Setting, ranks: Ranks) -> tuple[CacheStatus, ...] | None:
    """Brings the page cache, shard caches and caches in RAM to the config's state.

    The status of the page caches is None if the run reads no local files.
    """
    config = setting.config
    if config.ram_cache is not None:
        fill(setting.pipeline)
    if config.cache == "warm" and config.has_shard_cache:
        _fill_shard_cache(setting, ranks)
    if setting.empty_caches is not None:  # an epoch begins with a new cache
        return states.prepare("as_is", setting.files, ranks)
    return states.prepare(config.cache, setting.files, ranks) if setting.files else None


def _fill_shard_cache(setting: Setting, ranks: Ranks) -> None:
    """Fetches the split once a host. Errors are shared, as the other ranks wait."""
    error, config = "", setting.config
    if ranks.local_rank == 0:
        cache: Any = config.shard_cache()
        try:
            there = cache.fill(config.data_dir, setting.source.split).num_bytes_present
            if there < setting.num_bytes:
                error = (
                    f"the split has {setting.num_bytes / 1e9:.3f} GB, of which "
                    f"{there / 1e9:.3f} GB fit in the shard cache. Raise "
                    "--shard_cache_max_gb, or take a larger disk."
                )
        except (ValueError, OSError, tfpipe.errors.TfpipeError) as found:
            error = str(found)
    if errors := [text for text in ranks.gather(error) if text]:
        raise ValueError(f"--cache=warm: {errors[0]}")


def proof(
    setting: Setting,
    ranks: Ranks,
    before: tuple[CacheStatus, ...] | None,
    reads: Sequence[Sequence[EpochReads]],
    figures: Mapping[str, Any],
) -> dict[str, Any]:
    """Checks after a run that all timed epochs were in the claimed state of the cache.

    Args:
        ranks: The remaining ranks; an elastic run may have lost some ranks.

    Returns:
        The section `cache` of the result, unless `before` is None, and the section
        `storage`, unless the run read no records. Where the epochs tell the bytes from
        storage, also these bytes and their rate: the kernel's count of the processes
        has reads of other files, and reads that a slow disk still owes. Where the
        kernel does not count, the bytes and the rate are those of the epochs too.
    """
    config = setting.config
    if config.synthetic:
        return {}
    if before is None:
        epochs = labels.join(reads, ())
        return {"storage": storage(config, epochs, ram_cache=config.ram_cache)}
    after = states.prepare("as_is", setting.files, ranks)
    # The files of a shard cache come with the records.
    epochs = labels.join(reads, after if config.has_shard_cache else before)
    if wrong := labels.mismatch(config.cache, before, epochs):
        raise ValueError(
            f"--cache={config.cache} must hold in every timed epoch, but {wrong} "
            f"{_HINTS[config.cache, config.has_shard_cache]} --cache=as_is measures in "
            "any state."
        )
    remarks = (remark for s in before for remark in (s.remark, s.caveat) if remark)
    section = labels.section(
        before,
        epochs,
        data_bytes=setting.num_bytes,
        num_steps=setting.source.steps_per_epoch,
        state=config.cache,
    )
    stored = _stored(epochs, figures)
    counted = all(s.counts_reads is True and not s.is_memory for s in before)
    is_better = stored["storage_bytes_read"] is not None or not counted
    return {
        **(stored if is_better else {}),
        "storage": storage(
            config, epochs, ram_cache=config.ram_cache, remark=next(remarks, "")
        ),
        "cache": {**section, "after": [status.as_json() for status in after]},
    }


def _stored(
    epochs: Sequence[EpochCache], figures: Mapping[str, Any]
) -> dict[str, float | None]:
    """Returns the bytes that storage gave to the ranks, and the rate, by the epochs."""
    stored = joined(sum, [epoch.storage_bytes for epoch in epochs])
    share = stored and stored / sum(epoch.consumed_bytes for epoch in epochs)
    rate = figures["consumed_megabytes_per_second"]
    return {
        "storage_bytes_read": stored,
        "storage_megabytes_per_second": None if share is None else rate * share,
    }


def storage(
    access: DataAccess,
    epochs: Sequence[EpochCache],
    *,
    ram_cache: str | None = None,
    remark: str = "",
) -> dict[str, Any]:
    """Returns the section `storage`: the tier, and the bytes from each source."""
    tier = labels.tier_of(
        ram_cache=ram_cache,
        has_shard_cache=access.has_shard_cache,
        folder=access.data_dir if access.is_read_in_place else None,
    )
    return labels.sources(tier, epochs, remark=remark)
