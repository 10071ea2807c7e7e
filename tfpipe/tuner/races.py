"""The races of one search: builds what races, keeps the time, and notes the trials.

In: settings by name, and the part of the time that a race may take. Out: the turns of
those that could be run. The turns of the last race that decides are kept, so that a
search that is out of time knows its best setting.
"""

import functools
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfpipe.pipeline import Pipeline
from tfpipe.tuner import race, result, verdict
from tfpipe.tuner.lanes import Lanes
from tfpipe.tuner.race import Runner, Turns
from tfpipe.tuner.result import Trial
from tfpipe.tuner.space import Setting
from tfpipe.tuner.time_limit import Deadline
from tfpipe.tuner.verdict import AUTOTUNE, BEST, GIVEN

# The settings of a race by name; None is the pipeline as it was given.
Candidates = Mapping[str, Setting | None]

# A turn takes this long, or less, so that a search has time for this many turns.
_TURN_SECONDS, _FEWEST_TURNS = 0.4, 80
# The part of a turn in which elements are read; then the buffers fill again.
_READING_SHARE = 0.8
_STEP_ROUNDS = 5


class Races:
    """The races of a search.

    Args:
        given: The pipeline as it was given.
        bare: The same pipeline without tuning, see `space.opened`.
        deadline: The time of the search.

    Attributes:
        lanes: The runners of the settings.
        trials: The figures of all settings that ran, or could not.
        turns: The turns of the last race that decides.
        settings: The settings of that race.
        busy_threads: Threads that are never idle, see `ProcessMeter.busy_threads`.
    """

    def __init__(self, given: Pipeline, bare: Pipeline, deadline: Deadline) -> None:
        self.lanes = Lanes(given, bare, deadline.left)
        self.trials: list[Trial] = []
        self.turns: dict[str, Turns] = {}
        self.settings: Candidates = {}
        self.busy_threads: Sequence[str] = ()
        self._deadline = deadline
        self._impossible: set[Setting | None] = set()

    def race(
        self,
        candidates: Candidates,
        *,
        until: float,
        num_rounds: int,
        fewest: int = 1,
    ) -> dict[str, Turns]:
        """Races settings until a part of the time is over.

        Args:
            candidates: The settings.
            until: The part of the time, 0 to 1.
            num_rounds: Most rounds of a setting.
            fewest: Rounds that all settings run, if there is time.

        Returns:
            The turns of those that could be run and had a round.
        """
        runners = self._runners(candidates, until)
        # One setting alone tells nothing, unless only its rate is asked for.
        if len(runners) < min(2, len(candidates)):
            return {}
        self._deadline.show(f"race of {len(runners)}")
        # One turn more is for emptying the buffers before the first round.
        num_turns = len(runners) * (fewest + 1)
        time_for_one = self._deadline.left(until) / num_turns * _READING_SHARE
        usual = min(_TURN_SECONDS, self._deadline.limit / _FEWEST_TURNS)
        turns = race.run(
            runners,
            seconds=min(usual, time_for_one),
            num_rounds=num_rounds,
            goes_on=functools.partial(verdict.still_open, fewest=fewest),
            time_left=functools.partial(self._deadline.left, until),
            ignored=self.busy_threads,
        )
        ran = {name: mine for name, mine in turns.items() if mine.num_rounds}
        self.trials += result.trials(ran, candidates)
        return ran

    def decide(
        self,
        candidates: Candidates,
        *,
        until: float,
        num_rounds: int,
        fewest: int = 1,
    ) -> dict[str, Turns]:
        """Races the given pipeline and others; keeps the turns unless time was short.

        A setting that has two names runs once. Arguments are those of `race`.
        """
        seen: dict[Setting | None, str] = {}
        for name, setting in candidates.items():
            seen.setdefault(setting, name)
        once = {name: setting for setting, name in seen.items()}
        turns = self.race(once, until=until, num_rounds=num_rounds, fewest=fewest)
        if len(turns) > 1 and (GIVEN in turns or None in self._impossible):
            self.turns, self.settings = turns, once
        return turns

    def left_out(self, candidates: Candidates, turns: Mapping[str, Turns]) -> list[str]:
        """Returns the names of settings that had no turn, but could be run."""
        return [
            name
            for name, setting in candidates.items()
            if name not in turns and setting not in self._impossible
        ]

    def winner(
        self, best: Setting, steps: Mapping[str, Setting], *, until: float
    ) -> str | None:
        """Returns the name of the step that is faster than the best setting, if any."""
        turns = self.race({BEST: best, **steps}, until=until, num_rounds=_STEP_ROUNDS)
        if BEST not in turns:
            return None
        name = verdict.leader(turns, BEST, least=verdict.STEP_GAIN)
        return None if name == BEST else name

    def _runners(self, candidates: Candidates, until: float) -> dict[str, Runner]:
        """Builds the runners of settings, as far as the time allows."""
        runners: dict[str, Runner] = {}
        longest = 0.0
        for name, setting in candidates.items():
            if setting in self._impossible:
                continue
            start = self._deadline.clock()
            if self._deadline.left(until) < longest:
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
