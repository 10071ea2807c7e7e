"""The tuner: from a pipeline and budgets to the setting that makes it fastest.

In: a pipeline, and what it may use of the host. Out: the same pipeline with every knob
set, and the record of what was tried. It begins with the setting that the measured
costs ask for, believes only races, leaves AUTOTUNE as it is unless something is 3 %
better, and stays within the budgets, which the ranks of a host share. A pipeline that
is within them stays as it was given unless a setting is 3 % faster than that.
"""

import dataclasses
import itertools
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tqdm

from tfpipe import errors, host
from tfpipe.pipeline import Pipeline
from tfpipe.profiling import measure, prefixes, timed_reader
from tfpipe.profiling.profile import Profile
from tfpipe.tuner import placement, race, space
from tfpipe.tuner.placement import Placement
from tfpipe.tuner.result import GAIN, Search, Trial
from tfpipe.tuner.space import Budget, Setting

# What runs in a race: settings, and None for the pipeline as it was given.
_Lanes = Mapping[str, Setting | None]

_TURN_SECONDS = 0.4
_GIVEN, _AUTOTUNE = "as given", "AUTOTUNE"
_COSTS, _BEST = "from the costs", "the best so far"

# Rounds of the last race: from the most to the fewest, as time allows.
_LAST_ROUNDS, _FEWEST_ROUNDS = 9, 3
# What time is kept for: three rounds of two neighbors, and five of three in the last.
_KEPT_LANES, _KEPT_TURNS = 2 + 3, 3 * 2 + 5 * 3

# Of the time limit: what the pipeline as it was given may take longer than the others.
_RESERVE = 0.08


def tune(pipeline: Pipeline, **options: Any) -> Pipeline:
    """The pipeline with the best setting; takes the arguments of `search_tuning`."""
    return search_tuning(pipeline, **options).pipeline


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
    cache may be added, moved or left out. The pipeline itself takes part in the last
    race, with its own cache and knobs, and is returned as it is unless a setting is
    3 % faster; if its threads or its cache exceed a budget, it is only told about.

    Args:
        pipeline: As it is; its elements should be the batches that a step takes. One
            that ends begins again.
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
        ValueError: If an argument is wrong, or the pipeline is empty.
        Exception: What the pipeline raises with AUTOTUNE's setting.
    """
    errors.require_kind("", "pipeline", pipeline, Pipeline)
    errors.require_number("", "time_limit", time_limit, above=0)
    errors.require_bools("", any_order=any_order, exhaustive=exhaustive)
    ram_left = host.ram_left()
    budget = _share(cpu_budget, ram_budget_bytes, num_local_ranks, ram_left // 2)
    # A cache that was given may have all that is left, unless a budget says less.
    own = _share(cpu_budget, ram_budget_bytes, num_local_ranks, ram_left)
    errors.require_int("", "disk_budget_bytes", disk_budget_bytes, least=0)
    budget = dataclasses.replace(
        budget, disk_bytes=disk_budget_bytes, cache_dir=cache_dir, any_order=any_order
    )
    own = dataclasses.replace(own, disk_bytes=disk_budget_bytes, cache_dir=cache_dir)
    clock = _Clock(None if exhaustive else time_limit)
    run = _Run(pipeline, budget, clock)
    return run.search(exhaustive=exhaustive, excess=_excess(pipeline, own))


def _share(
    cpu_budget: int | None, ram_bytes: int | None, num_ranks: int, ram_default: int
) -> Budget:
    """The part of one of several ranks of a host."""
    errors.require_int("", "num_local_ranks", num_ranks, least=1)
    errors.require_int("", "cpu_budget", cpu_budget, least=1, also=[None])
    # Each rank has a byte at least.
    least = num_ranks
    errors.require_int("", "ram_budget_bytes", ram_bytes, least=least, also=[None])
    threads = host.num_cores() if cpu_budget is None else cpu_budget
    bytes_in_all = max(ram_default, num_ranks) if ram_bytes is None else ram_bytes
    return Budget(
        num_threads=max(1, threads // num_ranks), ram_bytes=bytes_in_all // num_ranks
    )


def _excess(pipeline: Pipeline, budget: Budget) -> str:
    """As `space.excess`; empty for a cache that cannot be, as the race then tells."""
    try:
        return space.excess(pipeline, budget)
    except ValueError:
        return ""


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
        self._caches, self._trials = _caches(self._open, budget)
        self._released: threading.Thread | None = None
        self._pollers = timed_reader.busy_threads()
        self._seconds_kept = 0.0  # for a step and the last race

    def search(self, *, exhaustive: bool, excess: str) -> Search:
        """All of it; `excess` is what the given pipeline takes beyond the budget."""
        autotune = space.autotuned(self._budget)
        with self._clock.bar:
            self._clock.show("costs of the stages")
            profile = measure.profile(autotune.of(self._open), seconds=0.2, repeats=2)
            if exhaustive:
                best = self._best_of_grid(autotune)
            else:
                best = self._climb(self._first(autotune, profile), profile)
            lanes: _Lanes = {_AUTOTUNE: autotune, _BEST: best, _GIVEN: None}
            turns = self._race(lanes, _AUTOTUNE, num_rounds=_LAST_ROUNDS)
        winner, given = chosen(turns, may_stay=not excess), turns.get(_GIVEN)
        setting = lanes[winner]
        return Search(
            pipeline=setting.of(self._open) if setting else self._given,
            setting=setting or space.of_pipeline(self._given),
            autotuned=autotune,
            trials=self._trials,
            ratio=turns[winner].ratio(turns[_AUTOTUNE]),
            given_ratio=turns[winner].ratio(given) if given else None,
            profile=profile,
            fingerprint=self._given.fingerprint,
            is_as_given=setting is None,
            given_excess=excess,
        )

    def _first(self, autotune: Setting, profile: Profile) -> Setting:
        """The best of those without and with caches that the costs ask for."""

        def start(cache: Placement | None = None) -> Setting:
            return space.closed_form(self._open, profile, self._budget, cache=cache)

        lanes = {_AUTOTUNE: autotune, _COSTS: start()}
        lanes |= {f"cache of {cache}": start(cache) for cache in self._caches}
        # No step of the climb brings back a cache that is ruled out here.
        turns = self._race(lanes, _AUTOTUNE, num_rounds=5)
        gains = {name: mine.ratio(turns[_COSTS]) for name, mine in turns.items()}
        # A cache costs memory: it must pay; if by chance, the last race finds out.
        best = max(gains, key=gains.__getitem__)
        pays = best != _AUTOTUNE and gains[best] >= GAIN
        return lanes[best if pays else _COSTS]

    def _climb(self, best: Setting, profile: Profile) -> Setting:
        """The best setting that steps of one knob lead to, in the time there is."""
        tried = [best]
        left = space.neighbors(self._open, best, profile, self._budget)
        while left and self._clock.has(self._seconds_kept):
            step = left.pop(0)
            if step in tried:
                continue
            tried.append(step)
            name = space.change(best, step)
            turns = self._race({_BEST: best, name: step}, _BEST, knock_out=True)
            if name in turns and turns[name].beats(turns[_BEST], GAIN):
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
        self,
        lanes: Mapping[str, Setting | None],
        against: str,
        num_rounds: int = _FEWEST_ROUNDS,
        *,
        knock_out: bool = False,
    ) -> dict[str, race.Turns]:
        """The turns of those that can be run; see `_goes_on`."""
        runners = {}
        start = time.monotonic()
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
        built = time.monotonic()
        turns = race.run(
            runners,
            seconds=_TURN_SECONDS,
            num_rounds=num_rounds,
            ignored=self._pollers,
            goes_on=_goes_on(against, self._clock, knock_out=knock_out),
        )
        num_turns = len(turns) * turns[against].num_rounds
        self._seconds_kept = _KEPT_TURNS * (time.monotonic() - built) / num_turns
        self._seconds_kept += _KEPT_LANES * (built - start) / len(lanes)
        self._trials += _trials(turns, lanes, against)
        self._released = race.release(runners, self._released)
        return turns


def chosen(turns: Mapping[str, race.Turns], *, may_stay: bool) -> str:
    """The lane of the last race that is taken.

    AUTOTUNE, unless the best of all settings is 3 % faster; and the pipeline as it was
    given, unless one of both is 3 % faster than that.

    Args:
        turns: Of the last race; those of the pipeline as it was given may be missing.
        may_stay: Whether that is within the budget.
    """
    winner = _BEST if turns[_BEST].beats(turns[_AUTOTUNE], GAIN) else _AUTOTUNE
    if not may_stay or _GIVEN not in turns:
        return winner
    faster = (n for n in (winner, _BEST) if turns[n].beats(turns[_GIVEN], GAIN))
    return next(faster, _GIVEN)


def _goes_on(
    against: str, clock: _Clock, *, knock_out: bool
) -> Callable[[Mapping[str, race.Turns]], bool]:
    """Whether a race that begins now has another round.

    Not if the time is up, after the fewest rounds; nor, if knock_out, when all others
    lost one: to be taken they must win all of so few, see `race.Turns.beats`.
    """
    marks = [time.monotonic()]

    def goes_on(turns: Mapping[str, race.Turns]) -> bool:
        marks.append(time.monotonic())
        first = turns[against]
        others = [mine for name, mine in turns.items() if name != against]
        if knock_out and not any(min(mine.ratios(first)) > 1 for mine in others):
            return False
        longest = max(after - before for before, after in itertools.pairwise(marks))
        return first.num_rounds < _FEWEST_ROUNDS or clock.end - marks[-1] > longest

    return goes_on


def _runner(pipeline: Pipeline, *, is_ours: bool) -> race.Runner:
    """Reads it; a pipeline that was given has caches that are not ours to close."""
    caches = placement.caches(pipeline) if is_ours else []
    try:
        raced = space.with_steady_buffers(placement.of_first_window(pipeline))
        dataset = prefixes.endless(raced).build(num_epochs=None)
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
