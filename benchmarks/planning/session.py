"""The finished runs of a sweep.

In: a `Sweep` and its folder. Out: results, errors and answers of searches, which grow
with every run. A stored result is used as long as data, versions and machine of its
run are the same.
"""

import dataclasses
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.planning import sweep_run
from benchmarks.planning.plan import Placement, Run, Series, Sweep
from benchmarks.results.collection import RunResult, environment
from benchmarks.results.environment import here
from benchmarks.results.other_results import FoundRanks, RankProbe
from benchmarks.results.train_result import TrainResult
from benchmarks.system.figures import joined
from tfpipe.cli import progress

RULE = (
    "The search assumes that more ranks never meet the gates where fewer do not. Both "
    "numbers of ranks next to the answer are run twice; a third run decides if two "
    "disagree."
)


MAX_REPEATS = 3  # runs on a number of ranks


class Answer(NamedTuple):
    """The end of a search.

    Attributes:
        meets: Largest number of ranks that meets the gates; 0 if a single rank fails.
        fails: Smallest number of ranks that fails; None if the largest allowed number
            meets the gates.
    """

    meets: int
    fails: int | None


def search(meets: Callable[[int, int], bool], max_ranks: int) -> Answer:
    """Finds the largest number of ranks that meets the gates.

    Args:
        meets: (number of ranks, number of the run from 1) -> whether the gates are met.
    """
    votes: dict[int, list[bool]] = {}

    def ask(num_ranks: int) -> None:
        before = votes.setdefault(num_ranks, [])
        before.append(meets(num_ranks, len(before) + 1))

    # Ends because no number of ranks is run more than MAX_REPEATS times.
    while True:
        low = max((n for n in votes if _is_met(votes[n])), default=0)
        high = min((n for n in votes if n > low), default=None)
        if (following := _next_ranks(low, high, max_ranks)) is not None:
            ask(following)
            continue
        once = [n for n in (low, high) if n and len(votes[n]) == 1]
        if not once:
            return Answer(low, high)
        ask(once[0])
        if len(set(votes[once[0]])) > 1:
            ask(once[0])


def _is_met(votes: list[bool]) -> bool:
    """Returns the answer of most runs; without a majority, the gates are not met."""
    return 2 * sum(votes) > len(votes)


def _next_ranks(low: int, high: int | None, max_ranks: int) -> int | None:
    """Returns the number of ranks to run next; None if low and high are neighbors."""
    if high is None:
        return min(max(1, 2 * low), max_ranks) if low < max_ranks else None
    return (low + high) // 2 if high - low > 1 else None


class MissingRunError(Exception):
    """A run has no result: the run failed, or a dry run must not start the run."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"{run.name} has no result.")
        self.run = run


class Repeats(NamedTuple):
    """The finished runs of a series on a placement."""

    series: Series
    placement: Placement
    results: Sequence[RunResult]

    @property
    def values(self) -> list[TrainResult]:
        return [result.values for result in self.results]

    def mean(self, get: Callable[[TrainResult], float | None]) -> float | None:
        """Returns the mean of a figure; None if a run does not know the figure."""
        return joined(statistics.mean, [get(values) for values in self.values])

    @property
    def rates(self) -> list[float]:
        return [values.examples_per_second or 0.0 for values in self.values]

    @property
    def are_gates_met(self) -> bool | None:
        """Whether all runs met all gates; None without gates."""
        passed = [gate.passed for result in self.results for gate in result.gates]
        return all(passed) if passed else None


@dataclasses.dataclass(kw_only=True)
class Session:
    """Runs, stored results and searches of a sweep.

    Attributes:
        is_dry: Whether no run is started and no file is moved.
        errors: The reason why a run failed, or why its file was not written.
        stale: Run -> new file of the stale result; None in a dry run.
        answers: Series -> answer of the search; None without an answer.
    """

    sweep: Sweep
    folder: pathlib.Path
    data_dir_of: Callable[[Run], str | None]
    is_dry: bool = False
    results: dict[Run, RunResult] = dataclasses.field(default_factory=dict)
    errors: dict[Run, str] = dataclasses.field(default_factory=dict)
    stale: dict[Run, pathlib.Path | None] = dataclasses.field(default_factory=dict)
    answers: dict[Series, FoundRanks | None] = dataclasses.field(default_factory=dict)

    def run_all(self) -> None:
        """Runs the search, or the runs without a result."""
        if self.sweep.find_ranks:
            for series in self.sweep.series():
                self.answers[series] = self._search(series)
            return
        runs = self.sweep.runs()
        missing = [run for run in runs if self.stored(run) is None]
        num_done = len(runs) - len(missing)
        with progress.bar(len(runs), "run", done=num_done) as bar:
            for run in [] if self.is_dry else missing:
                bar.set_postfix_str(run.name)
                bar.clear()
                self._start(run)
                bar.update()

    def stored(self, run: Run) -> RunResult | None:
        """Returns the result of a run on the present data; None without a result."""
        if run in self.results:
            return self.results[run]
        result = sweep_run.read_result(self.folder, run)
        why = result and sweep_run.why_stale(result, self._digest(run), self._now())
        if result is not None and why:
            moved = None if self.is_dry else sweep_run.move_aside(self.folder, run)
            self.stale[run] = moved
            where = f"; its result is now {moved}" if moved else ""
            progress.say(f"{run.name}: {why}, it is run again{where}")
            return None
        if result is not None:
            self.results[run] = result
        return result

    def _start(self, run: Run) -> None:
        result, error = sweep_run.keep_result(
            self.folder, run, timeout=self.sweep.run_timeout, digest=self._digest(run)
        )
        if error:
            self.errors[run] = error
            progress.say(f"{run.name}: {error}")
        if result is not None:
            self.results[run] = result
            progress.say(result_line(run, result))

    def _now(self) -> Mapping[str, Any]:
        """Returns versions and machine of new runs; of the first result on hosts."""
        if not self.sweep.hosts:
            return here()
        first = next(iter(self.results.values()), None)
        described = environment(first) if first else {}
        return {name: described.get(name) for name in here()}

    def _digest(self, run: Run) -> str | None:
        return sweep_run.data_digest(self.data_dir_of(run))

    def _search(self, series: Series) -> FoundRanks | None:
        probes: list[RankProbe] = []

        def meets(num_ranks: int, repeat: int) -> bool:
            run = self.sweep.run_of(series, Placement(num_ranks), repeat)
            if self.stored(run) is None and not self.is_dry:
                self._start(run)
            if run not in self.results:
                raise MissingRunError(run)
            missed = tuple(missed_gates(self.results[run]))
            probes.append(RankProbe(run=run.name, num_ranks=num_ranks, missed=missed))
            return not missed

        (most,) = self.sweep.all_placements()
        try:
            answer = search(meets, most.num_ranks)
        except MissingRunError as error:
            if self.is_dry:
                progress.say(
                    f"{error.run.name}: this run is next, and decides about the rest"
                )
            return None
        last = {probe.num_ranks: probe.missed for probe in probes}
        missed = last[answer.fails] if answer.fails else ()
        return FoundRanks(
            **dataclasses.asdict(series),
            num_ranks=answer.meets,
            num_ranks_not_met=answer.fails,
            text=_answer_text(answer, ", ".join(self.sweep.find_ranks), missed),
            probes=tuple(probes),
        )

    def repeats(self, series: Series) -> list[Repeats]:
        """Returns the finished runs of a series, by placement, where there are any."""
        placements, most = self.sweep.all_placements(), self.sweep.repeats
        if self.sweep.find_ranks:
            placements = [Placement(1 + n) for n in range(placements[0].num_ranks)]
            most = MAX_REPEATS
        finished = []
        for placement in placements:
            runs = [self.sweep.run_of(series, placement, 1 + n) for n in range(most)]
            results = [self.results[run] for run in runs if run in self.results]
            if results:
                finished.append(Repeats(series, placement, results))
        return finished

    def all_repeats(self) -> list[Repeats]:
        return [
            repeats
            for series in self.sweep.series()
            for repeats in self.repeats(series)
        ]


def result_line(run: Run, result: RunResult) -> str:
    """Returns the outcome of a run, for people."""
    values = result.values
    line = f"{run.name}: {values.examples_per_second or 0:.1f} images/s "
    line += f"in {time_text(duration(result))}"
    return line + "".join(f"; {gate.text}" for gate in result.gates)


def duration(result: RunResult) -> float:
    """Returns the seconds that a run of a sweep took."""
    return result.values.sweep.seconds if result.values.sweep else 0.0


def time_text(seconds: float) -> str:
    """Returns a duration for people: 75 s, 12 min, 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def missed_gates(result: RunResult) -> list[str]:
    """Returns the sentences of the gates that a run did not meet."""
    return [gate.text for gate in result.gates if not gate.passed]


def _answer_text(answer: Answer, gates: str, missed: Sequence[str]) -> str:
    meet = "1 rank meets" if answer.meets == 1 else f"{answer.meets} ranks meet"
    if answer.fails is None:
        return f"{meet} {gates}; more were not allowed."
    reason = f"({' '.join(missed).removesuffix('.')})"
    if not answer.meets:
        return f"1 rank does not meet {gates} {reason}."
    return f"{meet} {gates}; {answer.fails} do not {reason}."
