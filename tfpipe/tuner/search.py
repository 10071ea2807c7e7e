"""The tuner searches for the setting that makes a pipeline fastest within budgets.

In: a pipeline, and what it may use of the host. Out: the same pipeline with every knob
set, and a list of the settings that were tried. The search begins with the setting that
the measured costs ask for, and decides by races alone. It keeps AUTOTUNE unless a
setting is 3 % faster, and stays within the budgets, which the ranks of a host share. A
pipeline within the budgets stays as it was given unless a setting is 3 % faster.
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
from tfpipe.profiling import measure, prefixes
from tfpipe.profiling.process_usage import ProcessMeter
from tfpipe.profiling.profile import Profile
from tfpipe.tuner import placement, race, result, space
from tfpipe.tuner.placement import Placement
from tfpipe.tuner.result import GAIN, Search, Trial
from tfpipe.tuner.space import Budget, Setting

# The settings of a race by name; None is the pipeline as it was given.
_Candidates = Mapping[str, Setting | None]

_TURN_SECONDS = 0.4
_GIVEN, _AUTOTUNE = "as given", "AUTOTUNE"
_COSTS, _BEST = "from the costs", "the best so far"

# The last race has 3 to 9 rounds, as time allows.
_LAST_ROUNDS, _FEWEST_ROUNDS = 9, 3
# Time is kept for three rounds of two settings, and for five of three in the last race.
_KEPT_CANDIDATES, _KEPT_TURNS = 2 + 3, 3 * 2 + 5 * 3

# Part of the time limit: the pipeline as it was given may be slower than the others.
_RESERVE = 0.08


def tune(pipeline: Pipeline, **options: Any) -> Pipeline:
    """Returns the pipeline with the best setting; arguments as of `search_tuning`."""
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
    demand: float | None = None,
) -> Search:
    """Searches for the setting that makes a pipeline fastest on this host.

    The search never changes which elements come, and changes their order only with
    `any_order`. The search sets the knobs of all stages anew, adds a Prefetch at the
    end if there is none, and may add, move or leave out a cache. The pipeline as it was
    given takes part in the last race, with its own cache and knobs. It is returned
    unchanged unless a setting is 3 % faster. If its threads or its cache exceed a
    budget, it takes part in the race but is not returned.

    Args:
        pipeline: The pipeline to tune. Its elements should be the batches that a step
            takes. A pipeline that ends begins again.
        cpu_budget: Threads for all ranks of the host; None is one for each core.
        ram_budget_bytes: Memory for buffers and caches, for all ranks of the host; None
            is half of the memory that is left.
        disk_budget_bytes: Bytes for a cache on disk, for all ranks; 0 allows none.
        cache_dir: Folder for a cache on disk.
        num_local_ranks: Number of processes that share the budgets equally.
        any_order: Whether to also try elements in the order in which they become ready,
            so that a slow element holds up no others. The order is not reproducible
            then, and a run that resumes within an epoch may read some elements twice
            or never.
        time_limit: Seconds after which the best setting so far is taken. About 20 are
            needed to try any.
        exhaustive: Whether to try every setting of a coarse grid, however long that
            takes, to see what the search misses.
        demand: Images per second that the training step of this rank could take, for
            `Search.service`; None if it is unknown.

    Raises:
        ValueError: If an argument is wrong, or the pipeline is empty.
        Exception: What the pipeline raises with AUTOTUNE's setting.
    """
    errors.require_kind("", "pipeline", pipeline, Pipeline)
    errors.require_number("", "time_limit", time_limit, above=0)
    errors.require_bools("", any_order=any_order, exhaustive=exhaustive)
    errors.require_number("", "demand", demand, above=0, or_none=True)
    ram_left = host.ram_left()
    budget = _share(cpu_budget, ram_budget_bytes, num_local_ranks, ram_left // 2)
    # The cache of the given pipeline may use all memory that is left, unless a budget
    # says less.
    own = _share(cpu_budget, ram_budget_bytes, num_local_ranks, ram_left)
    errors.require_int("", "disk_budget_bytes", disk_budget_bytes, least=0)
    budget = dataclasses.replace(
        budget, disk_bytes=disk_budget_bytes, cache_dir=cache_dir, any_order=any_order
    )
    own = dataclasses.replace(own, disk_bytes=disk_budget_bytes, cache_dir=cache_dir)
    deadline = _Deadline(None if exhaustive else time_limit)
    searcher = _Searcher(pipeline, budget, deadline)
    excess = _excess(pipeline, own)
    return searcher.search(exhaustive=exhaustive, excess=excess, demand=demand)


def _share(
    cpu_budget: int | None, ram_bytes: int | None, num_ranks: int, ram_default: int
) -> Budget:
    """Returns the budget of one of several ranks of a host."""
    errors.require_int("", "num_local_ranks", num_ranks, least=1)
    errors.require_int("", "cpu_budget", cpu_budget, least=1, also=[None])
    # Each rank needs a byte at least.
    least = num_ranks
    errors.require_int("", "ram_budget_bytes", ram_bytes, least=least, also=[None])
    threads = host.num_cores() if cpu_budget is None else cpu_budget
    bytes_in_all = max(ram_default, num_ranks) if ram_bytes is None else ram_bytes
    return Budget(
        num_threads=max(1, threads // num_ranks), ram_bytes=bytes_in_all // num_ranks
    )


def _excess(pipeline: Pipeline, budget: Budget) -> str:
    """Returns `space.excess`; empty for an impossible cache, which the race reports."""
    try:
        return space.excess(pipeline, budget)
    except ValueError:
        return ""


class _Deadline:
    """The time that a search may take, shown as a progress bar.

    Args:
        limit: Seconds; None is as many as the search needs.
        clock: Returns seconds.
    """

    def __init__(
        self, limit: float | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self._start, self._limit = clock(), limit
        self.end = math.inf if limit is None else self._start + limit
        total = None if limit is None else round(limit)
        self.bar = tqdm.tqdm(total=total, unit="s", file=sys.stderr, disable=None)

    def show(self, what: str) -> None:
        """Shows what is being done now."""
        self.bar.set_description(what)
        passed = min(self.clock(), self.end) - self._start
        self.bar.update(round(passed) - int(self.bar.n))

    def has(self, seconds: float) -> bool:
        """Checks whether that many seconds are left besides the reserve."""
        reserve = _RESERVE * (self._limit or 0.0)
        return self.end - reserve - self.clock() > seconds


class _Searcher:
    """One search: holds the settings that were tried so far."""

    def __init__(self, pipeline: Pipeline, budget: Budget, deadline: _Deadline) -> None:
        self._given = pipeline
        self._bare = space.opened(pipeline)
        self._budget = budget
        self._deadline = deadline
        self._caches, self._trials = _caches(self._bare, budget)
        self._released: threading.Thread | None = None
        self._busy_threads = ProcessMeter().busy_threads()
        self._seconds_kept = 0.0  # for one more race of two, and for the last race

    def search(
        self, *, exhaustive: bool, excess: str, demand: float | None = None
    ) -> Search:
        """Runs the search; `excess` says how the given pipeline exceeds the budget."""
        autotune = space.autotuned(self._budget)
        with self._deadline.bar:
            self._deadline.show("costs of the stages")
            profile = measure.profile(autotune.of(self._bare), seconds=0.2, repeats=2)
            if exhaustive:
                best = self._best_of_grid(autotune)
            else:
                best = self._climb(self._first(autotune, profile), profile)
            candidates: _Candidates = {_AUTOTUNE: autotune, _BEST: best, _GIVEN: None}
            turns = self._race(candidates, _AUTOTUNE, num_rounds=_LAST_ROUNDS)
        winner, given = chosen(turns, may_stay=not excess), turns.get(_GIVEN)
        setting = candidates[winner]
        return Search(
            pipeline=setting.of(self._bare) if setting else self._given,
            setting=setting or space.of_pipeline(self._given),
            autotuned=autotune,
            trials=self._trials,
            ratio=turns[winner].ratio(turns[_AUTOTUNE]),
            given_ratio=turns[winner].ratio(given) if given else None,
            profile=profile,
            fingerprint=self._given.fingerprint,
            is_as_given=setting is None,
            given_excess=excess,
            service=result.payoff(turns[winner], profile, self._budget, demand),
        )

    def _first(self, autotune: Setting, profile: Profile) -> Setting:
        """Returns the best setting that the costs ask for, with or without a cache."""

        def start(cache: Placement | None = None) -> Setting:
            return space.closed_form(self._bare, profile, self._budget, cache=cache)

        candidates = {_AUTOTUNE: autotune, _COSTS: start()}
        candidates |= {f"cache of {cache}": start(cache) for cache in self._caches}
        # Five rounds, because no later step brings back a cache that loses here.
        turns = self._race(candidates, _AUTOTUNE, num_rounds=5)
        gains = {name: mine.ratio(turns[_COSTS]) for name, mine in turns.items()}
        # A cache costs memory and must pay. The last race corrects a win by chance.
        best = max(gains, key=gains.__getitem__)
        pays = best != _AUTOTUNE and gains[best] >= GAIN
        return candidates[best if pays else _COSTS]

    def _climb(self, best: Setting, profile: Profile) -> Setting:
        """Returns the best setting that steps of one knob reach within the time."""
        tried = [best]
        left = space.neighbors(self._bare, best, profile, self._budget)
        while left and self._deadline.has(self._seconds_kept):
            step = left.pop(0)
            if step in tried:
                continue
            tried.append(step)
            name = space.change(best, step)
            turns = self._race({_BEST: best, name: step}, _BEST, knock_out=True)
            if name in turns and turns[name].beats(turns[_BEST], GAIN):
                best = step
                left = space.neighbors(self._bare, best, profile, self._budget)
        return best

    def _best_of_grid(self, autotune: Setting) -> Setting:
        """Returns the best setting of the grid: one round each, then a race of four."""
        grid = space.grid(self._bare, self._budget, [None, *self._caches])
        rates = {}
        for number, setting in enumerate(grid, start=1):
            name = f"{number} of {len(grid)}"
            rates[number] = self._race({name: setting}, name, num_rounds=1)[name].rate
        best = sorted(rates, key=lambda number: -rates[number])[:4]
        candidates = {f"{number} of {len(grid)}": grid[number - 1] for number in best}
        turns = self._race(candidates | {_AUTOTUNE: autotune}, _AUTOTUNE)
        return candidates[max(candidates, key=lambda name: turns[name].rate)]

    def _race(
        self,
        candidates: Mapping[str, Setting | None],
        against: str,
        num_rounds: int = _FEWEST_ROUNDS,
        *,
        knock_out: bool = False,
    ) -> dict[str, race.Turns]:
        """Races the settings; returns the turns of those that can be run."""
        runners = {}
        start = self._deadline.clock()
        for name, setting in candidates.items():
            self._deadline.show(name)
            pipeline = setting.of(self._bare) if setting else self._given
            try:
                runners[name] = _runner(pipeline, is_ours=setting is not None)
            except (ValueError, OSError, tf.errors.OpError) as error:
                if name == against:
                    raise
                reason = str(error).splitlines()[0]
                self._trials.append(Trial(name=name, setting=setting, error=reason))
        self._deadline.show(f"race of {len(runners)}")
        built = self._deadline.clock()
        turns = race.run(
            runners,
            seconds=_TURN_SECONDS,
            num_rounds=num_rounds,
            ignored=self._busy_threads,
            goes_on=_goes_on(against, self._deadline, knock_out=knock_out),
        )
        num_turns = len(turns) * turns[against].num_rounds
        self._seconds_kept = _KEPT_TURNS * (self._deadline.clock() - built) / num_turns
        self._seconds_kept += _KEPT_CANDIDATES * (built - start) / len(candidates)
        self._trials += _trials(turns, candidates, against)
        self._released = race.release(runners, self._released)
        return turns


def chosen(turns: Mapping[str, race.Turns], *, may_stay: bool) -> str:
    """Returns the name of the winner of the last race.

    AUTOTUNE wins unless the best setting is 3 % faster. The pipeline as it was given
    stays unless one of these two is 3 % faster than it.

    Args:
        turns: The turns of the last race. Those of the pipeline as it was given are
            missing if it could not be run.
        may_stay: Whether the pipeline as it was given is within the budget.
    """
    winner = _BEST if turns[_BEST].beats(turns[_AUTOTUNE], GAIN) else _AUTOTUNE
    if not may_stay or _GIVEN not in turns:
        return winner
    faster = (n for n in (winner, _BEST) if turns[n].beats(turns[_GIVEN], GAIN))
    return next(faster, _GIVEN)


def _goes_on(
    against: str, deadline: _Deadline, *, knock_out: bool
) -> Callable[[Mapping[str, race.Turns]], bool]:
    """Returns a function that says whether a race that begins now has another round.

    A race ends after the fewest rounds if the time is up. With `knock_out` a race ends
    when each of the others has lost a round: of so few rounds the winner must win all,
    see `race.Turns.beats`.
    """
    marks = [deadline.clock()]

    def goes_on(turns: Mapping[str, race.Turns]) -> bool:
        marks.append(deadline.clock())
        first = turns[against]
        others = [mine for name, mine in turns.items() if name != against]
        if knock_out and not any(min(mine.ratios(first)) > 1 for mine in others):
            return False
        longest = max(after - before for before, after in itertools.pairwise(marks))
        return first.num_rounds < _FEWEST_ROUNDS or deadline.end - marks[-1] > longest

    return goes_on


def _runner(pipeline: Pipeline, *, is_ours: bool) -> race.Runner:
    """Returns a runner of the pipeline, which closes its caches if they are ours.

    The caches of the pipeline as it was given belong to the caller.
    """
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
    turns: Mapping[str, race.Turns],
    candidates: Mapping[str, Setting | None],
    against: str,
) -> list[Trial]:
    return [
        Trial(
            name=name,
            setting=candidates[name],
            elements_per_second=mine.rate,
            cpu_seconds_per_element=mine.cost,
            against=against,
            ratio=mine.ratio(turns[against]),
        )
        for name, mine in turns.items()
    ]


def _caches(pipeline: Pipeline, budget: Budget) -> tuple[list[Placement], list[Trial]]:
    """Returns the places of caches that fit, and a trial for each that does not."""
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
