"""The runs of a sweep: started, waited for, stored, and repeated by a search.

In: a `Sweep` and its folder. Out: results, errors and answers of searches, which grow
with every run. A run leaves `<name>.json`, the result of benchmarks.train with
settings, command, duration and the digest of its data under "sweep". A run whose gates
were not met has a result too. A failed run leaves `failed/<name>.json` instead. A file
is complete as soon as it exists. A stored result is used as long as data, versions and
machine of its run are the same; other results go to `stale/`.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import operator
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple

import tfpipe
from benchmarks.planning.plan import Placement, Run, Series, Sweep
from benchmarks.reporting import output
from benchmarks.results import tree
from benchmarks.results.collection import Result, RunResult, environment
from benchmarks.results.environment import changes, here
from benchmarks.results.other_results import FoundRanks, RankProbe
from benchmarks.results.train_result import TrainResult
from benchmarks.system import child_process
from benchmarks.system.figures import joined
from tfpipe import errors
from tfpipe.cli import progress
from tfpipe.errors import count_of

FAILED_DIR = "failed"
STALE_DIR = "stale"

_GATE_NOT_MET = 2  # exit code of benchmarks.train, which has printed its result
_GRACE_SECONDS = 20.0  # horovodrun needs up to ten to end its ranks
_RANK_PREFIX = re.compile(r"^\[\d+\]<std(out|err)>:")
# horovodrun ends with 1 whatever its ranks end with; it says their code on stderr.
_CODE_OF_RANK = re.compile(r"^Exit code: +(-?\d+)$", re.MULTILINE)
_TAIL_BYTES = 4000

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

    def text(self, gates: str, missed: Sequence[str]) -> str:
        """Returns the answer; `missed` says which gates `fails` ranks did not meet."""
        meet = f"{count_of(self.meets, 'rank')} meet{'s' if self.meets == 1 else ''}"
        if self.fails is None:
            return f"{meet} {gates}; more were not allowed."
        reason = f"({' '.join(missed).removesuffix('.')})"
        if not self.meets:
            return f"1 rank does not meet {gates} {reason}."
        return f"{meet} {gates}; {self.fails} do not {reason}."


def search(meets: Callable[[int, int], bool], max_ranks: int) -> Answer:
    """Finds the largest number of ranks that meets the gates.

    Without a majority of its runs, a number of ranks does not meet the gates. `meets`
    takes the number of ranks, and the number of the run from 1.
    """
    votes: dict[int, list[bool]] = {}

    def ask(num_ranks: int) -> None:
        before = votes.setdefault(num_ranks, [])
        before.append(meets(num_ranks, len(before) + 1))

    # Ends because no number of ranks is run more than MAX_REPEATS times.
    while True:
        low = max((n for n, v in votes.items() if 2 * sum(v) > len(v)), default=0)
        high = min((n for n in votes if n > low), default=None)
        if high is None and low < max_ranks:
            ask(min(max(1, 2 * low), max_ranks))
        elif high is not None and high - low > 1:
            ask((low + high) // 2)
        elif once := [n for n in (low, high) if n and len(votes[n]) == 1]:
            ask(once[0])
            if len(set(votes[once[0]])) > 1:
                ask(once[0])
        else:
            return Answer(low, high)


class MissingRunError(Exception):
    """A run has no result: the run failed, or a dry run must not start the run."""


class Repeats(NamedTuple):
    """The finished runs of a series on a placement."""

    series: Series
    placement: Placement
    results: Sequence[RunResult]

    @property
    def values(self) -> list[TrainResult]:
        return [result.values for result in self.results]

    def means(self, *names: str) -> dict[str, Any]:
        """Returns the mean of each figure by the last part of its dotted name.

        A mean is None if a run does not know the figure.
        """
        return {
            name.rpartition(".")[2]: joined(
                statistics.mean, [operator.attrgetter(name)(v) for v in self.values]
            )
            for name in names
        }

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
        missing = [run for run in runs if not self._is_stored(run)]
        num_done = len(runs) - len(missing)
        with progress.bar(len(runs), "run", done=num_done) as bar:
            for run in [] if self.is_dry else missing:
                bar.set_postfix_str(run.name)
                bar.clear()
                self._start(run)
                bar.update()

    def _is_stored(self, run: Run) -> bool:
        """Returns whether a run has a result on the present data."""
        if run in self.results:
            return True
        if (result := read_result(self.folder, run)) is None:
            return False
        if why := why_stale(result, self._digest(run), self._now()):
            moved = None if self.is_dry else _move_aside(self.folder, run)
            self.stale[run] = moved
            where = f"; its result is now {moved}" if moved else ""
            progress.say(f"{run.name}: {why}, it is run again{where}")
            return False
        self.results[run] = result
        return True

    def _start(self, run: Run) -> None:
        result, error = keep_result(
            self.folder, run, timeout=self.sweep.run_timeout, digest=self._digest(run)
        )
        if error:
            self.errors[run] = error
            progress.say(f"{run.name}: {error}")
        if result is not None:
            self.results[run] = result
            line = f"{run.name}: {result.values.examples_per_second or 0:.1f} images/s "
            gates = "".join(f"; {gate.text}" for gate in result.gates)
            progress.say(f"{line}in {time_text(duration(result))}{gates}")

    def _now(self) -> Mapping[str, Any]:
        """Returns versions and machine of new runs; of the first result on hosts."""
        if not self.sweep.hosts:
            return here()
        first = next(iter(self.results.values()), None)
        described = environment(first) if first else {}
        return {name: described.get(name) for name in here()}

    def _digest(self, run: Run) -> str | None:
        """Returns the SHA-256 of the data set's index, which names all shards."""
        if (data_dir := self.data_dir_of(run)) is None:
            return None
        return hashlib.sha256(tfpipe.Files(data_dir).read("index.json")).hexdigest()

    def _search(self, series: Series) -> FoundRanks | None:
        probes: list[RankProbe] = []

        def meets(num_ranks: int, repeat: int) -> bool:
            run = self.sweep.run_of(series, Placement(num_ranks), repeat)
            if not self._is_stored(run) and not self.is_dry:
                self._start(run)
            if run not in self.results:
                raise MissingRunError(run.name)
            missed = tuple(missed_gates(self.results[run]))
            probes.append(RankProbe(run=run.name, num_ranks=num_ranks, missed=missed))
            return not missed

        (most,) = self.sweep.all_placements()
        try:
            answer = search(meets, most.num_ranks)
        except MissingRunError as error:
            if self.is_dry:
                progress.say(f"{error}: this run is next, and decides about the rest")
            return None
        last = {probe.num_ranks: probe.missed for probe in probes}
        missed = last[answer.fails] if answer.fails else ()
        return FoundRanks(
            **dataclasses.asdict(series),
            num_ranks=answer.meets,
            num_ranks_not_met=answer.fails,
            text=answer.text(", ".join(self.sweep.find_ranks), missed),
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
            if results := [self.results[run] for run in runs if run in self.results]:
                finished.append(Repeats(series, placement, results))
        return finished


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


def read_result(folder: pathlib.Path, run: Run) -> RunResult | None:
    """Returns the stored result of a run; None if the run has none."""
    path = folder / f"{run.name}.json"
    try:
        document = errors.from_json(path.read_text(encoding="utf-8"))
        result: RunResult = Result(run.name, document)
        values = result.values
        if values.sweep is None or tree.read(Run, values.sweep.run) != run:
            raise KeyError("run")
        needed = (values.timed_seconds, values.examples_per_second)
        if not values.sweep.seconds or None in (*needed, values.stall_fraction):
            raise KeyError("seconds, timed_seconds, examples_per_second")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} must be the result of {run.name}, and is not: {error!r}. Remove "
            "it, or choose another --sweep_dir."
        ) from error
    return result


def why_stale(result: RunResult, digest: str | None, now: Mapping[str, Any]) -> str:
    """Returns why a result must not stand beside new ones; "" if it may.

    A result of an older version holds no digest of its data and counts as unchanged.
    """
    if result.document["sweep"].get("data_digest", digest) != digest:
        return "its data have changed since"
    if result.faults:
        return result.faults[0].removesuffix(".")
    changed = changes(environment(result), now)
    return f"other versions or another machine: {', '.join(changed)}" if changed else ""


def _move_aside(folder: pathlib.Path, run: Run) -> pathlib.Path:
    """Moves the stale result of a run to a file of its own; returns the new path."""
    stale = folder / STALE_DIR
    stale.mkdir(exist_ok=True)
    names = (stale / f"{run.name}.{count}.json" for count in itertools.count(1))
    path = next(name for name in names if not name.exists())
    return (folder / f"{run.name}.json").rename(path)


def keep_result(
    folder: pathlib.Path, run: Run, *, timeout: float, digest: str | None
) -> tuple[RunResult | None, str]:
    """Starts a run, waits for its end, and stores its result or its error.

    A result or an error that cannot be stored is printed whole on stderr instead. A run
    that takes `timeout` seconds is ended and counts as failed.

    Returns:
        The result and the error of the run; both if a file cannot be written.
    """
    command = run.command(horovodrun() if run.needs_horovodrun else "")
    start = time.monotonic()
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        code = _run(command, stdout, stderr, timeout)
        seconds = time.monotonic() - start
        result = find_result(_text(stdout))
        tail = _text(stderr)[-_TAIL_BYTES:]
    about = {"run": dataclasses.asdict(run), "command": command, "seconds": seconds}
    about["data_digest"] = digest
    path, failed = folder / f"{run.name}.json", folder / FAILED_DIR / f"{run.name}.json"
    error = _error(run, code, result, tail, timeout)
    if result is not None and not error:
        kept = output.sealed({**result, "sweep": about})
        if not (error := _write(kept, path)):
            failed.unlink(missing_ok=True)
        return Result(run.name, kept), error
    ending = {"exit_code": code, "error": error, "stderr": tail, "result": result}
    document = {"command": "benchmarks.sweep", "schema_version": 1} | about | ending
    _write(document, failed)
    return None, error


def _error(
    run: Run, code: int | None, result: dict[str, Any] | None, tail: str, timeout: float
) -> str:
    if code is None:
        return f"It did not end within {timeout:g} s (--run_timeout)."
    if code == 1 and run.needs_horovodrun and (said := _CODE_OF_RANK.findall(tail)):
        code = int(said[-1])
    if code < 0:
        signalled = f"It was ended by signal {-code} ({signal.strsignal(-code)})."
        return f"{signalled} {_find_error(tail)}".strip()
    if code not in (0, _GATE_NOT_MET):
        return _find_error(tail) or f"It ended with exit code {code}."
    if result is None or result.get("num_ranks") != run.num_ranks:
        return f"It printed no result of {count_of(run.num_ranks, 'rank')}."
    return ""


def _write(document: Mapping[str, Any], path: pathlib.Path) -> str:
    """Writes a document; one that cannot be written is printed, and the error returned.

    Hours of runs must not be lost because the disk is full at their end.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        output.write(document, path)
    except OSError as error:
        print(json.dumps(document), file=sys.stderr, flush=True)
        return f"{path} cannot be written: {error}. The line above is its content."
    return ""


def horovodrun() -> str:
    """Returns the path of the horovodrun beside this Python, or else on the PATH."""
    beside = str(pathlib.Path(sys.executable).with_name("horovodrun"))
    path = shutil.which(beside) or shutil.which("horovodrun")
    if path is None:
        raise FileNotFoundError(
            "Runs on several ranks need horovodrun, which is neither beside "
            f"{sys.executable} nor on the path. Install Horovod as BUILD.md says."
        )
    return path


def _run(
    command: Sequence[str], stdout: IO[bytes], stderr: IO[bytes], timeout: float
) -> int | None:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        # An orphan of a sweep that was killed would slow down the next run.
        preexec_fn=child_process.end_with_parent(),
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            process.terminate()  # on SIGTERM horovodrun ends its ranks
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def find_result(text: str) -> dict[str, Any] | None:
    """Returns the last JSON object that benchmarks.train printed; None without one.

    horovodrun begins each line with the rank and the stream.
    """
    for line in reversed(text.splitlines()):
        with contextlib.suppress(ValueError):
            document = errors.from_json(_RANK_PREFIX.sub("", line))
            is_object = isinstance(document, dict)
            if is_object and document.get("command") == "benchmarks.train":
                return dict(document)
    return None


def _find_error(text: str) -> str:
    """Returns the first line with "Error: ", or else the last non-empty line."""
    lines = [_RANK_PREFIX.sub("", line).strip() for line in text.splitlines()]
    failed = [line for line in lines if re.search(r"\bError: ", line)]
    return (failed or [line for line in lines if line][-1:] or [""])[0]
