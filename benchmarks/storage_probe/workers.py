"""Processes that read: started once, for many jobs.

In: a job for each process, and actions on the page cache. Out: the outcomes. All
processes of a turn start to read together. A process that hangs in a dead file server
is killed and left behind, so that the command does not hang.
"""

import contextlib
import dataclasses
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, BinaryIO

from benchmarks.page_cache import actions
from benchmarks.storage_probe.reads import Job, TimedReads
from benchmarks.system import child_process

_LAST_SECONDS = 2.0
_ACTION_SECONDS = 120.0  # to evict or fill some GB
_ANSWER_BYTES = 1 << 16
_GO = b"go\n"


class Workers:
    """Some processes that read, for use in a `with` statement.

    Args:
        patience: Seconds to wait for a process, beyond the seconds of the job.
    """

    def __init__(self, *, patience: float = 60.0) -> None:
        self._patience = patience
        self._workers: list[_Worker] = []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.end(must_be_quick=error is not None)

    def run(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        """Runs jobs at the same time, each in a process of its own.

        Raises:
            OSError: If a job fails, or a process ends or does not answer in time.
        """
        self._start(len(jobs))
        turn = list(zip(self._workers, jobs, strict=False))
        for worker, job in turn:
            worker.send(_line(dataclasses.asdict(job)))
        for worker, _ in turn:
            worker.answer(self._patience)
        for worker, _ in turn:
            worker.send(_GO)
        return [worker.answer(job.seconds + self._patience) for worker, job in turn]

    def act(self, action: str, files: Sequence[str]) -> dict[str, Any]:
        """Does one of `actions.ACTIONS` in a process, and returns its result."""
        self._start(1)
        self._workers[0].send(_line({"action": action, "files": list(files)}))
        return self._workers[0].answer(_ACTION_SECONDS + self._patience)

    def _start(self, count: int) -> None:
        while len(self._workers) < count:
            self._workers.append(_Worker())


class _Worker:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.storage_probe.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=child_process.environment(),
            start_new_session=True,  # Ctrl-C ends the command, and the command the rest
        )
        self._received = b""

    def send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        # The end of the process is an error when the answer is read.
        with contextlib.suppress(BrokenPipeError):
            while line:
                line = line[self._process.stdin.write(line) :]

    def answer(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        file, end = self._process.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self._received:
            left = max(0.0, end - time.monotonic())
            if not select.select([file], [], [], left)[0]:
                raise TimeoutError(
                    f"A read did not come back within {seconds:.0f} s. Look at the "
                    "file server or the disk, and at the kernel's log."
                )
            more = os.read(file, _ANSWER_BYTES)
            if not more:
                raise OSError("A process of the probe has ended before its answer.")
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        if error := message.get("error"):
            raise OSError(error)
        return message

    def end(self, *, must_be_quick: bool) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        if must_be_quick:
            self._process.kill()
        # A process that hangs within the kernel does not die, so the wait is short.
        try:
            self._process.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()


def _answers(lines: BinaryIO) -> Iterator[dict[str, Any]]:
    for line in lines:
        message = json.loads(line)
        if "action" in message:
            yield actions.perform(message["action"], message["files"])
            continue
        try:
            reading = TimedReads(Job(**message))
        except Exception as error:  # the other process must know of any error
            yield {"error": _named(error)}
            lines.readline()
            continue
        yield {}
        if lines.readline() != _GO:
            return
        try:
            yield reading.run()
        except Exception as error:
            yield {"error": _named(error)}


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _named(error: Exception) -> str:
    return str(error) or type(error).__name__


def main() -> int:
    """Runs the jobs on stdin until it ends."""
    with contextlib.suppress(BrokenPipeError):
        for answer in _answers(sys.stdin.buffer):
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
