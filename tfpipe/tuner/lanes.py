"""The lanes of a search, where its settings race.

In: a pipeline and settings by name. Out: the turns of the settings that could be run. A
setting has a runner, built once and kept open from race to race. Settings with a cache
in the same position share the cache. The shared cache is filled once, and holds only
the first records of the data set while the search goes on.
"""

import dataclasses
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

import tensorflow as tf

from tfpipe.cache.stage import Cache
from tfpipe.pipeline import Pipeline
from tfpipe.profiling import prefixes
from tfpipe.profiling.profile import PipelineProfile
from tfpipe.reading.source import TFRecordSource
from tfpipe.tuner import placement, race, space, verdict
from tfpipe.tuner.placement import Placement
from tfpipe.tuner.race import Runner, Turns
from tfpipe.tuner.result import Trial, trials
from tfpipe.tuner.space import Setting
from tfpipe.tuner.time_limit import Deadline
from tfpipe.tuner.verdict import AUTOTUNE, GIVEN

# The settings of a race by name; None is the pipeline as the user gave it.
Candidates = Mapping[str, Setting | None]

# A turn takes this long, or less, so that a search has time for so many turns.
_TURN_SECONDS, _FEWEST_TURNS = 0.4, 80
# The part of a turn in which elements are read; then the buffers fill again.
_READING_SHARE = 0.8
# The part of the time in which runners are built; the rest is for their race.
_UNTIL_BUILT = 0.8
# A raced cache holds this many batches, or all batches of so many seconds if more.
_FEWEST_BATCHES, _FILL_SECONDS = 8, 0.75


class Lanes:
    """The runners of a search, by setting; None is the pipeline as the user gave it.

    Args:
        original: The pipeline as the user gave it.
        bare: The same pipeline without tuning, see `space.opened`.
        time_left: Returns the seconds that are left to the search.
    """

    def __init__(
        self, original: Pipeline, bare: Pipeline, time_left: Callable[[], float]
    ) -> None:
        self.num_batches = _FEWEST_BATCHES
        self._original, self._bare, self._time_left = original, bare, time_left
        self._open: dict[Setting | None, Runner] = {}
        self._caches: dict[Placement, Cache] = {}
        self._released: threading.Thread | None = None

    def fill_for(self, profile: PipelineProfile) -> None:
        """Lets raced caches hold what the pipeline makes in `_FILL_SECONDS`."""
        batches = math.ceil(profile.rate.median * _FILL_SECONDS)
        self.num_batches = max(_FEWEST_BATCHES, batches)

    def pipeline(self, setting: Setting | None) -> Pipeline:
        """Returns the pipeline of a setting with the shared cache."""
        if setting is None:
            return self._original
        pipeline = setting.of(self._bare)
        if setting.cache is None:
            return pipeline
        shared = self._caches.setdefault(setting.cache, setting.cache.cache)
        stages = [shared if isinstance(s, Cache) else s for s in pipeline.stages]
        return dataclasses.replace(pipeline, stages=stages)

    def runner(self, setting: Setting | None) -> Runner:
        """Returns the runner of a setting; builds the runner if it is not open.

        Raises:
            Exception: What the pipeline raises.
        """
        if setting not in self._open:
            pipeline = self.pipeline(setting)
            first = first_records(pipeline, self.num_batches)
            runner = open_runner(pipeline, first)
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
        """Closes all runners, then the shared caches."""
        runners, caches = [*self._open.values()], [*self._caches.values()]
        self._open.clear()
        self._caches.clear()
        self._released = race.release(runners, self._released, caches=caches)

    def _fill(self, runner: Runner, first: TFRecordSource | None) -> None:
        """Reads a pipeline with a cache until the cache holds all that a race reads."""
        if first is None:
            return
        # A pass fills it. Buffers and shuffles read ahead, so another half is read.
        for _ in range(math.ceil(1.5 * first.window_size / first.batch_size)):
            if self._time_left() <= 0:
                break
            runner.pull(1)


def first_records(pipeline: Pipeline, num_batches: int) -> TFRecordSource | None:
    """Returns the source whose first window races read; None without a cache.

    Args:
        pipeline: A pipeline.
        num_batches: Batches that the window holds, if the source has so many.
    """
    source = pipeline.source
    if not placement.caches(pipeline) or not isinstance(source, TFRecordSource):
        return None
    size = min(source.window_size, num_batches * source.batch_size)
    return dataclasses.replace(source, window_size=size)


def open_runner(pipeline: Pipeline, first: TFRecordSource | None) -> Runner:
    """Returns a runner of the pipeline, on the first records if there is a cache.

    Otherwise a cache would not be full in the time of a race, and would look useless.

    Args:
        pipeline: A pipeline.
        first: The result of `first_records` for the pipeline.
    """
    if first is not None:
        pipeline = dataclasses.replace(pipeline, source=first)
    raced = space.with_steady_buffers(placement.of_first_window(pipeline))
    return Runner(prefixes.endless(raced).build(num_epochs=None))


class Races:
    """The races of a search, their time, and the trials.

    The turns of the last decisive race are kept, so that a search without time left
    knows its best setting.

    Args:
        original: The pipeline as the user gave it.
        bare: The same pipeline without tuning, see `space.opened`.
        deadline: The time of the search.

    Attributes:
        lanes: The runners of the settings.
        trials: The figures of all settings that ran, or could not.
        turns: The turns of the last decisive race.
        settings: The settings of the last decisive race.
        busy_threads: Threads that are never idle, see `ProcessMeter.busy_threads`.
    """

    def __init__(self, original: Pipeline, bare: Pipeline, deadline: Deadline) -> None:
        self.lanes = Lanes(original, bare, deadline.left)
        self.trials: list[Trial] = []
        self.turns: dict[str, Turns] = {}
        self.settings: Candidates = {}
        self.busy_threads: Sequence[str] = ()
        self._deadline = deadline
        self._impossible: set[Setting | None] = set()

    def race(self, candidates: Candidates, *, num_rounds: int) -> dict[str, Turns]:
        """Races settings until the race is decided, or the time is over.

        Args:
            candidates: The settings.
            num_rounds: Most rounds of a setting.

        Returns:
            The turns of the settings that could be run and had a round.
        """
        runners = self._runners(candidates)
        # A single setting tells nothing, unless only its rate is asked for.
        if len(runners) < min(2, len(candidates)):
            return {}
        self._deadline.show(f"race of {len(runners)}")
        # A further turn empties the buffers before the first round.
        num_turns = len(runners) * (min(verdict.ENOUGH_BUSY, num_rounds) + 1)
        time_for_one = self._deadline.left() / num_turns * _READING_SHARE
        usual = min(_TURN_SECONDS, self._deadline.limit / _FEWEST_TURNS)
        turns = race.run(
            runners,
            seconds=min(usual, time_for_one),
            num_rounds=num_rounds,
            goes_on=verdict.still_open,
            time_left=self._deadline.left,
            ignored=self.busy_threads,
        )
        ran = {name: mine for name, mine in turns.items() if mine.num_rounds}
        self.trials += trials(ran, candidates)
        return ran

    def decide(self, candidates: Candidates, *, num_rounds: int) -> None:
        """Races the original pipeline and others; keeps the turns if time sufficed.

        A setting with two names runs once. Arguments are those of `race`.
        """
        seen: dict[Setting | None, str] = {}
        for name, setting in candidates.items():
            seen.setdefault(setting, name)
        once = {name: setting for setting, name in seen.items()}
        turns = self.race(once, num_rounds=num_rounds)
        if len(turns) > 1 and (GIVEN in turns or None in self._impossible):
            self.turns, self.settings = turns, once

    def _runners(self, candidates: Candidates) -> dict[str, Runner]:
        """Builds the runners of settings, as far as the time allows."""
        runners: dict[str, Runner] = {}
        longest = 0.0
        for name, setting in candidates.items():
            if setting in self._impossible:
                continue
            start = self._deadline.clock()
            if self._deadline.left(_UNTIL_BUILT) < longest:
                break
            self._deadline.show(name)
            try:
                runners[name] = self.lanes.runner(setting)
            except (ValueError, OSError, tf.errors.OpError) as error:
                if name == AUTOTUNE:
                    raise
                self._impossible.add(setting)
                reason = str(error).splitlines()[0]
                self.trials.append(Trial(name=name, setting=setting, error=reason))
            longest = max(longest, self._deadline.clock() - start)
        return runners
