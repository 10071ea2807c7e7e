"""The tuner searches for the fastest setting of a pipeline within budgets.

In: a pipeline, and its part of the host. Out: the same pipeline with every knob set,
and a list of the tried settings. A few settings, with caches and without, run in a
race, which alone decides. The search keeps AUTOTUNE unless a setting is 3 % faster,
and stays within the budgets, which the ranks of a host share. The original pipeline
stays, if it is within the budgets, unless a setting is 3 % faster.
"""

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

from tfpipe import errors, host
from tfpipe.pipeline import Pipeline
from tfpipe.profiling import host_share
from tfpipe.profiling.host_share import HostWatch
from tfpipe.profiling.process_usage import ProcessMeter
from tfpipe.service.paying import ServicePayoff
from tfpipe.tuner import placement, space, verdict
from tfpipe.tuner.lanes import Candidates, Lanes
from tfpipe.tuner.race import Turns
from tfpipe.tuner.result import Search, Trial
from tfpipe.tuner.space import Budget, Setting
from tfpipe.tuner.time_limit import Deadline
from tfpipe.tuner.verdict import AUTOTUNE, GIVEN

# Part of the time limit in which a search waits for a quiet host, and the most seconds.
_UNTIL_QUIET, _MOST_WAIT_SECONDS = 0.05, 5.0

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
        demand: Images per second that the training step of the rank could take, for
            `Search.service`; None if it is unknown.

    Raises:
        ValueError: If an argument is wrong, or the pipeline is empty.
        Exception: Any error of the pipeline with AUTOTUNE's setting.
    """
    errors.require_kind("", "pipeline", pipeline, Pipeline)
    errors.require_number("", "time_limit", time_limit, above=0)
    errors.require_bool("", "any_order", any_order)
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
    deadline = Deadline(time_limit)
    searcher = _Searcher(pipeline, budget, own, deadline)
    with deadline.bar:
        is_done = deadline.keep(searcher.run)
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
        self._lanes = Lanes(pipeline, self._bare, deadline)
        self._candidates: dict[str, Setting | None] = {
            AUTOTUNE: space.autotuned(budget),
            GIVEN: None,
        }
        self._turns: Mapping[str, Turns] = {}
        self._batch_bytes = 0
        self._batch_size: int | None = None
        self._watch = HostWatch(own_cores=budget.num_threads)
        self._excess = _excess(pipeline, own)

    def run(self) -> None:
        """Searches until the race is decided, or the time is up."""
        self._deadline.show("waiting for a quiet host")
        most = min(_MOST_WAIT_SECONDS, self._deadline.left(_UNTIL_QUIET))
        host_share.wait_until_quiet(most, own_cores=self._budget.num_threads)
        self._watch = HostWatch(own_cores=self._budget.num_threads)
        busy_threads = ProcessMeter().busy_threads()
        try:
            if runner := self._lanes.add(AUTOTUNE, self._candidates[AUTOTUNE]):
                self._lanes.fill_for(runner)
                self._batch_bytes = runner.num_bytes()
                self._batch_size = runner.num_examples
            self._candidates |= self._others()
            for name, setting in self._candidates.items():
                if name != AUTOTUNE:
                    self._lanes.add(name, setting)
            turns = self._lanes.race(self._candidates, busy_threads=busy_threads)
            # The rate of one tells nothing.
            if len(turns) > 1 and (GIVEN in turns or self._is_impossible()):
                self._turns = turns
        finally:
            self._lanes.close()

    def _others(self) -> Candidates:
        """Returns the settings of the search's own, by name."""
        most = functools.partial(space.with_most_calls, self._budget, self._batch_bytes)
        others: dict[str, Setting | None] = {"most calls": most()}
        if self._budget.any_order:
            tuning = dataclasses.replace(most().tuning, deterministic=False)
            others["in any order"] = Setting(tuning=tuning)
        sizes = placement.sizes(self._bare)
        held = space.held_bytes(
            self._bare,
            self._budget,
            sizes,
            batch_bytes=self._batch_bytes,
            batch_size=self._batch_size or 1,
        )
        caches, refused = space.admitted(sizes, self._budget, held)
        self._lanes.trials += [
            Trial(name=f"cache of {cache}", setting=None, error=reason)
            for cache, reason in refused.items()
        ]
        return others | {f"cache of {cache}": most(cache=cache) for cache in caches}

    def result(self, *, is_done: bool, demand: float | None) -> Search:
        """Returns the best pipeline so far, and the evidence for it.

        Args:
            is_done: Whether the search ended in time.
            demand: As of `search_tuning`.
        """
        turns, share = dict(self._turns), self._watch.share()
        # Without a decisive race the original pipeline stays, if it can.
        name = AUTOTUNE if self._excess or self._is_impossible() else GIVEN
        if turns:
            may_stay = not self._excess
            name = verdict.chosen(turns, may_stay=may_stay, taken=share.taken)
        setting, winner = self._candidates[name], turns.get(name)
        notes = [share.sentence] if share.sentence else []
        if not is_done:
            notes.append("An element took longer than the time that was left.")
        ratios = {
            other: winner.ratio(turns[other]) if winner and other in turns else None
            for other in (AUTOTUNE, GIVEN)
        }
        return Search(
            pipeline=setting.of(self._bare) if setting else self._original,
            setting=setting or space.of_pipeline(self._original),
            autotuned=space.autotuned(self._budget),
            trials=[*self._lanes.trials],
            ratio=ratios[AUTOTUNE],
            given_ratio=ratios[GIVEN],
            fingerprint=self._original.fingerprint,
            is_as_given=setting is None,
            given_excess=self._excess,
            service=self._payoff(winner, demand) if winner else None,
            host_share=share,
            notes=notes,
        )

    def _is_impossible(self) -> bool:
        """Checks whether the original pipeline could not be run."""
        trials = self._lanes.trials
        return any(trial.name == GIVEN and trial.error for trial in trials)

    def _payoff(self, winner: Turns, demand: float | None) -> ServicePayoff:
        """Returns whether a `Service` would pay, from the rate of the winner."""
        count = self._batch_size or 1
        return ServicePayoff(
            rate=winner.rate * count,
            num_cores=min(self._budget.num_threads, host.num_cores()),
            demand=demand,
            cpu_seconds=winner.cost / count or None,
            bytes_per_image=self._batch_bytes / count or None,
            unit="images" if self._batch_size else "elements",
        )


def _excess(pipeline: Pipeline, budget: Budget) -> str:
    """Returns `space.excess`; empty for an impossible cache: the race reports it."""
    try:
        return space.excess(pipeline, budget)
    except ValueError:
        return ""
