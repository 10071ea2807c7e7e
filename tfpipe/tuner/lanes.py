"""The runners of a search: one for each setting, kept open from race to race.

In: a pipeline and settings of it. Out: runners. A setting that runs in several races is
built once. All settings with a cache at the same place share the cache, which is filled
once, and holds only the first records of the data set while the search goes on.
"""

import dataclasses
import math
import threading
from collections.abc import Callable, Collection

from tfpipe.cache.stage import Cache
from tfpipe.pipeline import Pipeline
from tfpipe.profiling import prefixes
from tfpipe.profiling.profile import Profile
from tfpipe.reading.source import TFRecordSource
from tfpipe.tuner import placement, race, space
from tfpipe.tuner.placement import Placement
from tfpipe.tuner.space import Setting

# A raced cache holds this many batches, or as many as the pipeline makes in so many
# seconds, whichever is more.
_FEWEST_BATCHES, _FILL_SECONDS = 8, 0.75


class Lanes:
    """The runners of a search, by setting; None is the pipeline as it was given.

    Args:
        given: The pipeline as it was given.
        bare: The same pipeline without tuning, see `space.opened`.
        time_left: Returns the seconds that are left to the search.
    """

    def __init__(
        self, given: Pipeline, bare: Pipeline, time_left: Callable[[], float]
    ) -> None:
        self.num_batches = _FEWEST_BATCHES
        self._given, self._bare, self._time_left = given, bare, time_left
        self._open: dict[Setting | None, race.Runner] = {}
        self._caches: dict[Placement, Cache] = {}
        self._released: threading.Thread | None = None

    def fill_for(self, profile: Profile) -> None:
        """Lets raced caches hold what the pipeline makes in `_FILL_SECONDS`."""
        batches = math.ceil(profile.rate.median * _FILL_SECONDS)
        self.num_batches = max(_FEWEST_BATCHES, batches)

    def pipeline(self, setting: Setting | None) -> Pipeline:
        """Returns the pipeline of a setting with the shared cache."""
        if setting is None:
            return self._given
        pipeline = setting.of(self._bare)
        if setting.cache is None:
            return pipeline
        shared = self._caches.setdefault(setting.cache, setting.cache.cache)
        stages = [shared if isinstance(s, Cache) else s for s in pipeline.stages]
        return dataclasses.replace(pipeline, stages=stages)

    def runner(self, setting: Setting | None) -> race.Runner:
        """Returns the runner of a setting; builds it if it is not open.

        Raises:
            Exception: What the pipeline raises.
        """
        if setting not in self._open:
            pipeline = self.pipeline(setting)
            first = first_records(pipeline, self.num_batches)
            runner = made(pipeline, first)
            self._open[setting] = runner
            self._fill(runner, first)
        return self._open[setting]

    def close_all_but(self, kept: Collection[Setting | None]) -> None:
        """Closes the runners of all other settings, in a thread of its own."""
        left = {s: runner for s, runner in self._open.items() if s not in kept}
        for setting in left:
            del self._open[setting]
        if left:
            self._released = race.release([*left.values()], self._released)

    def close(self) -> None:
        """Closes all runners, then the caches; those of the given pipeline stay."""
        runners, caches = [*self._open.values()], [*self._caches.values()]
        self._open.clear()
        self._caches.clear()
        self._released = race.release(runners, self._released, caches=caches)

    def _fill(self, runner: race.Runner, first: TFRecordSource | None) -> None:
        """Reads a pipeline with a cache until the cache holds all that a race reads."""
        if first is None:
            return
        # One pass fills it. Buffers and shuffles read ahead, so another half is read.
        for _ in range(math.ceil(1.5 * first.window_size / first.batch_size)):
            if self._time_left() <= 0:
                break
            runner.pull(1)


def first_records(pipeline: Pipeline, num_batches: int) -> TFRecordSource | None:
    """Returns the source whose first window races read; None without a cache.

    Args:
        pipeline: A pipeline.
        num_batches: Batches that the window holds, if the source has that many.
    """
    source = pipeline.source
    if not placement.caches(pipeline) or not isinstance(source, TFRecordSource):
        return None
    size = min(source.window_size, num_batches * source.batch_size)
    return dataclasses.replace(source, window_size=size)


def made(pipeline: Pipeline, first: TFRecordSource | None) -> race.Runner:
    """Returns a runner of the pipeline, on the first records if there is a cache.

    Otherwise a cache would not be full in the time of a race, and would look useless.

    Args:
        pipeline: A pipeline.
        first: What `first_records` returns for it.
    """
    if first is not None:
        pipeline = dataclasses.replace(pipeline, source=first)
    raced = space.with_steady_buffers(placement.of_first_window(pipeline))
    return race.Runner(prefixes.endless(raced).build(num_epochs=None))
