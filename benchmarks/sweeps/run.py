"""One run of a sweep: started, waited for, and stored as one JSON file.

In: a `Run` and a folder. Out: `<name>.json`, which is the result of benchmarks.train
with settings, command and duration of the run under "sweep". A run that failed leaves
`failed/<name>.json` instead. A file is complete as soon as it exists, so a run that has
a result file is done.
"""

import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Any

from benchmarks.reporting import output
from benchmarks.sweeps.plan import Result, Run

FAILED_DIR = "failed"

_PR_SET_PDEATHSIG = 1  # prctl(2)
_GRACE_SECONDS = 20.0  # horovodrun needs up to ten to end its ranks
_RANK_PREFIX = re.compile(r"^\[\d+\]<std(out|err)>:")
_TAIL_BYTES = 4000


def read_result(folder: pathlib.Path, run: Run) -> Result | None:
    """Returns the stored result of a run; None if the run has none.

    Raises:
        ValueError: If the file of the run holds something else.
    """
    path = folder / f"{run.name}.json"
    try:
        result: Result = json.loads(path.read_text(encoding="utf-8"))
        if result["sweep"]["run"] != json.loads(json.dumps(run.as_json())):
            raise KeyError("run")
        result["sweep"]["seconds"], result["timed_seconds"]
        result["examples_per_second"], result["stall_fraction"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} must be the result of {run.name}, and is not: {error!r}. Remove "
            "it, or choose another --sweep_dir."
        ) from error
    return result


def keep_result(
    folder: pathlib.Path, run: Run, timeout: float
) -> tuple[Result | None, str]:
    """Starts a run, waits for its end, and stores its result or its error.

    Args:
        folder: Folder of the sweep.
        run: The run to start.
        timeout: Seconds after which the run is ended and counts as failed.

    Returns:
        The result and "", or None and the error.

    Raises:
        OSError: If the run cannot be started, or its file cannot be written.
    """
    command = run.command(horovodrun() if run.num_ranks > 1 else "")
    start = time.monotonic()
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        code = _run(command, stdout, stderr, timeout)
        seconds = time.monotonic() - start
        result = find_result(_text(stdout))
        tail = _text(stderr)[-_TAIL_BYTES:]
    about = {"run": run.as_json(), "command": command, "seconds": seconds}
    path, failed = folder / f"{run.name}.json", folder / FAILED_DIR / f"{run.name}.json"
    if code == 0 and result is not None and result.get("num_ranks") == run.num_ranks:
        kept = {**result, "sweep": about}
        output.write(kept, path)
        failed.unlink(missing_ok=True)
        return kept, ""
    if code is None:
        error = f"It did not end within {timeout:g} s (--run_timeout)."
    elif code:
        error = find_error(tail) or f"It ended with exit code {code}."
    else:
        error = f"It printed no result of {run.num_ranks} ranks."
    failed.parent.mkdir(exist_ok=True)
    ending = {"exit_code": code, "error": error, "stderr": tail, "result": result}
    output.write(
        {"command": "benchmarks.sweep", "schema_version": 1} | about | ending, failed
    )
    return None, error


def horovodrun() -> str:
    """Returns the path of the horovodrun beside this Python, or else on the PATH.

    Raises:
        FileNotFoundError: If there is no horovodrun in either place.
    """
    beside = pathlib.Path(sys.executable).with_name("horovodrun")
    found = str(beside) if beside.exists() else shutil.which("horovodrun")
    if found is None:
        raise FileNotFoundError(
            "Runs on several ranks need horovodrun, which is neither beside "
            f"{sys.executable} nor on the path. Install Horovod as BUILD.md says."
        )
    return found


def _run(
    command: Sequence[str], stdout: IO[bytes], stderr: IO[bytes], timeout: float
) -> int | None:
    """Returns the exit code of a command; None if it was ended at the timeout."""
    # The kernel ends the run if the sweep is killed: an orphan would slow down the
    # next run. The parent may be gone before prctl is called, hence the check.
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def end_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        preexec_fn=end_with_parent,
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that still runs. horovodrun ends its ranks on SIGTERM."""
    if process.poll() is None:
        process.terminate()
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

    Args:
        text: Standard output of the command; horovodrun begins each line with the
            rank and the stream.
    """
    for line in reversed(text.splitlines()):
        line = _RANK_PREFIX.sub("", line)
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if found.get("command") == "benchmarks.train":
                return dict(found)
    return None


def find_error(text: str) -> str:
    """Returns the first line with "Error: ", or else the last non-empty line."""
    lines = [_RANK_PREFIX.sub("", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    errors = [line for line in lines if re.search(r"\bError: ", line)]
    return (errors or lines[-1:] or [""])[0]
