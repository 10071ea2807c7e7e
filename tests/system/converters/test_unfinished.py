"""Conversions that are stopped, shared or continued: the command as a user runs it."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Sequence

import pytest

from converters.jobs import work_dir
from tests.support.data.trees import digests
from tests.support.processes.long_conversion import Uninterrupted, command, num_complete
from tests.support.processes.warm_python import WarmPython, kill


@dataclasses.dataclass(frozen=True)
class Conversion:
    """The command in a Python that has its imports, and what it must write."""

    raw_dir: pathlib.Path
    expected: dict[str, str]
    python: Sequence[str]

    def command(self, folder: pathlib.Path, *more: str) -> list[str]:
        return command(self.raw_dir, folder, *more, python=self.python)

    def run(self, folder: pathlib.Path, *more: str, exit_code: int = 0) -> str:
        """Runs the command to its end, and returns what it writes to stderr."""
        done = subprocess.run(
            self.command(folder, *more), capture_output=True, text=True, check=False
        )
        assert done.returncode == exit_code, done.stderr
        return done.stderr

    def finish(self, folder: pathlib.Path) -> None:
        """Goes on to the files of an uninterrupted run."""
        self.run(folder)
        assert digests(folder) == self.expected


@pytest.fixture
def conversion(uninterrupted: Uninterrupted, warm_python: WarmPython) -> Conversion:
    return Conversion(*uninterrupted, warm_python.command)


# Each signal, and the number of complete shards when it is sent.
STOPS = ((signal.SIGINT, 1), (signal.SIGTERM, 8), (signal.SIGKILL, 16))


def _stop(
    conversion: Conversion, folder: pathlib.Path, number: signal.Signals, least: int
) -> tuple[int, str]:
    """Starts the command and stops it; returns its exit code and its errors."""
    process = subprocess.Popen(
        conversion.command(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and num_complete(folder) < least:
        time.sleep(0.005)
    if number == signal.SIGKILL:
        kill(process)
    else:
        process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    return process.returncode, errors


def test_stopped_it_says_how_to_go_on_and_writes_no_complete_shard_again(
    conversion: Conversion, tmp_path: pathlib.Path
) -> None:
    """One conversion is stopped three times, by another signal each."""
    for attempt in range(10):
        folder, told = tmp_path / f"out-{attempt}", []
        for number, least in STOPS:
            told.append(_stop(conversion, folder, number, least))
            if told[-1][0] == 0:  # on a busy host it may have ended before
                break
        else:
            break

    assert [code for code, _ in told] == [1, 1, -signal.SIGKILL]
    for _, errors in told[:2]:
        assert "interrupted" in errors
        assert "Run the same command again to go on" in errors
    time.sleep(0.5)  # the workers end with their parent
    markers = (folder / work_dir.WORK_DIR_NAME).glob("*/*.done")
    places = [path.with_suffix("") for path in markers]
    before = {path.name: path.stat().st_ino for path in places}
    conversion.finish(folder)
    assert 16 <= len(before) < 43
    after = {name: (folder / name).stat().st_ino for name in before}
    assert after == before


def test_full_disk_is_an_error_and_can_be_gone_on_from(
    conversion: Conversion, tmp_path: pathlib.Path
) -> None:
    """A limit on the size of a file stands for a full disk."""
    folder = tmp_path / "out"

    # A limit is for a Python of its own.
    done = subprocess.run(
        command(conversion.raw_dir, folder),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_limit_file_size,
    )

    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(folder.glob("*-of-*"))
    conversion.finish(folder)


def _limit_file_size() -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))


def test_tasks_share_a_job_and_the_last_one_finishes(
    conversion: Conversion, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "out"
    processes = [
        subprocess.Popen(
            conversion.command(folder, f"--task_index={task}", "--num_tasks=3"),
            stdout=subprocess.DEVNULL,
        )
        for task in range(3)
    ]

    assert [process.wait() for process in processes] == [0, 0, 0]
    assert digests(folder) == conversion.expected


def test_half_a_job_names_what_is_missing_or_was_changed_and_can_be_gone_on_from(
    conversion: Conversion, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "out"
    conversion.run(folder, "--task_index=0", "--num_tasks=2")

    missing = conversion.run(folder, "--finalize", exit_code=1)
    changed = conversion.run(folder, "--seed=5", exit_code=1)

    assert "but lacks 21, the first is train-00001-of-00040" in missing
    assert "options.seed was 0, is 5" in changed
    assert os.listdir(folder) == [work_dir.WORK_DIR_NAME]
    conversion.finish(folder)
