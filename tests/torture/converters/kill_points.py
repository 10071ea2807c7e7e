"""Kills conversions at chosen system calls, and judges what later commands do.

  python -m tests.torture.converters.kill_points FOLDER EVERY [SCENARIO ...]

kills a conversion, in a process of its own, right before each EVERY-th rename, unlink,
rmdir, mkdir, fsync and lock call that it makes, in all scenarios or in those of the
numbers given. After each kill the same command is run, the same with --overwrite,
another job, and another job with --overwrite, each on a copy of what the kill left. The
last line on stdout is one JSON object: kills by scenario, outcomes by follower, and
failures.

The process that forks has one thread and has opened no database.
"""

import collections
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import duckdb  # noqa: F401  # once here, and not in each of a thousand children

from converters.jobs import replace, work_dir
from tests.support.data.trees import convert, make_tree

CALLS: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in ("replace", "rename", "unlink", "remove", "rmdir")),
    *((os, name) for name in ("mkdir", "fsync")),
    (fcntl, "flock"),
)

# Another seed and other numbers of shards: some names of shards are equal, some not.
JOBS: Mapping[str, Mapping[str, Any]] = {
    "X": {"seed": 0, "num_train_shards": 3, "num_validation_shards": 1},
    "Y": {"seed": 1, "num_train_shards": 4, "num_validation_shards": 1},
    "Z": {"seed": 2, "num_train_shards": 2, "num_validation_shards": 1},
}


@dataclasses.dataclass(frozen=True)
class Command:
    """A conversion: which job, and the options of this run of it."""

    job: str
    overwrite: bool = False
    task: int = 0
    num_tasks: int = 1


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a command ended: "killed", "done", "waits" (for other tasks) or "refused"."""

    kind: str
    message: str = ""
    num_calls: int = 0


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Commands that run before, with the call at which each is killed; the victim."""

    name: str
    before: tuple[tuple[Command, int | None], ...]
    victim: Command


SCENARIOS = (
    Scenario("into an empty folder", (), Command("X")),
    Scenario("over another", ((Command("Y"), None),), Command("X", True)),
    Scenario("over the same", ((Command("X"), None),), Command("X", True)),
    Scenario("first task of two", (), Command("X", task=0, num_tasks=2)),
    Scenario(
        "last task of two",
        ((Command("X", task=0, num_tasks=2), None),),
        Command("X", task=1, num_tasks=2),
    ),
    Scenario(
        "last task of two, over another",
        ((Command("Y"), None), (Command("X", True, 0, 2), None)),
        Command("X", True, 1, 2),
    ),
    Scenario(
        "over an unfinished one",
        ((Command("Y", task=0, num_tasks=2), None),),
        Command("X", True),
    ),
    Scenario(
        "over a half-published one",
        ((Command("Y"), None), (Command("Z", True), -20)),
        Command("X", True),
    ),
)


def run_killed(
    raw_dir: pathlib.Path, folder: pathlib.Path, command: Command, at: int | None
) -> Outcome:
    """Runs a command in a child, which is killed before call number `at`, if any."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        num_calls = _inject(at)
        outcome = _outcome(raw_dir, folder, command)
        outcome = dataclasses.replace(outcome, num_calls=num_calls())
        os.write(write, json.dumps(dataclasses.asdict(outcome)).encode()[:60_000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Outcome("killed")
    return Outcome(**json.loads(content))


def _inject(at: int | None) -> Callable[[], int]:
    """Makes this process end at one of the calls; returns a counter of the calls."""
    count = 0

    def counted(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            if name == "fsync":  # fsync takes long, and a kill loses no written data
                return None
            return original(*arguments, **options)

        return call

    for module, name in CALLS:
        setattr(module, name, counted(getattr(module, name), name))
    return lambda: count


def _outcome(raw_dir: pathlib.Path, folder: pathlib.Path, command: Command) -> Outcome:
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # the process ends soon
    try:
        summary = convert(
            raw_dir,
            folder,
            **JOBS[command.job],
            overwrite=command.overwrite,
            task_index=command.task,
            num_tasks=command.num_tasks,
            fsync=True,
        )
    except (ValueError, OSError) as error:
        return Outcome("refused", str(error))
    except BaseException:
        return Outcome("crashed", traceback.format_exc())
    return Outcome("done" if summary["finished"] else "waits")


def content(folder: pathlib.Path, *, work_too: bool = False) -> dict[str, str]:
    """Returns the digest of each file, by default without the working folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and (work_too or not name.startswith(work_dir.WORK_DIR_NAME)):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


class Judge:
    """Checks what commands do after a kill, and counts the outcomes."""

    def __init__(self, raw_dir: pathlib.Path, folder: pathlib.Path) -> None:
        self.raw_dir = raw_dir
        self.folder = folder
        self.expected: dict[str, dict[str, str]] = {}
        self.kills: collections.Counter[str] = collections.Counter()
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []
        for job in JOBS:
            place = folder / f"expected-{job}"
            assert run_killed(raw_dir, place, Command(job), None).kind == "done"
            self.expected[job] = content(place, work_too=True)

    def run(self, scenario: Scenario, every: int) -> None:
        """Kills the victim of a scenario at each `every`-th call."""
        start = self.folder / "start"
        start.mkdir()
        for command, at in scenario.before:
            if at is not None and at < 0:
                at += self._num_calls(start, command)
            run_killed(self.raw_dir, start, command, at)
        num_calls = self._num_calls(start, scenario.victim)
        # Scenarios start at different calls, so that together they cover more.
        for at in range(5 * SCENARIOS.index(scenario) % every, num_calls, every):
            self._kill(scenario, start, at)
        shutil.rmtree(start)

    def _num_calls(self, start: pathlib.Path, command: Command) -> int:
        with self._copy(start) as place:
            outcome = run_killed(self.raw_dir, place, command, None)
            assert outcome.kind in ("done", "waits"), outcome
            return outcome.num_calls

    @staticmethod
    def _copy(source: pathlib.Path) -> "_Copy":
        return _Copy(source)

    def _kill(self, scenario: Scenario, start: pathlib.Path, at: int) -> None:
        victim, had_data = scenario.victim, (start / "index.json").exists()
        with self._copy(start) as killed:
            outcome = run_killed(self.raw_dir, killed, victim, at)
            assert outcome.kind == "killed", outcome
            self.kills[scenario.name] += 1
            for follower in (
                victim,
                dataclasses.replace(victim, overwrite=True),
                Command("Z"),
                Command("Z", overwrite=True),
            ):
                with self._copy(killed) as place:
                    for fault in self._follow(victim, follower, place, had_data):
                        self.failures.append(
                            f"{scenario.name}, call {at}, then {follower}: {fault}"
                        )

    def _follow(
        self, victim: Command, follower: Command, place: pathlib.Path, had_data: bool
    ) -> Iterator[str]:
        """Runs a command after a kill; yields the faults of its outcome."""
        complete = _complete_shards(place, victim.job)
        outcome = run_killed(self.raw_dir, place, follower, None)
        who = "same" if follower.job == victim.job else "another"
        who += " with --overwrite" if follower.overwrite else ""
        self.outcomes[f"{who}: {outcome.kind}"] += 1
        whole = [j for j in JOBS if content(place) == self.expected[j]]
        if outcome.kind == "done":
            if content(place, work_too=True) != self.expected[follower.job]:
                yield f"done, but not its data set: {sorted(content(place))}"
            if follower == victim and complete - _inodes(place):
                yield "shards that were complete were written again"
        elif outcome.kind == "refused":
            yield from _wrong_refusal(outcome.message, bool(whole), place)
        elif outcome.kind == "crashed":
            yield outcome.message
        if (place / "index.json").exists() and not whole:
            yield f"an index over a mix: {sorted(content(place))}"
        if had_data and not whole:
            yield f"the old data set is lost: {sorted(content(place))}"
        if outcome.kind != "done":
            yield from self._settle(victim, place)

    def _settle(self, victim: Command, place: pathlib.Path) -> Iterator[str]:
        """Runs the victim's job with --overwrite, which must always succeed."""
        again = Command(victim.job, overwrite=True)
        outcome = run_killed(self.raw_dir, place, again, None)
        if content(place, work_too=True) != self.expected[victim.job]:
            yield f"in the end not the data set: {outcome}"


def _wrong_refusal(message: str, whole: bool, place: pathlib.Path) -> Iterator[str]:
    if "already holds a data set" in message:
        if not whole:
            yield f"refused for a data set that is not whole: {message}"
    elif "holds an unfinished conversion that differs" in message:
        if not (place / work_dir.WORK_DIR_NAME).exists():
            yield f"refused for an unfinished conversion that is not there: {message}"
    else:
        yield f"refused for a reason of no use: {message}"


def _inodes(folder: pathlib.Path) -> set[int]:
    return {path.stat().st_ino for path in folder.rglob("*-of-*") if path.is_file()}


def _complete_shards(folder: pathlib.Path, job: str) -> set[int]:
    """Returns the inodes of a job's complete shards, in its folder or published."""
    found = set()
    for marker in (folder / work_dir.WORK_DIR_NAME).glob("*/*.done"):
        description = marker.with_name(replace.JOB_NAME)
        if not description.exists():
            continue
        if json.loads(description.read_text())["options"]["seed"] != JOBS[job]["seed"]:
            continue
        path = marker.with_suffix("")
        if not path.exists():
            path = folder / path.name
        if path.exists():
            found.add(path.stat().st_ino)
    return found


class _Copy:
    """A copy of a folder that may be missing, removed at the end of the block."""

    def __init__(self, source: pathlib.Path) -> None:
        self._place = source.with_name(f"{source.name}-copy")
        shutil.copytree(source, self._place)

    def __enter__(self) -> pathlib.Path:
        return self._place

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self._place)


def main(folder: pathlib.Path, every: int, numbers: Sequence[int]) -> dict[str, Any]:
    """Runs scenarios; returns the counts and the failures."""
    raw_dir = make_tree(folder / "raw", num_images=6, num_validation_images=2)
    judge = Judge(raw_dir, folder)
    for number in numbers:
        judge.run(SCENARIOS[number], every)
    return {
        "num_kills": judge.kills.total(),
        "kills": judge.kills,
        "outcomes": dict(sorted(judge.outcomes.items())),
        "failures": judge.failures,
    }


if __name__ == "__main__":
    chosen = [int(text) for text in sys.argv[3:]] or range(len(SCENARIOS))
    print(json.dumps(main(pathlib.Path(sys.argv[1]), int(sys.argv[2]), chosen)))
