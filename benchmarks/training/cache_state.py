"""The page cache around a run: brought to a state before, measured in every epoch.

In: a `Setting` and the ranks. Out: the section `cache` of the result; or an error, if
an epoch was not in the claimed state. A cold run empties the page cache of the data
when the timing begins and after each epoch. Its pipeline ends before and starts again
after, because the records that it reads ahead would come from memory otherwise.
`benchmarks.system.residency` does the work on each host.
"""

import concurrent.futures
import pathlib
import platform
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.system import cache_label, epoch_reads, residency
from benchmarks.system.cache_label import EpochCache
from benchmarks.system.epoch_reads import EpochReads, Snapshot
from benchmarks.system.residency import HostStatus
from benchmarks.training.setting import Setting
from benchmarks.training.steps import Batch

_HINTS = {
    "cold": "Another process reads the files, or the pipeline keeps records in memory.",
    "warm": "The files do not fit in memory, or somebody evicts them.",
}


Moment = concurrent.futures.Future[Snapshot]


class Batches:
    """An iterator over the batches of a pipeline, which can stop and start elsewhere.

    Args:
        build: Returns the dataset from a state on, of a number of epochs; None is
            endless.
    """

    def __init__(
        self, build: Callable[[tfpipe.State, int | None], tf.data.Dataset]
    ) -> None:
        self._build = build
        self._iterator: Iterator[Batch] | None = None

    def start(self, state: tfpipe.State, num_epochs: int | None) -> None:
        """Makes the next batch the first one after a state; nothing is read yet."""
        self._iterator = iter(self._build(state, num_epochs))

    def stop(self) -> None:
        """Ends all reading; batches that were read ahead are lost."""
        self._iterator = None  # the last reference: its threads end

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._iterator is None:
            raise RuntimeError("Batches.start must be called before a batch is read.")
        return next(self._iterator)


class Meter:
    """Measures what storage gives in each timed epoch; keeps a cold run cold.

    Every rank calls each method, and all ranks call it together.

    Args:
        setting: The setting of this rank.
        ranks: All ranks.
        batches: The batches of this rank, which a cold run stops and starts again.
    """

    def __init__(self, setting: Setting, ranks: Ranks, batches: Batches) -> None:
        self._setting, self._ranks, self._batches = setting, ranks, batches
        self._is_cold = setting.config.cache == "cold"
        looks = _has_files(setting) and ranks.local_rank == 0
        self._files = _files(setting) if looks else []
        # A thread looks at the files, because no step may wait for it.
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._epochs: list[tuple[int, Moment, Moment]] = []
        self._begin: tuple[int, Moment] | None = None

    def start(self, state: tfpipe.State) -> None:
        """Begins the timed steps at a state; to be called just before.

        Raises:
            ValueError: If the files do not leave the page cache of a host.
        """
        if self._is_cold:
            self._stop()
            self._drop(state)
        self._begin = (state.epoch, self._look())

    def end_epoch(self, state: tfpipe.State) -> None:
        """Ends an epoch and begins the next one at a state.

        Raises:
            ValueError: If the files do not leave the page cache of a host.
        """
        if self._is_cold:
            self._stop()
        now = self._end()
        if self._is_cold:
            now.result()  # before the files leave
            self._drop(state)
            now = self._look()
        self._begin = (state.epoch, now)

    def finish(self, consumed_bytes: Callable[[int], float]) -> list[EpochReads]:
        """Ends the timed steps; returns the reads of this rank in each epoch.

        Args:
            consumed_bytes: Returns the size of the records that this rank's timed steps
                used in an epoch.
        """
        self._end()
        self._thread.shutdown()
        return [
            EpochReads(
                epoch=epoch,
                host=platform.node(),
                consumed_bytes=consumed_bytes(epoch),
                before=before.result(),
                after=after.result(),
            )
            for epoch, before, after in self._epochs
        ]

    def _end(self) -> Moment:
        if self._begin is None:
            raise RuntimeError("Meter.start must be called first.")
        now = self._look()
        self._epochs.append((*self._begin, now))
        return now

    def _look(self) -> Moment:
        return self._thread.submit(epoch_reads.snapshot, self._files)

    def _stop(self) -> None:
        self._batches.stop()
        self._ranks.gather(None)  # until no rank reads any more

    def _drop(self, state: tfpipe.State) -> None:
        _look("cold", self._setting, self._ranks, host_wide=False)
        self._batches.start(state, 1)


def prepare(setting: Setting, ranks: Ranks) -> tuple[HostStatus, ...] | None:
    """Brings the page cache of every host to the state that the config names.

    Returns:
        The status of each host; None if the run reads no local files.

    Raises:
        ValueError: If a host does not reach the state.
    """
    return _look(setting.config.cache, setting, ranks) if _has_files(setting) else None


def proof(
    setting: Setting,
    ranks: Ranks,
    before: tuple[HostStatus, ...] | None,
    reads: Sequence[Sequence[EpochReads]],
) -> dict[str, Any]:
    """Checks after a run that each timed epoch was in the claimed state of the cache.

    Args:
        setting: The setting of the run.
        ranks: The ranks that are left; an elastic run may have lost some.
        before: What `prepare` returned.
        reads: For each rank what `Meter.finish` returned.

    Returns:
        The section `cache` of the result; empty if `before` is None.

    Raises:
        ValueError: If an epoch was in another state.
    """
    if before is None:
        return {}
    state = setting.config.cache
    after = _look("as_is", setting, ranks)
    epochs = join(reads, before)
    verdict = cache_label.verdict(state, before, epochs)
    if not verdict.passed:
        raise ValueError(
            f"--cache={state} must hold in every timed epoch, but {verdict.text} "
            f"{_HINTS[state]} --cache=as_is measures in any state."
        )
    return {
        "cache": {
            "state": state,
            "label": cache_label.label(epochs),
            "text": verdict.text,
            "epochs": [epoch.as_json() for epoch in epochs],
            "before": [host.as_json() for host in before],
            "after": [host.as_json() for host in after],
            "size_rule": cache_label.size_rule(
                data_bytes=before[0].num_bytes,
                ram_bytes=sum(host.ram_bytes for host in before),
                num_steps=setting.steps_per_epoch,
            ),
        }
    }


def join(
    reads: Sequence[Sequence[EpochReads]], before: Sequence[HostStatus]
) -> list[EpochCache]:
    """Joins the reads of all ranks in each timed epoch.

    Args:
        reads: For each rank what `Meter.finish` returned.
        before: The hosts before the run.
    """
    counts = all(host.counts_reads is True for host in before)
    num_bytes = max(1, before[0].num_bytes)
    joined = []
    for ranks in zip(*reads, strict=True):
        hosts = [
            [rank for rank in ranks if rank.host == host]
            for host in dict.fromkeys(rank.host for rank in ranks)
        ]
        given = [epoch_reads.storage_bytes(one, counts_reads=counts) for one in hosts]
        known = [one for one in given if one is not None]
        at_begin = [epoch_reads.resident_at_begin(one) for one in hosts]
        joined.append(
            EpochCache(
                epoch=ranks[0].epoch,
                consumed_bytes=sum(rank.consumed_bytes for rank in ranks),
                storage_bytes=sum(known) if len(known) == len(given) else None,
                resident_fractions=[
                    None if one is None else one / num_bytes for one in at_begin
                ],
            )
        )
    return joined


def _has_files(setting: Setting) -> bool:
    config = setting.config
    return not config.synthetic and "://" not in config.data_dir


def _files(setting: Setting) -> list[str]:
    source = setting.pipeline.source
    folder = pathlib.Path(setting.config.data_dir)
    return [str(folder / shard.name) for shard in source.index.splits[source.split]]


def _look(
    state: str, setting: Setting, ranks: Ranks, *, host_wide: bool | None = None
) -> tuple[HostStatus, ...]:
    return residency.prepare(
        state,
        _files(setting),
        ranks.gather,
        rank=ranks.rank,
        local_rank=ranks.local_rank,
        host_wide=host_wide,
    )
