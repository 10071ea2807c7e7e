"""The page cache around a run: measured in every epoch, and kept cold if claimed.

In: the files, and the batches of a rank. Out: the reads of every rank by epoch. A cold
run empties the page cache of the data when the timing begins and after every epoch. The
pipeline ends before and starts again after, because records read ahead would come from
memory otherwise.
"""

import concurrent.futures
import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tfpipe
from benchmarks.distributed.ranks import Ranks
from benchmarks.page_cache import reads, states
from benchmarks.page_cache.files import OpenFiles
from benchmarks.page_cache.reads import EpochReads, Snapshot
from benchmarks.page_cache.states import PageCache
from benchmarks.system.machine import Host

Pause = Callable[[], AbstractContextManager[None]]
Moment = concurrent.futures.Future[Snapshot]


class Meter:
    """Measures the bytes from storage in timed epochs; keeps a cold run cold.

    All ranks call every method together.

    Args:
        fetched: Returns the statistics of the rank's shard cache; None without one.
        batches: `training.cache_state.Batches` of the rank in a cold run, which stops
            and starts the batches; otherwise None.
        state: Begin of the timed steps if there is no warm-up; the page cache is then
            in the state after `states.prepare`.
    """

    def __init__(
        self,
        files: Sequence[str],
        ranks: Ranks,
        *,
        fetched: Callable[[], Any],
        record_bytes: float,
        batches: Any = None,
        state: tfpipe.State | None = None,
    ) -> None:
        self._files, self._ranks, self._batches = files, ranks, batches
        self._record_bytes, self._fetched = record_bytes, fetched
        self._cache = PageCache.of_files(files)
        self._looks = states.led_by(ranks, files) is not None and bool(files)
        self._held: OpenFiles | None = None
        # A thread looks at the files, because no step may wait for it.
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._epochs: list[tuple[int, Moment, Moment]] = []
        self._begin: tuple[int, Moment] | None = None
        if state is not None:
            self._begin = (state.epoch, self._look())

    def start(self, state: tfpipe.State) -> None:
        if self._batches is not None:
            self._stop()
        self._restart(state)

    def end_epoch(self, state: tfpipe.State, pause: Pause, *, is_last: bool) -> None:
        """Ends an epoch and begins the next epoch at a state.

        In warm-up and after the last step there is nothing to do. Only a cold run
        pauses, because its input reads nothing meanwhile.
        """
        if self._begin is None or is_last:
            return
        if self._batches is None:
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

    def finish(self, num_examples: Callable[[int], int]) -> list[list[EpochReads]]:
        """Ends the timed steps; returns the reads of every rank by epoch.

        Args:
            num_examples: Returns the examples in the rank's timed steps of an epoch.
        """
        if self._begin is not None:
            self._epochs.append((*self._begin, self._look()))
        self._thread.shutdown()
        here = Host.here()
        epochs = [
            EpochReads(
                epoch=epoch,
                cache=self._cache,
                host=here,
                consumed_bytes=num_examples(epoch) * self._record_bytes,
                before=before.result(),
                after=after.result(),
            )
            for epoch, before, after in self._epochs
        ]
        return self._ranks.gather(epochs)

    def _look(self) -> Moment:
        return self._thread.submit(self._snapshot, self._fetched())

    def _snapshot(self, fetched: Any) -> Snapshot:
        if self._looks and self._held is None:
            # The files of a shard cache may come with the records.
            with contextlib.suppress(OSError):
                self._held = OpenFiles(self._files)
        return reads.snapshot(self._held, fetched=fetched)

    def _stop(self) -> None:
        self._batches.stop()
        self._ranks.gather(None)  # until no rank reads any more

    def _restart(self, state: tfpipe.State) -> None:
        """Begins an epoch; a cold epoch waits for the counters of all ranks."""
        if self._batches is not None:
            states.prepare("cold", self._files, self._ranks, drops_all=False)
            self._batches.start(state, 1)
        self._begin = (state.epoch, self._look())
        self._begin[1].result()
        self._ranks.gather(None)
