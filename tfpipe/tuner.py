"""The tuner: from a pipeline and budgets to the setting that makes it fastest.

In: a pipeline, and what it may use of the host. Out: the same pipeline with every knob
set, and the record of what was tried. It begins with the setting that the measured
costs ask for, believes only races, leaves AUTOTUNE as it is unless something is 3 %
better, and stays within the budgets, which the ranks of a host share.
"""

import dataclasses
import math
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tqdm

from tfpipe import host, measure, placement, race, space, tuning
from tfpipe.costs import Profile
from tfpipe.pipeline import Pipeline
from tfpipe.placement import Placement
from tfpipe.space import Budget, Setting
from tfpipe.tuning import Tuning

# What must be gained for a setting to be taken: less is the noise of a race.
_GAIN = 1.03

_TURN_SECONDS = 0.4
_GIVEN, _AUTOTUNE = "as given", "AUTOTUNE"
_COSTS, _BEST = "from the costs", "the best so far"

# Turns of the last race, and of one of two neighbors.
_LAST_ROUNDS = 7
_LAST_TURNS, _STEP_TURNS = 3 * _LAST_ROUNDS, 2 * 3

# Of the time limit: what the pipeline as it was given may take longer than the others.
_RESERVE = 0.08


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """What a setting did in a race.

    Attributes:
        name: What it is.
        setting: None for the pipeline as it was given.
        elements_per_second: The median over the rounds.
        cpu_seconds_per_element: Likewise, of the whole process.
        against: Name of the one that `ratio` compares with.
        ratio: Median of the ratios of elements_per_second, round by round.
        error: Why it could not be run, if so; the figures are 0 then.
    """

    name: str
    setting: Setting | None
    elements_per_second: float = 0.0
    cpu_seconds_per_element: float = 0.0
    against: str = ""
    ratio: float = 0.0
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"{self.name[:50]:50} not possible: {self.error}"
        return (
            f"{self.name[:50]:50} {self.elements_per_second:9.1f} "
            f"{self.cpu_seconds_per_element * 1e3:9.2f}  {self.ratio:5.2f} of "
            f"{self.against}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """What was found, and the evidence.

    Attributes:
        pipeline: With the best setting.
        setting: The best setting.
        autotuned: AUTOTUNE's, within the same budgets.
        trials: All that was tried, in order.
        ratio: The rate to that of AUTOTUNE in the last race; 1 where it is AUTOTUNE.
        given_ratio: The rate to that of the pipeline as it was given; None where that
            one could not be run.
        profile: The costs it began with.
        fingerprint: Of the pipeline as it was given.
    """

    pipeline: Pipeline
    setting: Setting
    autotuned: Setting
    trials: Sequence[Trial]
    ratio: float
    given_ratio: float | None
    profile: Profile
    fingerprint: str

    def __str__(self) -> str:
        head = f"{'tried':50} {'elements/s':>10} {'CPU ms':>8}  ratio"
        return "\n".join([head, *map(str, self.trials), self.sentence])

    @property
    def sentence(self) -> str:
        """What came of it."""
        given = "the pipeline as it was could not be run"
        if self.given_ratio is not None:
            given = f"{self.given_ratio:.2f} times the pipeline as it was"
        if self.ratio < _GAIN:
            return f"AUTOTUNE is as good as all that was tried; {given}."
        chosen = space.words(self.setting)
        return f"{self.ratio:.2f} times AUTOTUNE, {given}: {chosen}."

    def as_json(self) -> dict[str, Any]:
        """All of it but the pipeline and the profile."""
        return {
            "setting": dataclasses.asdict(self.setting),
            "ratio_to_autotune": self.ratio,
            "ratio_to_given": self.given_ratio,
            "sentence": self.sentence,
            "trials": [dataclasses.asdict(trial) for trial in self.trials],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the setting and the evidence to a file, for `load_tuned`.

        Raises:
            OSError: If it cannot be written.
        """
        self.setting.tuning.save(
            path,
            made_for=tuning.made_for(self.fingerprint),
            cache=self.as_json()["setting"]["cache"],
            evidence=self.as_json(),
        )


def tune(pipeline: Pipeline, **options: Any) -> Pipeline:
    """The pipeline with the best setting; takes the arguments of `search_tuning`."""
    return search_tuning(pipeline, **options).pipeline


def load_tuned(path: str | os.PathLike[str], pipeline: Pipeline) -> Pipeline:
    """A pipeline with the setting that a search found, as `Search.save` wrote it.

    Where it was made for another host, TensorFlow or pipeline this warns, and gives the
    pipeline as it is, with the default tuning.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is no such file.
    """
    loaded = Tuning.load(path, fingerprint=pipeline.fingerprint)
    saved = tuning.read_saved(path)
    if loaded != Tuning(**saved["tuning"]):
        return dataclasses.replace(pipeline, tuning=loaded)
    cache = saved.get("cache")
    setting = Setting(tuning=loaded, cache=Placement(**cache) if cache else None)
    return setting.of(space.opened(pipeline))


def search_tuning(
    pipeline: Pipeline,
    *,
    cpu_budget: int | None = None,
    ram_budget_bytes: int | None = None,
    disk_budget_bytes: int = 0,
    cache_dir: str | os.PathLike[str] | None = None,
    num_local_ranks: int = 1,
    any_order: bool = False,
    time_limit: float = 60.0,
    exhaustive: bool = False,
) -> Search:
    """Searches the setting that makes a pipeline fastest on this host.

    Never changes which elements come, nor their order unless `any_order`. Knobs that
    stages were given are opened; a Prefetch is added at the end if there is none; a
    cache may be added, moved or left out.

    Args:
        pipeline: As it is; its elements should be the batches that a step takes.
        cpu_budget: Threads for all ranks of the host; None is its cores.
        ram_budget_bytes: Memory for buffers and caches, for all ranks of the host; None
            is half of what is left.
        disk_budget_bytes: For a cache on disk, 0 for none; all ranks share it.
        cache_dir: Folder for a cache on disk.
        num_local_ranks: Processes that share the budgets equally.
        any_order: Also tries elements as they become ready, where one that takes long
            holds up no others. Their order is not reproducible then, and who resumes
            within an epoch may meet some of those in flight twice or never.
        time_limit: Seconds after which the best one so far is taken. Some 20 are
            needed to try anything.
        exhaustive: Tries every setting of a coarse grid, however long it takes: to see
            what the search misses.

    Raises:
        ValueError: If an argument is wrong.
        Exception: What the pipeline raises with AUTOTUNE's setting.
    """
    if time_limit <= 0 or num_local_ranks < 1:
        raise ValueError(
            "time_limit must be > 0 and num_local_ranks >= 1, got "
            f"{time_limit} and {num_local_ranks}."
        )
    budget = Budget(
        num_threads=max(1, (cpu_budget or host.num_cores()) // num_local_ranks),
        ram_bytes=(ram_budget_bytes or host.ram_left() // 2) // num_local_ranks,
        disk_bytes=disk_budget_bytes,
        cache_dir=cache_dir,
        any_order=any_order,
    )
    clock = _Clock(None if exhaustive else time_limit)
    return _Run(pipeline, budget, clock).search(exhaustive=exhaustive)


class _Clock:
    """The seconds that a search may take, None for all it needs, as a progress bar."""

    def __init__(self, limit: float | None) -> None:
        self._start, self._limit = time.monotonic(), limit
        self.end = math.inf if limit is None else self._start + limit
        total = None if limit is None else round(limit)
        self.bar = tqdm.tqdm(total=total, unit="s", file=sys.stderr, disable=None)

    def show(self, what: str) -> None:
        """Says what is being done now."""
        self.bar.set_description(what)
        passed = min(time.monotonic(), self.end) - self._start
        self.bar.update(round(passed) - int(self.bar.n))

    def has(self, seconds: float) -> bool:
        """Whether so many are left, and the reserve."""
        reserve = _RESERVE * (self._limit or 0.0)
        return self.end - reserve - time.monotonic() > seconds


class _Run:
    """One search: what was tried so far."""

    def __init__(self, pipeline: Pipeline, budget: Budget, clock: _Clock) -> None:
        self._given = pipeline
        self._open = space.opened(pipeline)
        self._budget = budget
        self._clock = clock
        # Of the caches that do not fit it is recorded why not.
        self._caches, self._trials = _caches(self._open, budget)
        self._released: threading.Thread | None = None
        self._turn_seconds = 0.0  # the longest so far, with its share of the building

    def search(self, *, exhaustive: bool) -> Search:
        """All of it."""
        autotune = space.autotuned(self._budget)
        with self._clock.bar:
            self._clock.show("costs of the stages")
            profile = measure.profile(autotune.of(self._open), seconds=0.2, repeats=2)
            if exhaustive:
                best = self._best_of_grid(autotune)
            else:
                start = space.closed_form(self._open, profile, self._budget)
                best = self._climb(self._first(autotune, start), profile)
            lanes = {_AUTOTUNE: autotune, _BEST: best, _GIVEN: None}
            turns = self._race(lanes, _AUTOTUNE, num_rounds=_LAST_ROUNDS)
        won = turns[_BEST].beats(turns[_AUTOTUNE], _GAIN)
        winner, setting = (_BEST, best) if won else (_AUTOTUNE, autotune)
        given = turns.get(_GIVEN)
        return Search(
            pipeline=setting.of(self._open),
            setting=setting,
            autotuned=autotune,
            trials=self._trials,
            ratio=turns[winner].ratio(turns[_AUTOTUNE]),
            given_ratio=turns[winner].ratio(given) if given else None,
            profile=profile,
            fingerprint=self._given.fingerprint,
        )

    def _first(self, autotune: Setting, start: Setting) -> Setting:
        """The best of those without and with caches that the costs ask for."""
        lanes = {_AUTOTUNE: autotune, _COSTS: start}
        for cache in self._caches:
            lanes[f"cache of {cache}"] = dataclasses.replace(start, cache=cache)
        # No step of the climb brings back a cache that is ruled out here.
        turns = self._race(lanes, _AUTOTUNE, num_rounds=5)
        gains = {name: mine.ratio(turns[_COSTS]) for name, mine in turns.items()}
        # A cache costs memory: it must pay; if by chance, the last race finds out.
        best = max(gains, key=gains.__getitem__)
        pays = best != _AUTOTUNE and gains[best] >= _GAIN
        return lanes[best] if pays else start

    def _climb(self, best: Setting, profile: Profile) -> Setting:
        """The best setting that steps of one knob lead to, in the time there is."""
        tried = [best]
        left = space.neighbors(self._open, best, profile, self._budget)
        turns_left = _STEP_TURNS + _LAST_TURNS
        while left and self._clock.has(turns_left * self._turn_seconds):
            step = left.pop(0)
            if step in tried:
                continue
            tried.append(step)
            name = space.change(best, step)
            turns = self._race({_BEST: best, name: step}, _BEST)
            if name in turns and turns[name].beats(turns[_BEST], _GAIN):
                best = step
                left = space.neighbors(self._open, best, profile, self._budget)
        return best

    def _best_of_grid(self, autotune: Setting) -> Setting:
        """The best of the grid: a short race each, a longer one of the best four."""
        grid = space.grid(self._open, self._budget, [None, *self._caches])
        rates = {}
        for number, setting in enumerate(grid, start=1):
            name = f"{number} of {len(grid)}"
            turns = self._race({name: setting}, name, num_rounds=1)
            rates[number] = turns[name].rate
        best = sorted(rates, key=lambda number: -rates[number])[:4]
        lanes = {f"{number} of {len(grid)}": grid[number - 1] for number in best}
        turns = self._race(lanes | {_AUTOTUNE: autotune}, _AUTOTUNE)
        return lanes[max(lanes, key=lambda name: turns[name].rate)]

    def _race(
        self, lanes: Mapping[str, Setting | None], against: str, num_rounds: int = 3
    ) -> dict[str, race.Turns]:
        """The turns of those that can be run."""
        runners = {}
        before = time.monotonic()
        for name, setting in lanes.items():
            self._clock.show(name)
            pipeline = setting.of(self._open) if setting else self._given
            try:
                runners[name] = _runner(pipeline, is_ours=setting is not None)
            except (ValueError, OSError, tf.errors.OpError) as error:
                if name == against:
                    raise
                reason = str(error).splitlines()[0]
                self._trials.append(Trial(name=name, setting=setting, error=reason))
        self._clock.show(f"race of {len(runners)}")
        turns = race.run(
            runners,
            seconds=_TURN_SECONDS,
            num_rounds=num_rounds,
            end=self._clock.end - len(runners) * self._turn_seconds,
        )
        num_turns = sum(len(mine.elements_per_second) for mine in turns.values())
        each = (time.monotonic() - before) / num_turns
        self._turn_seconds = max(self._turn_seconds, each)
        self._trials += _trials(turns, lanes, against)
        self._released = race.release(runners, self._released)
        return turns


def _runner(pipeline: Pipeline, *, is_ours: bool) -> race.Runner:
    """Reads it; a pipeline that was given has caches that are not ours to close."""
    caches = placement.caches(pipeline) if is_ours else []
    try:
        dataset = placement.of_first_window(pipeline).build(num_epochs=None)
        return race.Runner(dataset, caches=caches)
    except BaseException:
        for cache in caches:
            cache.close()
        raise


def _trials(
    turns: Mapping[str, race.Turns], lanes: Mapping[str, Setting | None], against: str
) -> list[Trial]:
    return [
        Trial(
            name=name,
            setting=lanes[name],
            elements_per_second=mine.rate,
            cpu_seconds_per_element=mine.cost,
            against=against,
            ratio=mine.ratio(turns[against]),
        )
        for name, mine in turns.items()
    ]


def _caches(pipeline: Pipeline, budget: Budget) -> tuple[list[Placement], list[Trial]]:
    """Where a cache may stand that fits, and why others do not."""
    found, refused = [], []
    for num_ops, size in placement.sizes(pipeline).items():
        rooms = [(Placement(where="ram", num_ops=num_ops), budget.ram_bytes)]
        if (folder := budget.cache_dir) is not None:
            room = Placement(where="disk", num_ops=num_ops, directory=folder)
            rooms.append((room, budget.disk_bytes))
        for room, most in rooms:
            if size <= most:
                found.append(room)
                continue
            error = f"it needs {size / 1e6:,.0f} MB, {most / 1e6:,.0f} MB are allowed"
            refused.append(Trial(name=f"cache of {room}", setting=None, error=error))
    return found, refused
