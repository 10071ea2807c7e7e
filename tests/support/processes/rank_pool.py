"""Two Horovod ranks that are started once and then run one scenario after another.

In: a function and its arguments. Out: what the function returned on each rank, or one
error with the traceback of every rank. Starting Horovod and importing TensorFlow takes
longer than most scenarios, so the tests of a session share the ranks.

The test process and the ranks talk through files in one folder: `<n>.task` is the n-th
scenario, `<n>.rank<r>` is the answer of rank r. See rank_pool_worker for the ranks.
"""

import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.support.processes import horovodrun

POLL_SECONDS = 0.02
START_SECONDS = 300.0
# Ranks of one scenario end nearly together, unless one of them failed.
SECONDS_AFTER_A_FAILURE = 10.0
END_SECONDS = 10.0
MAX_LOG_CHARACTERS = 4000


class Answer(NamedTuple):
    """The answer of one rank to a scenario: a value, or the traceback of its error."""

    value: Any = None
    error: str | None = None


class RanksFailedError(Exception):
    """A scenario failed on at least one rank.

    Attributes:
        errors: For each rank its traceback; None if the rank returned a value or gave
            no answer.
    """

    def __init__(self, message: str, errors: list[str | None]) -> None:
        super().__init__(message)
        self.errors = errors


class RankPool:
    """Horovod ranks on this host, started when the first scenario is run.

    Args:
        folder: An empty folder for what the ranks and the tests tell each other.
        num_ranks: Number of ranks.
        python: What starts Python on each rank, or a `WarmPython.command`.
        last_rank: Environment variables of the last rank alone.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        num_ranks: int = 2,
        python: Sequence[str] = (sys.executable,),
        last_rank: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.num_ranks = num_ranks
        self._folder = folder
        self._python = python
        self._last_rank = last_rank
        self._launcher: subprocess.Popen[bytes] | None = None
        self._num_starts = 0
        self._num_tasks = 0

    def run(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        timeout: float = 120.0,
        **options: Any,
    ) -> list[Any]:
        """Calls function(ranks, *arguments, **options) on every rank at the same time.

        Args:
            function: A function at the top of a module; its first argument is the
                `Ranks` of the process.
            arguments: Values that can be pickled, the same for every rank.
            timeout: Seconds within which every rank must answer.
            options: Keyword arguments, as `arguments`.

        Returns:
            The values of the ranks, in the order of ranks.

        Raises:
            RanksFailedError: If a rank raised an error, died or gave no answer in time.
        """
        launcher = self._started()
        name = self._run_dir / str(self._num_tasks)
        self._num_tasks += 1
        write_whole(name.with_suffix(".task"), (function, arguments, options))
        paths = [name.with_suffix(f".rank{rank}") for rank in range(self.num_ranks)]
        answers = self._collect(launcher, paths, timeout)
        errors = [answer.error if answer else None for answer in answers]
        if None in answers:
            self.close()  # a rank that gave no answer takes no further scenario
        if None in answers or any(errors):
            raise RanksFailedError(self._message(launcher, answers), errors)
        return [answer.value for answer in answers if answer]

    def close(self) -> None:
        """Ends the ranks; the next scenario starts new ones."""
        launcher, self._launcher = self._launcher, None
        if launcher is None:
            return
        (self._run_dir / "close").touch()
        try:
            launcher.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            for path in self._run_dir.glob("rank*.pid"):
                try:
                    os.kill(int(path.read_text()), signal.SIGKILL)
                except ProcessLookupError:
                    continue
            launcher.wait(END_SECONDS)

    @property
    def _run_dir(self) -> pathlib.Path:
        return self._folder / f"start{self._num_starts}"

    def _started(self) -> "subprocess.Popen[bytes]":
        """Returns the launcher of ranks that wait for a scenario."""
        if self._launcher is not None and self._launcher.poll() is None:
            return self._launcher
        self._num_starts += 1
        self._num_tasks = 0
        self._run_dir.mkdir(parents=True)
        worker = "tests.support.processes.rank_pool_worker"
        # A file, as a pipe that nobody reads would fill up and stop the ranks.
        with open(self._run_dir / "log", "wb") as log:
            self._launcher = subprocess.Popen(
                horovodrun.command(
                    self.num_ranks,
                    *("-m", worker, self._run_dir, os.getpid()),
                    python=self._python,
                    last_rank=self._last_rank,
                ),
                stdout=log,
                stderr=subprocess.STDOUT,
                env=horovodrun.environment(),
            )
        ready = [self._run_dir / f"rank{r}.pid" for r in range(self.num_ranks)]
        end = time.monotonic() + START_SECONDS
        while not all(path.exists() for path in ready):
            if self._launcher.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"The ranks did not start: {self._log()}")
            time.sleep(POLL_SECONDS)
        return self._launcher

    def _collect(
        self,
        launcher: "subprocess.Popen[bytes]",
        paths: list[pathlib.Path],
        timeout: float,
    ) -> list[Answer | None]:
        """Returns the answer of each rank; None for a rank that gave none in time."""
        answers: list[Answer | None] = [None] * len(paths)
        end = time.monotonic() + timeout
        while None in answers and time.monotonic() < end:
            has_ended = launcher.poll() is not None
            for rank, path in enumerate(paths):
                if answers[rank] is None and path.exists():
                    answers[rank] = answer = pickle.loads(path.read_bytes())
                    if answer.error:
                        end = min(end, time.monotonic() + SECONDS_AFTER_A_FAILURE)
            if has_ended:
                break
            time.sleep(POLL_SECONDS)
        return answers

    def _message(
        self, launcher: "subprocess.Popen[bytes]", answers: list[Answer | None]
    ) -> str:
        lines = []
        for rank, answer in enumerate(answers):
            if answer is None:
                lines.append(f"Rank {rank} gave no answer: it died or is stuck.")
            elif answer.error:
                lines.append(f"Rank {rank} failed: {answer.error}")
            else:
                lines.append(f"Rank {rank} returned a value.")
        if None in answers:
            lines.append(f"Exit code of horovodrun: {launcher.poll()}. {self._log()}")
        return "\n".join(lines)

    def _log(self) -> str:
        log = (self._run_dir / "log").read_text(errors="replace")
        return f"Last output:\n{log[-MAX_LOG_CHARACTERS:]}"


def write_whole(path: pathlib.Path, value: Any) -> None:
    """Pickles a value to a file, which appears under its name when it is complete."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(pickle.dumps(value))
    part.rename(path)
