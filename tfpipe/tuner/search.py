"""The tuner searches for the fastest setting of a pipeline within budgets.

In: a pipeline, and its part of the host. Out: the same pipeline with every knob set,
and a list of the tried settings. The measured costs name a few settings, with caches
and without, and a race alone decides. The search keeps AUTOTUNE unless a setting is 3 %
faster, and stays within the budgets, which the ranks of a host share. The original
pipeline stays, if it is within the budgets, unless a setting is 3 % faster.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Sequence
from typing import Any

from tfpipe import errors, host
from tfpipe.pipeline import Pipeline
from tfpipe.profiling import host_share, measure
from tfpipe.profiling.host_share import HostWatch
from tfpipe.profiling.process_usage import ProcessMeter
from tfpipe.profiling.profile import PipelineProfile
from tfpipe.tuner import placement, space, verdict
from tfpipe.tuner.lanes import Candidates, Races
from tfpipe.tuner.placement import Placement
from tfpipe.tuner.race import Turns
from tfpipe.tuner.result import Search, Trial, payoff
from tfpipe.tuner.space import Budget, Setting
from tfpipe.tuner.time_limit import Deadline
from tfpipe.tuner.verdict import AUTOTUNE, BEST, GIVEN

# Parts of the time limit after which the phases of a search end. The rest is for the
# race.
_UNTIL_QUIET, _UNTIL_COSTS = 0.05, 0.35
_MOST_WAIT_SECONDS = 5.0

_ROUNDS = 7

# A budget of more threads is taken for a mistake.
_MOST_THREADS = 4096


def tune(pipeline: Pipeline, **options: Any) -> Pipeline:
    """Returns the pipeline with the best setting; arguments as of `search_tuning`.

    Example:
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4)
        >>> pipeline = tfpipe.tune(pipeline, time_limit=0.5)  # 60 s by default
    """
    return search_tuning(pipeline, **options).pipeline


def search_tuning(
    pipeline: Pipeline,
    *,
    cpu_budget: int | None = None,
    ram_budget_bytes: int | None = None,
    disk_budget_bytes: int | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    num_local_ranks: int = 1,
    any_order: bool = False,
    time_limit: float = 60.0,
    exhaustive: bool = False,
    demand: float | None = None,
) -> Search:
    """Searches for the fastest setting of a pipeline on this host.

    The search never changes the set of elements, and changes their order only with
    `any_order`. The search sets the knobs of all stages anew, adds a Prefetch at the
    end if there is none, and may add, move or leave out a cache. The pipeline as it was
    given takes part in the race, with its own cache and knobs. It is returned
    unchanged unless a setting is 3 % faster. If its threads or its cache exceed a
    budget, it takes part in the race but is not returned.

    Example:
        >>> pipeline = tfpipe.imagenet_train("DIR", batch_size=4)
        >>> search = tfpipe.search_tuning(pipeline, time_limit=0.5)  # 60 s by default
        >>> pipeline = search.pipeline

    Args:
        pipeline: The pipeline to tune. Its elements should be the batches of a step.
            After its end a pipeline begins again.
        cpu_budget: Threads for all ranks of the host; None is the number of cores.
        ram_budget_bytes: Memory for buffers and caches, for all ranks of the host; None
            is half of the memory left.
        disk_budget_bytes: Bytes for the search's own caches on disk, for all
            ranks; None allows none.
        cache_dir: Folder for a cache on disk; needs disk_budget_bytes.
        num_local_ranks: Number of processes that share the budgets equally.
        any_order: Whether to also try elements in the order in which they become ready,
            so that a slow element holds up no others. The order is not reproducible
            then, and a run resumed within an epoch may read some elements twice or
            never.
        time_limit: Seconds after which the best setting so far is taken, also if the
            pipeline is blocked. About 20 are needed to try any. If nothing could be
            measured in time, the pipeline stays as it was given.
        exhaustive: Whether to try every setting of a coarse grid without a time limit,
            to see the misses of the search.
        demand: Images per second that the training step of the rank could take, for
            `Search.service`; None if it is unknown.

    Raises:
        ValueError: If an argument is wrong, or the pipeline is empty.
        Exception: Any error of the pipeline with AUTOTUNE's setting.
    """
    errors.require_kind("", "pipeline", pipeline, Pipeline)
    errors.require_number("", "time_limit", time_limit, above=0)
    errors.require_bool("", "any_order", any_order)
    errors.require_bool("", "exhaustive", exhaustive)
    errors.require_number("", "demand", demand, above=0, or_none=True)
    errors.require_int("", "disk_budget_bytes", disk_budget_bytes, least=1, also=[None])
    ram_left = host.ram_left()
    share = functools.partial(
        _share,
        cpu_budget,
        ram_budget_bytes,
        num_local_ranks,
        disk_bytes=disk_budget_bytes or 0,
        cache_dir=cache_dir,
    )
    budget = share(ram_left // 2, any_order=any_order)
    # The cache of the original pipeline may use all memory left, unless a
    # budget says less.
    own = share(ram_left)
    deadline = Deadline(None if exhaustive else time_limit)
    searcher = _Searcher(pipeline, budget, own, deadline)
    with deadline.bar:
        is_done = deadline.keep(functools.partial(searcher.run, exhaustive=exhaustive))
    return searcher.result(is_done=is_done, demand=demand)


def _share(
    cpu_budget: int | None,
    ram_bytes: int | None,
    num_ranks: int,
    ram_default: int,
    **others: Any,
) -> Budget:
    """Returns the budget of a rank among the ranks of a host.

    A budget of more memory than the host has counts as the memory of the host.
    """
    errors.require_int("", "num_local_ranks", num_ranks, least=1)
    most = max(_MOST_THREADS, host.num_cores())
    errors.require_int("", "cpu_budget", cpu_budget, least=1, most=most, also=[None])
    # Every rank needs a byte at least.
    least = num_ranks
    errors.require_int("", "ram_budget_bytes", ram_bytes, least=least, also=[None])
    threads = host.num_cores() if cpu_budget is None else cpu_budget
    in_all = ram_default if ram_bytes is None else min(ram_bytes, host.ram_bytes())
    return Budget(
        num_threads=max(1, threads // num_ranks),
        ram_bytes=max(in_all, num_ranks) // num_ranks,
        **others,
    )


class _Searcher:
    """A search. Its thread writes the figures; `result` can be asked at any time."""

    def __init__(
        self, pipeline: Pipeline, budget: Budget, own: Budget, deadline: Deadline
    ) -> None:
        self._original, self._bare = pipeline, space.opened(pipeline)
        self._budget, self._deadline = budget, deadline
        self._autotune = space.autotuned(budget)
        self._races = Races(pipeline, self._bare, deadline)
        self._sizes: dict[int, int] = {}
        self._caches: list[Placement] = []
        self._profile: PipelineProfile | None = None
        self._watch = HostWatch(own_cores=budget.num_threads)
        self._excess = _excess(pipeline, own)

    def run(self, *, exhaustive: bool) -> None:
        """Searches until all is tried, or the time is up."""
        self._deadline.show("waiting for a quiet host")
        most = min(_MOST_WAIT_SECONDS, self._deadline.left(_UNTIL_QUIET))
        is_quiet = host_share.wait_until_quiet(most, own_cores=self._budget.num_threads)
        self._watch = HostWatch(own_cores=self._budget.num_threads)
        self._races.busy_threads = ProcessMeter().busy_threads()
        self._sizes = placement.sizes(self._bare)
        try:
            self._deadline.show("costs of the stages")
            bare = self._autotune.of(self._bare)
            self._profile = _costs(bare, self._deadline, is_quiet=is_quiet)
            if self._profile is not None:
                self._races.lanes.fill_for(self._profile)
            held = self._held(self._start(None))
            self._caches, refused = space.admitted(self._sizes, self._budget, held)
            self._races.trials += [
                Trial(name=f"cache of {cache}", setting=None, error=reason)
                for cache, reason in refused.items()
            ]
            candidates = self._candidates()
            if exhaustive:
                grid = space.grid(self._bare, self._budget, [None, *self._caches])
                best = _best_of(grid, self._races)
                candidates = {GIVEN: None, AUTOTUNE: self._autotune, BEST: best}
            self._races.decide(candidates, num_rounds=_ROUNDS)
        finally:
            self._races.lanes.close()

    def result(self, *, is_done: bool, demand: float | None) -> Search:
        """Returns the best pipeline so far, and the evidence for it.

        Args:
            is_done: Whether the search ended in time.
            demand: As of `search_tuning`.
        """
        turns, share = dict(self._races.turns), self._watch.share()
        setting, winner = self._fallback(), None
        if turns:
            may_stay = not self._excess
            name = verdict.chosen(turns, may_stay=may_stay, taken=share.taken)
            setting, winner = self._races.settings[name], turns[name]
        service = None
        if winner and self._profile:
            service = payoff(winner, self._profile, self._budget, demand)
        notes = [share.sentence] if share.sentence else []
        if self._profile is None:
            notes.append("The costs of the stages could not be measured in time.")
        if not is_done:
            notes.append("An element took longer than the time that was left.")
        ratios = {
            name: winner.ratio(turns[name]) if winner and name in turns else None
            for name in (AUTOTUNE, GIVEN)
        }
        return Search(
            pipeline=setting.of(self._bare) if setting else self._original,
            setting=setting or space.of_pipeline(self._original),
            autotuned=self._autotune,
            trials=[*self._races.trials],
            ratio=ratios[AUTOTUNE],
            given_ratio=ratios[GIVEN],
            profile=self._profile,
            fingerprint=self._original.fingerprint,
            is_as_given=setting is None,
            given_excess=self._excess,
            service=service,
            host_share=share,
            notes=notes,
        )

    def _fallback(self) -> Setting | None:
        """Returns the setting without a decisive race; None is the original pipeline.

        The original pipeline stays, if it can.
        """
        trials = self._races.trials
        is_impossible = any(trial.name == GIVEN and trial.error for trial in trials)
        return self._autotune if self._excess or is_impossible else None

    def _held(self, setting: Setting) -> int:
        return space.held_bytes(self._bare, setting, self._profile, self._sizes)

    def _start(self, cache: Placement | None) -> Setting:
        return space.closed_form(self._bare, self._profile, self._budget, cache=cache)

    def _candidates(self) -> Candidates:
        """Returns the settings that race, by name."""
        costs = self._start(None)
        starts: dict[str, Setting | None] = {GIVEN: None, AUTOTUNE: self._autotune}
        starts["from the costs"] = costs
        if self._profile and self._profile.doubt(self._autotune.tuning):
            more = space.with_more_calls(costs, self._bare, self._budget)
            starts["more calls"] = more
        if self._budget.any_order:
            tuning = dataclasses.replace(costs.tuning, deterministic=False)
            starts["in any order"] = dataclasses.replace(costs, tuning=tuning)
        return starts | {
            f"cache of {cache}": self._start(cache) for cache in self._caches
        }


def _best_of(grid: Sequence[Setting], races: Races) -> Setting:
    """Returns the best setting of a grid: a round for all, then a race of four."""
    names = {f"{n} of {len(grid)}": each for n, each in enumerate(grid, start=1)}
    rates: dict[str, Turns] = {}
    for name, setting in names.items():
        rates |= races.race({name: setting}, num_rounds=1)
        races.lanes.close_all_but(())
    best = sorted(rates, key=lambda name: -rates[name].rate)[:4]
    turns = races.race({name: names[name] for name in best}, num_rounds=_ROUNDS)
    return names[max(turns, key=lambda name: turns[name].rate)]


def _costs(
    pipeline: Pipeline, deadline: Deadline, *, is_quiet: bool
) -> PipelineProfile | None:
    """Measures the costs of the stages; None without time for them."""
    most = deadline.left(_UNTIL_COSTS)
    # On a busy host all takes longer.
    seconds, repeats = (0.2, 2) if is_quiet else (0.1, 1)
    try:
        return measure.profile(
            pipeline,
            seconds=min(seconds, deadline.limit / 100),
            repeats=repeats,
            time_limit=max(most, 1e-3) if math.isfinite(most) else None,
        )
    except TimeoutError:
        return None


def _excess(pipeline: Pipeline, budget: Budget) -> str:
    """Returns `space.excess`; empty for an impossible cache: the race reports it."""
    try:
        return space.excess(pipeline, budget)
    except ValueError:
        return ""
