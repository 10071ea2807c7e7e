"""Conversions that are stopped, shared or continued: the command as a user runs it."""

import os
import pathlib
import signal
import subprocess
import time

import pytest

from converters.jobs import work_dir
from tests.support.data import digests
from tests.support.long_conversion import command, make_input, num_complete

Made = tuple[pathlib.Path, dict[str, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Folder of the images, and digests of the files of an uninterrupted run."""
    return make_input(tmp_path_factory.mktemp("made"))


def test_complete_shards_are_not_written_again(
    made: Made, tmp_path: pathlib.Path
) -> None:
    raw_dir, expected = made
    folder = tmp_path / "out"
    process = subprocess.Popen(command(raw_dir, folder), stdout=subprocess.DEVNULL)
    while process.poll() is None and num_complete(folder) < 5:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # the workers end with their parent
    markers = (folder / work_dir.WORK_DIR_NAME).glob("*/*.done")
    places = [path.with_suffix("") for path in markers]
    before = {path.name: path.stat().st_ino for path in places}

    subprocess.run(command(raw_dir, folder), check=True, stdout=subprocess.DEVNULL)

    assert 5 <= len(before) < 43
    after = {name: (folder / name).stat().st_ino for name in before}
    assert after == before
    assert digests(folder) == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it_soon_and_says_how_to_go_on(
    made: Made,
    tmp_path: pathlib.Path,
    number: signal.Signals,
) -> None:
    raw_dir, expected = made
    for attempt in range(10):
        folder = tmp_path / f"out-{attempt}"
        process = subprocess.Popen(
            command(raw_dir, folder),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not num_complete(folder):
            time.sleep(0.005)
            if process.poll() is not None:
                break

        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
        if process.returncode != 0:  # on a busy host it may have ended before
            break

    assert process.returncode == 1
    assert "interrupted" in errors
    assert "Run the same command again to go on" in errors
    subprocess.run(command(raw_dir, folder), check=True, stdout=subprocess.DEVNULL)
    assert digests(folder) == expected


def test_full_disk_is_an_error_and_can_be_gone_on_from(
    made: Made, tmp_path: pathlib.Path
) -> None:
    """A limit on the size of a file stands for a full disk."""
    raw_dir, expected = made
    folder = tmp_path / "out"
    limited = subprocess.run(
        command(raw_dir, folder),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_limit_file_size,
    )

    assert limited.returncode == 1
    assert "File too large" in limited.stderr
    assert "Traceback" not in limited.stderr
    assert not list(folder.glob("*-of-*"))

    subprocess.run(command(raw_dir, folder), check=True, stdout=subprocess.DEVNULL)
    assert digests(folder) == expected


def _limit_file_size() -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))


def test_tasks_share_a_job_and_the_last_one_finishes(
    made: Made, tmp_path: pathlib.Path
) -> None:
    raw_dir, expected = made
    folder = tmp_path / "out"
    processes = [
        subprocess.Popen(
            command(raw_dir, folder, f"--task_index={task}", "--num_tasks=3"),
            stdout=subprocess.DEVNULL,
        )
        for task in range(3)
    ]

    assert [process.wait() for process in processes] == [0, 0, 0]
    assert digests(folder) == expected


def test_finalize_names_what_is_missing_and_finishes_what_is_there(
    made: Made, tmp_path: pathlib.Path
) -> None:
    raw_dir, expected = made
    folder = tmp_path / "out"
    tasks = [("--task_index=0", "--num_tasks=2"), ("--task_index=1", "--num_tasks=2")]
    subprocess.run(command(raw_dir, folder, *tasks[0]), check=True, capture_output=True)

    early = subprocess.run(
        command(raw_dir, folder, "--finalize"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert early.returncode == 1
    assert "21 are missing, the first is train-00001-of-00040" in early.stderr
    subprocess.run(command(raw_dir, folder, *tasks[1]), check=True, capture_output=True)
    assert digests(folder) == expected


def test_changed_option_is_noticed(made: Made, tmp_path: pathlib.Path) -> None:
    raw_dir, expected = made
    folder = tmp_path / "out"
    half = ("--task_index=0", "--num_tasks=2")
    subprocess.run(command(raw_dir, folder, *half), check=True, capture_output=True)

    other = subprocess.run(
        command(raw_dir, folder, "--seed=5"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert other.returncode == 1
    assert "options.seed was 0, is 5" in other.stderr
    assert os.listdir(folder) == [work_dir.WORK_DIR_NAME]
    subprocess.run(command(raw_dir, folder), check=True, capture_output=True)
    assert digests(folder) == expected
