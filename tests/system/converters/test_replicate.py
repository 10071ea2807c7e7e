"""The command converters.replicate as users run it: killed, again, by URL, in tasks."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from converters import verify
from tests.support.data import convert, digests, make_tree
from tests.support.native_op import native_op, needs_native  # noqa: F401
from tfpipe.shards import index

pytestmark = needs_native

COPIES = 12


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("source")
    raw = make_tree(folder / "raw", num_images=24, num_validation_images=2)
    convert(raw, folder / "set", num_train_shards=6, num_validation_shards=1)
    return folder / "set"


def _command(source: object, output: object, *flags: str) -> list[str]:
    module = [sys.executable, "-m", "converters.replicate"]
    return [*module, str(source), f"--output_dir={output}", *flags]


def _run(source: object, output: object, *flags: str, code: int = 0) -> Any:
    done = subprocess.run(
        _command(source, output, *flags), capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else done.stderr


def _kill_half_way(source: pathlib.Path, output: pathlib.Path, *flags: str) -> int:
    """Kills a command after its first shards, and returns how many are complete."""
    process = subprocess.Popen(
        _command(source, output, *flags), stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while not any(output.glob(".converting/*/*.done")):
        assert process.poll() is None, "the command ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return len(list(output.glob(".converting/*/*.done")))


def _require_sound(folder: pathlib.Path) -> None:
    config = verify.Config(data_dir=str(folder), level="decode", num_workers=2)
    assert verify.verify(config).faults == []


def test_a_killed_replication_goes_on_and_has_the_bytes_of_any_other(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    flags = (f"--copies={COPIES}", "--mirror", "--seed=5")
    whole = _run(source, tmp_path / "whole", *flags, "--num_workers=1")
    killed = tmp_path / "killed"
    complete = _kill_half_way(source, killed, *flags, "--num_workers=2")
    assert 1 <= complete < whole["num_shards"]
    assert not (killed / index.INDEX_NAME).exists()
    kept = {path.name: path.stat().st_mtime_ns for path in killed.glob("*/*/*.done")}

    other = _run(source, killed, f"--copies={COPIES}", "--seed=6", code=1)
    assert "unfinished conversion that differs" in other
    assert "options.seed was 5, is 6" in other
    assert {
        path.name: path.stat().st_mtime_ns for path in killed.glob("*/*/*.done")
    } == kept
    again = _run(source, killed, *flags, "--num_workers=2")

    # Three tasks; the last one to end publishes.
    tasks = [
        _run(source, tmp_path / "tasks", *flags, "--num_tasks=3", f"--task_index={n}")
        for n in range(3)
    ]
    assert [task["finished"] for task in tasks] == [False, False, True]
    assert whole["num_records"] == again["num_records"] == 26 * COPIES
    assert digests(killed) == digests(tmp_path / "whole") == digests(tmp_path / "tasks")
    assert not list(killed.rglob("*.part"))
    _require_sound(killed)


def test_copies_from_and_to_a_url_and_of_another_tools_records(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    here = _run(source, tmp_path / "here", "--copies=2")
    there = f"file://{tmp_path}/there"
    by_url = _run(f"file://{source}", there, "--copies=2")
    linked = _run(source, tmp_path / "linked", "--identical", "--copies=3")
    too_large = _run(source, tmp_path / "x", "--target_bytes=9PB", "--dry_run", code=2)

    assert by_url["num_bytes"] == here["num_bytes"]
    assert digests(tmp_path / "there") == digests(tmp_path / "here")
    _require_sound(tmp_path / "there")
    assert sum(linked["decisions"].values()) == 3 * 26
    assert not too_large["estimate"]["fits"]
    assert not (tmp_path / "x").exists()
    message = _run(tmp_path, tmp_path / "y", "--copies=2", code=1)
    assert "--write_index" in message

    # Shards of another tool, for which verify wrote the index.
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for path in source.glob("train-*"):
        (foreign / path.name).write_bytes(path.read_bytes())
    adopted = verify.Config(data_dir=str(foreign), write_index=True, num_workers=1)
    assert verify.verify(adopted).faults == []
    _run(foreign, tmp_path / "copies", "--copies=2")
    _require_sound(tmp_path / "copies")
    features = index.load(foreign).made_by["features"]
    assert index.load(tmp_path / "copies").made_by["features"] == features
