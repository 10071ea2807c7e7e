"""The caches of a run: brought to a state before, and their proof after the run.

In: a `Setting` and the ranks. Out: the sections `cache` and `storage` of the result; or
an error, if an epoch was not in the claimed state. `benchmarks.page_cache` measures.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.page_cache import files, labels, states
from benchmarks.page_cache.labels import EpochCache
from benchmarks.page_cache.reads import EpochReads, Meter
from benchmarks.page_cache.states import CacheStatus
from benchmarks.system.figures import joined
from benchmarks.system.telemetry import Sampler
from benchmarks.training import caches, steps
from benchmarks.training.setting import Setting
from benchmarks.training.steps import Batch

_HINTS = {
    "cold": "Another process reads the files, or the pipeline keeps records in memory.",
    "warm": "The files do not fit in memory, or somebody evicts them.",
}


class Batches:
    """Iterates over the batches of a setting; can stop and start elsewhere."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._source: Any = setting.pipeline.source
        self._iterator: Iterator[Batch] | None = None

    def start(self, state: tfpipe.State, num_epochs: int | None) -> None:
        """Makes the next batch the first batch after a state, and begins to read ahead.

        Args:
            num_epochs: Epochs after which the batches end; None is endless.
        """
        # The steps apply the device ops, if the run has a model; none needs a reminder.
        pipeline = dataclasses.replace(self._setting.pipeline, device_ops=())
        if self._setting.empty_caches is not None:
            source = self._setting.empty_caches.renew(pipeline.source)
            pipeline = dataclasses.replace(pipeline, source=source)
        self._source = pipeline.source
        dataset = pipeline.build(state=state, num_epochs=num_epochs)
        if not self._setting.config.read_only:  # a GPU has no place for strings
            dataset = steps.to_device(dataset)
        self._iterator = iter(dataset)

    def stop(self) -> None:
        self._iterator = None  # the last reference: its threads end
        if self._setting.empty_caches is not None:
            self._setting.empty_caches.close()

    def fetched(self) -> Any:
        """Returns the statistics of the shard cache in use; None without one."""
        has_cache = self._setting.config.has_shard_cache
        return self._source.cache_statistics() if has_cache else None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._iterator is None:
            raise RuntimeError("Batches.start must be called before a batch is read.")
        return next(self._iterator)


def meter(
    setting: Setting, ranks: Ranks, batches: Batches, state: tfpipe.State | None
) -> Meter:
    """Returns the meter of a run; all ranks call it. See `Meter`."""
    return Meter(
        setting.files,
        ranks,
        fetched=batches.fetched,
        record_bytes=setting.record_bytes or 0.0,
        batches=batches if setting.config.cache == "cold" else None,
        state=state,
    )


def sampler(setting: Setting) -> Sampler:
    """Returns a sampler that watches the files of a run too."""
    names, num_bytes = setting.files, setting.num_bytes
    more = {"resident": lambda: files.resident_probe(names, num_bytes)} if names else {}
    return Sampler(more=more)


def prepare(setting: Setting, ranks: Ranks) -> tuple[CacheStatus, ...] | None:
    """Brings the caches of every machine to the state of the config.

    The caches are the page cache, a shard cache and a cache in RAM. The cache in RAM is
    filled.

    Returns:
        The status of the page caches; None if the run reads no local files.
    """
    config = setting.config
    if config.ram_cache is not None:
        caches.fill(setting.pipeline)
    if config.cache == "warm" and config.has_shard_cache:
        _fill_shard_cache(setting, ranks)
    if setting.empty_caches is not None:  # an epoch begins with a new cache
        return states.prepare("as_is", setting.files, ranks)
    return states.prepare(config.cache, setting.files, ranks) if setting.files else None


def _fill_shard_cache(setting: Setting, ranks: Ranks) -> None:
    """Fetches the split once a host. Errors are shared, as the other ranks wait."""
    error = ""
    if ranks.local_rank == 0:
        config = setting.config
        cache: Any = config.shard_cache()
        try:
            filled = cache.fill(config.data_dir, setting.source.split)
        except (ValueError, OSError, tfpipe.errors.TfpipeError) as found:
            error = str(found)
        else:
            if filled.num_bytes_present < setting.num_bytes:
                error = (
                    f"the split has {setting.num_bytes / 1e9:.3f} GB, of which "
                    f"{filled.num_bytes_present / 1e9:.3f} GB fit in the shard cache. "
                    "Raise --shard_cache_max_gb, or take a larger disk."
                )
    errors = [text for text in ranks.gather(error) if text]
    if errors:
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
        `storage`, unless the run read no records. Where the kernel does not count the
        reads, or memory is the storage, also the bytes from storage and their rate.
    """
    if setting.config.synthetic:
        return {}
    if before is None:
        return {"storage": _storage(setting, labels.join(reads, ()))}
    state = setting.config.cache
    after = states.prepare("as_is", setting.files, ranks)
    # The files of a shard cache come with the records.
    statuses = after if setting.config.has_shard_cache else before
    epochs = labels.join(reads, statuses)
    if wrong := labels.mismatch(state, before, epochs):
        raise ValueError(
            f"--cache={state} must hold in every timed epoch, but {wrong} "
            f"{_hint(setting)} --cache=as_is measures in any state."
        )
    remarks = (remark for s in before for remark in (s.remark, s.caveat) if remark)
    section = labels.section(
        before,
        epochs,
        data_bytes=setting.num_bytes,
        num_steps=setting.steps_per_epoch,
        state=state,
    )
    return {
        **({} if all(map(_is_counted, before)) else _stored(epochs, figures)),
        "storage": _storage(setting, epochs, next(remarks, "")),
        "cache": {**section, "after": [status.as_json() for status in after]},
    }


def _is_counted(status: CacheStatus) -> bool:
    return status.counts_reads is True and not status.is_memory


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


def _hint(setting: Setting) -> str:
    if not setting.config.has_shard_cache:
        return _HINTS[setting.config.cache]
    if setting.config.cache == "warm":
        return "Pieces were evicted: another run uses --shard_cache_dir too."
    return (
        "The records were fetched before the timing began, or after its end: time "
        "whole epochs (--num_epochs) of more data."
    )


def _storage(
    setting: Setting, epochs: Sequence[EpochCache], remark: str = ""
) -> dict[str, Any]:
    config = setting.config
    tier = labels.tier_of(
        ram_cache=config.ram_cache,
        has_shard_cache=config.has_shard_cache,
        folder=config.data_dir if config.is_read_in_place else None,
    )
    return labels.sources(tier, epochs, remark=remark)
