"""Conversions that are killed, and what the same command makes of it."""

import hashlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from converters.jobs import work_dir as work_dir_jobs
from tests.support.data import make_tree

NUM_ROUNDS = 8

pytestmark = pytest.mark.slow


def _command(raw_dir: pathlib.Path, output_dir: pathlib.Path, *more: str) -> list[str]:
    return [
        sys.executable,
        *("-m", "converters.imagenet"),
        f"--input_dir={raw_dir}",
        f"--output_dir={output_dir}",
        "--num_train_shards=40",
        "--num_validation_shards=3",
        "--num_workers=2",
        *more,
    ]


def _digests(folder: pathlib.Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


@pytest.fixture(scope="module")
def raw_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """400 training images and 30 for validation."""
    folder = tmp_path_factory.mktemp("raw")
    return make_tree(folder, num_images=400, num_validation_images=30)


@pytest.fixture(scope="module")
def expected(
    raw_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What an uninterrupted run writes."""
    folder = tmp_path_factory.mktemp("expected") / "out"
    subprocess.run(_command(raw_dir, folder), check=True, capture_output=True)
    return _digests(folder)


def test_killed_at_any_moment_it_ends_with_the_same_bytes(
    raw_dir: pathlib.Path, expected: dict[str, str], tmp_path: pathlib.Path
) -> None:
    """Killed up to three times in a row, then left alone."""
    generator = random.Random(0)
    kills = 0
    for number in range(NUM_ROUNDS):
        folder = tmp_path / str(number)
        for _ in range(3):
            process = subprocess.Popen(
                _command(raw_dir, folder),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            num_shards, work_dir = (
                generator.randint(0, 43),
                folder / work_dir_jobs.WORK_DIR_NAME,
            )
            while process.poll() is None and _num_complete(work_dir) < num_shards:
                time.sleep(0.002)
            time.sleep(generator.uniform(0.0, 0.05))
            process.kill()
            if process.wait() == 0:
                break
            kills += 1
        else:
            done = subprocess.run(
                _command(raw_dir, folder), capture_output=True, text=True, check=False
            )
            assert done.returncode == 0 or _was_done(done.stderr, folder), done.stderr

        assert _digests(folder) == expected

    assert kills > NUM_ROUNDS


def _num_complete(work_dir: pathlib.Path) -> int:
    return len(list(work_dir.glob("*/*.done")))


def _was_done(errors: str, folder: pathlib.Path) -> bool:
    """Whether the last kill came too late to cut anything off."""
    left = (folder / work_dir_jobs.WORK_DIR_NAME).exists()
    return "already holds a data set" in errors and not left


def test_complete_shards_are_not_written_again(
    raw_dir: pathlib.Path, expected: dict[str, str], tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "out"
    process = subprocess.Popen(_command(raw_dir, folder), stdout=subprocess.DEVNULL)
    work_dir = folder / work_dir_jobs.WORK_DIR_NAME
    while process.poll() is None and len(list(work_dir.glob("*/*.done"))) < 5:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # the workers end with their parent
    places = [path.with_suffix("") for path in work_dir.glob("*/*.done")]
    before = {path.name: path.stat().st_ino for path in places}

    subprocess.run(_command(raw_dir, folder), check=True, stdout=subprocess.DEVNULL)

    assert 5 <= len(before) < 43
    after = {name: (folder / name).stat().st_ino for name in before}
    assert after == before
    assert _digests(folder) == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it_soon_and_says_how_to_go_on(
    raw_dir: pathlib.Path,
    expected: dict[str, str],
    tmp_path: pathlib.Path,
    number: signal.Signals,
) -> None:
    for attempt in range(10):
        folder = tmp_path / f"out-{attempt}"
        process = subprocess.Popen(
            _command(raw_dir, folder),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not list((folder / work_dir_jobs.WORK_DIR_NAME).glob("*/*.done")):
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
    subprocess.run(_command(raw_dir, folder), check=True, stdout=subprocess.DEVNULL)
    assert _digests(folder) == expected


def test_full_disk_is_an_error_and_can_be_gone_on_from(
    raw_dir: pathlib.Path, expected: dict[str, str], tmp_path: pathlib.Path
) -> None:
    """A limit on the size of a file is what a test can set without a small disk."""
    folder = tmp_path / "out"
    limited = subprocess.run(
        _command(raw_dir, folder),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_limit_file_size,
    )

    assert limited.returncode == 1
    assert "File too large" in limited.stderr
    assert "Traceback" not in limited.stderr
    assert not list(folder.glob("*-of-*"))

    subprocess.run(_command(raw_dir, folder), check=True, stdout=subprocess.DEVNULL)
    assert _digests(folder) == expected


def _limit_file_size() -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))


def test_tasks_share_a_job_and_the_last_one_finishes(
    raw_dir: pathlib.Path, expected: dict[str, str], tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "out"
    processes = [
        subprocess.Popen(
            _command(raw_dir, folder, f"--task_index={task}", "--num_tasks=3"),
            stdout=subprocess.DEVNULL,
        )
        for task in range(3)
    ]

    assert [process.wait() for process in processes] == [0, 0, 0]
    assert _digests(folder) == expected


def test_finalize_names_what_is_missing_and_finishes_what_is_there(
    raw_dir: pathlib.Path, expected: dict[str, str], tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "out"
    tasks = [("--task_index=0", "--num_tasks=2"), ("--task_index=1", "--num_tasks=2")]
    subprocess.run(
        _command(raw_dir, folder, *tasks[0]), check=True, capture_output=True
    )

    early = subprocess.run(
        _command(raw_dir, folder, "--finalize"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert early.returncode == 1
    assert "21 are missing, the first is train-00001-of-00040" in early.stderr
    subprocess.run(
        _command(raw_dir, folder, *tasks[1]), check=True, capture_output=True
    )
    assert _digests(folder) == expected


def test_changed_option_is_noticed(
    raw_dir: pathlib.Path, expected: dict[str, str], tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "out"
    half = ("--task_index=0", "--num_tasks=2")
    subprocess.run(_command(raw_dir, folder, *half), check=True, capture_output=True)

    other = subprocess.run(
        _command(raw_dir, folder, "--seed=5"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert other.returncode == 1
    assert "options.seed was 0, is 5" in other.stderr
    assert os.listdir(folder) == [work_dir_jobs.WORK_DIR_NAME]
    subprocess.run(_command(raw_dir, folder), check=True, capture_output=True)
    assert _digests(folder) == expected
