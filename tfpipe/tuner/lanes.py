"""The lanes of a search, where its settings race.

In: a pipeline and settings by name. Out: the turns of the settings that could be run.
A cache is filled before the race, and holds only the first records of the data set.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfpipe.cache.stage import Cache
from tfpipe.pipeline import Pipeline
from tfpipe.profiling import prefixes
from tfpipe.tuner import placement, race, space, verdict
from tfpipe.tuner.race import Runner, Turns
from tfpipe.tuner.result import Trial
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
# A raced cache holds this many batches, or all batches of so many seconds if more; the
# part of the limit in which these batches are counted.
_FEWEST_BATCHES, _FILL_SECONDS, _COUNTING = 8, 0.75, 0.025

_ROUNDS = 7


class Lanes:
    """The runners of a search, by name.

    Args:
        original: The pipeline as the user gave it.
        bare: The same pipeline without tuning, see `space.opened`.
        deadline: The time of the search.

    Attributes:
        num_batches: Batches that a raced cache holds.
        trials: The figures of the settings that ran, or could not.
    """

    def __init__(self, original: Pipeline, bare: Pipeline, deadline: Deadline) -> None:
        self.num_batches = _FEWEST_BATCHES
        self.trials: list[Trial] = []
        self._original, self._bare, self._deadline = original, bare, deadline
        self._caches: list[Cache] = []
        self._runners: dict[str, Runner] = {}
        self._longest = 0.0

    def add(self, name: str, setting: Setting | None) -> Runner | None:
        """Builds the runner of a setting; None without time, or if it cannot run.

        Raises:
            Exception: What the pipeline with AUTOTUNE raises.
        """
        start = self._deadline.clock()
        # A race without the original pipeline decides nothing.
        least = 0.0 if name == GIVEN else self._longest
        if self._deadline.left(_UNTIL_BUILT) < least:
            return None
        self._deadline.show(name)
        try:
            self._runners[name] = self.runner(setting)
        except (ValueError, OSError, tf.errors.OpError) as error:
            if name == AUTOTUNE:
                raise
            reason = str(error).splitlines()[0]
            self.trials.append(Trial(name=name, setting=setting, error=reason))
        self._longest = max(self._longest, self._deadline.clock() - start)
        return self._runners.get(name)

    def fill_for(self, autotuned: Runner) -> None:
        """Lets raced caches hold what AUTOTUNE makes in `_FILL_SECONDS`."""
        seconds = min(_FILL_SECONDS, _COUNTING * self._deadline.limit)
        self.num_batches = max(_FEWEST_BATCHES, autotuned.pull_for(seconds))

    def runner(self, setting: Setting | None) -> Runner:
        """Builds a runner, and reads until a cache holds all that a race reads.

        Races with a cache read the first records again and again. Otherwise the cache
        would not be full in the time of a race, and would look useless.
        """
        pipeline = setting.of(self._bare) if setting else self._original
        if setting:  # not the caches of the user
            self._caches += placement.caches(pipeline)
        raced = placement.of_first_window(pipeline, self.num_batches)
        steady = space.with_steady_buffers(raced)
        runner = Runner(prefixes.endless(steady).build(num_epochs=None))
        if raced is not pipeline:
            # A pass fills it. Buffers and shuffles read ahead, so another half is read.
            first: Any = raced.source
            for _ in range(math.ceil(1.5 * first.window_size / first.batch_size)):
                if self._deadline.left() <= 0:
                    break
                runner.pull(1)
        return runner

    def race(
        self, candidates: Candidates, *, busy_threads: Sequence[str]
    ) -> dict[str, Turns]:
        """Races the runners until the race is decided, or the time is over.

        Args:
            candidates: The settings by name, for `trials`.
            busy_threads: Threads that are never idle, see `ProcessMeter.busy_threads`.

        Returns:
            The turns of the settings that had a round.
        """
        if len(self._runners) < 2:  # the rate of one tells nothing
            return {}
        self._deadline.show(f"race of {len(self._runners)}")
        # A further turn empties the buffers before the first round.
        num_turns = len(self._runners) * (verdict.ENOUGH_BUSY + 1)
        time_for_one = self._deadline.left() / num_turns * _READING_SHARE
        usual = min(_TURN_SECONDS, self._deadline.limit / _FEWEST_TURNS)
        turns = race.run(
            self._runners,
            seconds=min(usual, time_for_one),
            num_rounds=_ROUNDS,
            goes_on=verdict.still_open,
            time_left=self._deadline.left,
            ignored=busy_threads,
        )
        ran = {name: mine for name, mine in turns.items() if mine.num_rounds}
        against = AUTOTUNE if AUTOTUNE in ran else next(iter(ran), "")
        self.trials += [
            Trial(
                name=name,
                setting=candidates[name],
                elements_per_second=mine.rate,
                cpu_seconds_per_element=mine.cost,
                against=against,
                ratio=mine.ratio(ran[against]),
            )
            for name, mine in ran.items()
        ]
        return ran

    def close(self) -> None:
        """Closes the runners, then the caches of the search."""
        race.release([*self._runners.values()], self._caches)
        self._runners = {}
