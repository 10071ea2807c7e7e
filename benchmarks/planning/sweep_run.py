"""One run of a sweep: started, waited for, and stored as one JSON file.

In: a `Run` and a folder. Out: `<name>.json`, the result of benchmarks.train with
settings, command, duration and the digest of its data under "sweep". A run whose gates
were not met has a result too. A failed run leaves `failed/<name>.json` instead. A file
is complete as soon as it exists. A result of other data, versions or machines goes to
`stale/`.
"""

import dataclasses
import hashlib
import itertools
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

import tfpipe
from benchmarks.planning.plan import Run
from benchmarks.reporting import output
from benchmarks.results import tree
from benchmarks.results.collection import Result, RunResult, environment
from benchmarks.results.environment import changes
from benchmarks.system import child_process
from tfpipe import errors
from tfpipe.errors import count_of

FAILED_DIR = "failed"
STALE_DIR = "stale"

_GATE_NOT_MET = 2  # exit code of benchmarks.train, which has printed its result
_GRACE_SECONDS = 20.0  # horovodrun needs up to ten to end its ranks
_RANK_PREFIX = re.compile(r"^\[\d+\]<std(out|err)>:")
# horovodrun ends with 1 whatever its ranks end with; it says their code on stderr.
_CODE_OF_RANK = re.compile(r"^Exit code: +(-?\d+)$", re.MULTILINE)
_TAIL_BYTES = 4000


class RunEnd(NamedTuple):
    """The end of a run: its result, its error, or both if a file cannot be written."""

    result: RunResult | None
    error: str


def data_digest(data_dir: str | None) -> str | None:
    """Returns the SHA-256 of a data set's index, which names all shards."""
    if data_dir is None:
        return None
    content = tfpipe.Files(data_dir).read("index.json")
    return hashlib.sha256(content).hexdigest()


def read_result(folder: pathlib.Path, run: Run) -> RunResult | None:
    """Returns the stored result of a run; None if the run has none."""
    path = folder / f"{run.name}.json"
    try:
        document = errors.from_json(path.read_text(encoding="utf-8"))
        result: RunResult = Result(run.name, document)
        values = result.values
        if values.sweep is None or tree.read(Run, values.sweep.run) != run:
            raise KeyError("run")
        if not values.sweep.seconds or None in (
            *(values.timed_seconds, values.examples_per_second, values.stall_fraction),
        ):
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

    Args:
        result: What `read_result` returned. A result of an older version holds no
            digest of its data and counts as unchanged.
    """
    stored = result.document["sweep"].get("data_digest", digest)
    if stored != digest:
        return "its data have changed since"
    if result.faults:
        return result.faults[0].removesuffix(".")
    changed = changes(environment(result), now)
    return f"other versions or another machine: {', '.join(changed)}" if changed else ""


def move_aside(folder: pathlib.Path, run: Run) -> pathlib.Path:
    """Moves the stale result of a run to a file of its own; returns the new path."""
    stale = folder / STALE_DIR
    stale.mkdir(exist_ok=True)
    names = (stale / f"{run.name}.{count}.json" for count in itertools.count(1))
    path = next(name for name in names if not name.exists())
    (folder / f"{run.name}.json").rename(path)
    return path


def keep_result(
    folder: pathlib.Path, run: Run, *, timeout: float, digest: str | None
) -> RunEnd:
    """Starts a run, waits for its end, and stores its result or its error.

    A result or an error that cannot be stored is printed whole on stderr instead.

    Args:
        timeout: Seconds after which the run is ended and counts as failed.
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
        return RunEnd(Result(run.name, kept), error)
    ending = {"exit_code": code, "error": error, "stderr": tail, "result": result}
    document = {"command": "benchmarks.sweep", "schema_version": 1} | about | ending
    _write(document, failed)
    return RunEnd(None, error)


def _error(
    run: Run,
    code: int | None,
    result: Mapping[str, Any] | None,
    tail: str,
    timeout: float,
) -> str:
    if code is None:
        return f"It did not end within {timeout:g} s (--run_timeout)."
    if code == 1 and run.needs_horovodrun and (said := _CODE_OF_RANK.findall(tail)):
        code = int(said[-1])
    if code < 0:
        signalled = f"It was ended by signal {-code} ({signal.strsignal(-code)})."
        return f"{signalled} {find_error(tail)}".strip()
    if code not in (0, _GATE_NOT_MET):
        return find_error(tail) or f"It ended with exit code {code}."
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
    beside = pathlib.Path(sys.executable).with_name("horovodrun")
    path = str(beside) if beside.exists() else shutil.which("horovodrun")
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
                document = errors.from_json(line)
            except ValueError:
                continue
            if document.get("command") == "benchmarks.train":
                return dict(document)
    return None


def find_error(text: str) -> str:
    """Returns the first line with "Error: ", or else the last non-empty line."""
    lines = [_RANK_PREFIX.sub("", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    errors = [line for line in lines if re.search(r"\bError: ", line)]
    return (errors or lines[-1:] or [""])[0]
