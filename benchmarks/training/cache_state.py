"""The caches of a run: brought to a state before, and their proof after the run.

In: a `Setting` and the ranks. Out: the sections `cache` and `storage` of the result; or
an error, if an epoch was not in the claimed state. `benchmarks.page_cache` measures.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.options.data_access import DataAccess
from benchmarks.page_cache import labels, states
from benchmarks.page_cache.labels import EpochCache
from benchmarks.page_cache.reads import EpochReads
from benchmarks.page_cache.states import CacheStatus
from benchmarks.system.figures import joined
from benchmarks.training import caches
from benchmarks.training.setting import Setting

# Why a claimed state did not hold, with a shard cache and without.
_HINTS = {
    ("cold", False): "Another process reads the files, or the pipeline keeps records "
    "in memory.",
    ("warm", False): "The files do not fit in memory, or somebody evicts them.",
    ("cold", True): "The records were fetched before the timing began, or after its "
    "end: time whole epochs (--num_epochs) of more data.",
    ("warm", True): "Pieces were evicted: another run uses --shard_cache_dir too.",
}


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
    error, config = "", setting.config
    if ranks.local_rank == 0:
        cache: Any = config.shard_cache()
        try:
            there = cache.fill(config.data_dir, setting.source.split).num_bytes_present
        except (ValueError, OSError, tfpipe.errors.TfpipeError) as found:
            error = str(found)
        else:
            if there < setting.num_bytes:
                error = (
                    f"the split has {setting.num_bytes / 1e9:.3f} GB, of which "
                    f"{there / 1e9:.3f} GB fit in the shard cache. Raise "
                    "--shard_cache_max_gb, or take a larger disk."
                )
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
        `storage`, unless the run read no records. Where the kernel does not count the
        reads, or memory is the storage, also the bytes from storage and their rate.
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
        num_steps=setting.steps_per_epoch,
        state=config.cache,
    )
    counted = all(s.counts_reads is True and not s.is_memory for s in before)
    return {
        **({} if counted else _stored(epochs, figures)),
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
