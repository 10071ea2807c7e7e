"""The page cache around a run: brought to a state before, measured in every epoch.

In: a `Setting` and the ranks. Out: the section `cache` of the result; or an error, if
an epoch was not in the claimed state. A cold run empties the page cache of the data
when the timing begins and after every epoch. The pipeline ends before and starts again
after, because records read ahead would come from memory otherwise.
`benchmarks.system.residency` does the work on the hosts.
"""

import concurrent.futures
import dataclasses
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.system import cache_label, epoch_reads, residency, storage_tier
from benchmarks.system.cache_label import EpochCache
from benchmarks.system.epoch_reads import EpochReads, Snapshot
from benchmarks.system.residency import HostStatus
from benchmarks.training import caches, steps
from benchmarks.training.recorder import Trace
from benchmarks.training.setting import Setting
from benchmarks.training.steps import Batch

_HINTS = {
    "cold": "Another process reads the files, or the pipeline keeps records in memory.",
    "warm": "The files do not fit in memory, or somebody evicts them.",
}

Pause = Callable[[], AbstractContextManager[None]]
Moment = concurrent.futures.Future[Snapshot]


class Batches:
    """Iterates over the batches of a setting; can stop and start elsewhere.

    Args:
        setting: The setting of the rank.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._source: Any = setting.pipeline.source
        self._iterator: Iterator[Batch] | None = None

    def start(self, state: tfpipe.State, num_epochs: int | None) -> None:
        """Makes the next batch the first batch after a state, and begins to read ahead.

        Args:
            state: Where in the data to start.
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
        """Ends all reading; batches read ahead are lost."""
        self._iterator = None  # the last reference: its threads end
        if self._setting.empty_caches is not None:
            self._setting.empty_caches.close()

    @property
    def server_bytes(self) -> int | None:
        """Bytes fetched by the shard cache in use; None if none is."""
        if not self._setting.config.has_shard_cache:
            return None
        return int(self._source.cache_statistics().bytes_from_server)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._iterator is None:
            raise RuntimeError("Batches.start must be called before a batch is read.")
        return next(self._iterator)


class Meter:
    """Measures the bytes from storage in timed epochs; keeps a cold run cold.

    All ranks call every method together.

    Args:
        setting: The setting of the rank.
        ranks: All ranks.
        batches: The batches of the rank. A cold run stops and starts the batches.
        state: Begin of the timed steps if there is no warm-up; the page cache is then
            in the state after `prepare`.
    """

    def __init__(
        self,
        setting: Setting,
        ranks: Ranks,
        batches: Batches,
        state: tfpipe.State | None = None,
    ) -> None:
        self._setting, self._ranks, self._batches = setting, ranks, batches
        self._is_cold = setting.config.cache == "cold"
        self._files = setting.files if ranks.local_rank == 0 else []
        # A thread looks at the files, because no step may wait for it.
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._epochs: list[tuple[int, Moment, Moment]] = []
        self._begin = state and (state.epoch, self._look())

    def start(self, state: tfpipe.State) -> None:
        """Begins the timed steps at a state; to be called just before.

        Raises:
            ValueError: If the files do not leave the page cache of a host.
        """
        if self._is_cold:
            self._stop()
        self._restart(state)

    def end_epoch(
        self,
        state: tfpipe.State,
        pause: Pause,
        *,
        is_last: bool,
    ) -> None:
        """Ends an epoch and begins the next epoch at a state.

        In warm-up and after the last step there is nothing to do. Only a cold run
        pauses, because its input reads nothing meanwhile.

        Raises:
            ValueError: If the files do not leave the page cache of a host.
        """
        if self._begin is None or is_last:
            return
        if not self._is_cold:
            now = self._look()
            self._epochs.append((*self._begin, now))
            self._begin = (state.epoch, now)
            return
        with pause():
            self._stop()
            now = self._look()
            now.result()  # before the files leave
            self._epochs.append((*self._begin, now))
            self._restart(state)

    def finish(self, traces: Sequence[Trace]) -> list[list[EpochReads]]:
        """Ends the timed steps; returns the reads of every rank by epoch.

        Args:
            traces: The timed steps of every rank.
        """
        if self._begin is not None:
            self._epochs.append((*self._begin, self._look()))
        self._thread.shutdown()
        trace = traces[self._ranks.rank]
        record_bytes = self._setting.record_bytes or 0.0
        reads = [
            EpochReads(
                epoch=epoch,
                host=platform.node(),
                consumed_bytes=trace.examples_of(epoch) * record_bytes,
                before=before.result(),
                after=after.result(),
            )
            for epoch, before, after in self._epochs
        ]
        return self._ranks.gather(reads)

    def _look(self) -> Moment:
        server_bytes = self._batches.server_bytes
        return self._thread.submit(
            epoch_reads.snapshot, self._files, server_bytes=server_bytes
        )

    def _stop(self) -> None:
        self._batches.stop()
        self._ranks.gather(None)  # until no rank reads any more

    def _restart(self, state: tfpipe.State) -> None:
        """Begins an epoch; a cold epoch waits for the counters of all ranks."""
        if self._is_cold:
            _look("cold", self._setting, self._ranks, host_wide=False)
            self._batches.start(state, 1)
        self._begin = (state.epoch, self._look())
        self._begin[1].result()
        self._ranks.gather(None)


def prepare(setting: Setting, ranks: Ranks) -> tuple[HostStatus, ...] | None:
    """Brings the caches of every host to the state of the config.

    The caches are the page cache, a shard cache and a cache in RAM. The cache in RAM is
    filled.

    Returns:
        The status of the hosts; None if the run reads no local files.

    Raises:
        ValueError: If a host does not reach the state.
        TfpipeError: If the records cannot be read.
    """
    config = setting.config
    if config.ram_cache is not None:
        caches.fill(setting.pipeline)
    if config.cache == "warm" and config.has_shard_cache:
        _fill_shard_cache(setting, ranks)
    if setting.empty_caches is not None:  # an epoch begins with a new cache
        return _look("as_is", setting, ranks)
    return _look(config.cache, setting, ranks) if setting.files else None


def _fill_shard_cache(setting: Setting, ranks: Ranks) -> None:
    """Fetches the split once a host. Errors are shared, as the other ranks wait."""
    error = ""
    if ranks.local_rank == 0:
        config = setting.config
        cache = config.shard_cache()
        try:
            filled = cache.fill(config.data_dir, setting.pipeline.source.split)
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
    before: tuple[HostStatus, ...] | None,
    reads: Sequence[Sequence[EpochReads]],
) -> dict[str, Any]:
    """Checks after a run that all timed epochs were in the claimed state of the cache.

    Args:
        setting: The setting of the run.
        ranks: The remaining ranks; an elastic run may have lost some ranks.
        before: The result of `prepare`.
        reads: The result of `Meter.finish`.

    Returns:
        The section `cache` of the result, unless `before` is None, and the section
        `storage`, unless the run read no records.

    Raises:
        ValueError: If an epoch was in another state.
    """
    if setting.config.synthetic:
        return {}
    if before is None:
        return {"storage": _storage(setting, cache_label.join(reads, ()))}
    state = setting.config.cache
    after = _look("as_is", setting, ranks)
    # The files of a shard cache come with the records.
    hosts = after if setting.config.has_shard_cache else before
    epochs = cache_label.join(reads, hosts)
    verdict = cache_label.verdict(state, before, epochs)
    if not verdict.passed:
        raise ValueError(
            f"--cache={state} must hold in every timed epoch, but {verdict.text} "
            f"{_hint(setting)} --cache=as_is measures in any state."
        )
    remark = next((host.remark for host in before if host.remark), "")
    return {
        "storage": _storage(setting, epochs, remark),
        "cache": {
            "state": state,
            "label": cache_label.label(epochs),
            "text": verdict.text,
            "epochs": [epoch.as_json() for epoch in epochs],
            "before": [host.as_json() for host in before],
            "after": [host.as_json() for host in after],
            "size_rule": cache_label.size_rule(
                data_bytes=setting.num_bytes,
                ram_bytes=sum(host.ram_bytes for host in before),
                num_steps=setting.steps_per_epoch,
            ),
        },
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
    tier = storage_tier.tier_of(
        ram_cache=config.ram_cache,
        has_shard_cache=config.has_shard_cache,
        folder=config.data_dir if config.is_read_in_place else None,
    )
    return storage_tier.describe(tier, epochs, remark=remark)


def _look(
    state: str, setting: Setting, ranks: Ranks, *, host_wide: bool | None = None
) -> tuple[HostStatus, ...]:
    return residency.prepare(
        state,
        setting.files,
        ranks.gather,
        rank=ranks.rank,
        local_rank=ranks.local_rank,
        host_wide=host_wide,
    )
