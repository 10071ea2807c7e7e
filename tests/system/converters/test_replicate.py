"""The command converters.replicate as users run it: killed, again, by URL, in tasks."""

import json
import pathlib
import subprocess
import time
from typing import Any

import pytest

from converters import replicate, verify
from converters.options.replicate import ReplicateOptions
from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.data.trees import convert, digests, make_tree
from tests.support.processes.warm_python import WarmPython, kill
from tfpipe.location.files import Files
from tfpipe.shards import index

pytestmark = needs_native

COPIES = 8


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("source")
    raw = make_tree(folder / "raw", num_images=24, num_validation_images=2)
    convert(raw, folder / "set", num_train_shards=6, num_validation_shards=1)
    return folder / "set"


def _words(source: object, output: object, *flags: str) -> list[str]:
    return ["-m", "converters.replicate", str(source), f"--output_dir={output}", *flags]


def _run(
    python: WarmPython, source: object, output: object, *flags: str, code: int = 0
) -> Any:
    done = python.run(*_words(source, output, *flags))
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else done.stderr


def _kill_half_way(
    python: WarmPython, source: pathlib.Path, output: pathlib.Path, *flags: str
) -> int:
    """Kills a command after its first shards, and returns how many are complete."""
    process = subprocess.Popen(
        [*python.command, *_words(source, output, *flags)], stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while not any(output.glob(".converting/*/*.done")):
        assert process.poll() is None, "the command ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.005)
    kill(process)
    return len(list(output.glob(".converting/*/*.done")))


def _require_sound(folder: object) -> None:
    config = verify.VerifyOptions(data_dir=str(folder), level="decode", num_workers=1)
    assert verify.verify(config).faults == []


def test_a_killed_replication_goes_on_and_has_the_bytes_of_any_other(
    source: pathlib.Path, tmp_path: pathlib.Path, warm_python: WarmPython
) -> None:
    flags = (f"--copies={COPIES}", "--mirror", "--seed=5")
    whole = _run(warm_python, source, tmp_path / "whole", *flags, "--num_workers=1")
    too_large = ("--target_bytes=9PB", "--dry_run")
    huge = _run(warm_python, source, tmp_path / "huge", *too_large, code=2)
    assert not huge["estimate"]["fits"]
    assert not (tmp_path / "huge").exists()
    killed = tmp_path / "killed"
    complete = _kill_half_way(warm_python, source, killed, *flags, "--num_workers=2")
    assert 1 <= complete < whole["num_shards"]
    assert not (killed / index.INDEX_NAME).exists()
    kept = {path.name: path.stat().st_mtime_ns for path in killed.glob("*/*/*.done")}

    others = (f"--copies={COPIES}", "--seed=6")
    other = _run(warm_python, source, killed, *others, code=1)
    assert "unfinished conversion that differs" in other
    assert "options.seed was 5, is 6" in other
    assert {
        path.name: path.stat().st_mtime_ns for path in killed.glob("*/*/*.done")
    } == kept
    again = _run(warm_python, source, killed, *flags, "--num_workers=2")

    # Two tasks; the last one to end publishes.
    tasks = [
        _run(
            *(warm_python, source, tmp_path / "tasks", *flags),
            *("--num_tasks=2", f"--task_index={n}"),
        )
        for n in range(2)
    ]
    assert [task["finished"] for task in tasks] == [False, True]
    assert whole["num_records"] == again["num_records"] == 26 * COPIES
    assert digests(killed) == digests(tmp_path / "whole") == digests(tmp_path / "tasks")
    assert not list(killed.rglob("*.part"))
    _require_sound(killed)


def _copy(data_dir: object, output: object, **options: Any) -> dict[str, Any]:
    values = {"copies": 2, "num_workers": 1} | options
    config = ReplicateOptions(data_dir=str(data_dir), output_dir=str(output), **values)
    return replicate.make_copies(config)


def test_copies_from_and_to_a_url_and_of_another_tools_records(
    source: pathlib.Path, s3_folder: str, tmp_path: pathlib.Path
) -> None:
    work_dir = str(tmp_path / "work")
    _copy(source, tmp_path / "here")
    _copy(source, s3_folder, identical=True, copies=1, work_dir=work_dir)
    _copy(s3_folder, tmp_path / "fetched")
    by_url = f"{s3_folder}-copies"
    _copy(source, by_url, work_dir=work_dir, num_workers=2)

    assert (tmp_path / "here" / index.INDEX_NAME).exists()
    for shard in index.load(tmp_path / "here").splits["train"]:
        expected = (tmp_path / "here" / shard.name).read_bytes()
        assert (tmp_path / "fetched" / shard.name).read_bytes() == expected
        assert Files(by_url).read(shard.name) == expected
    _require_sound(tmp_path / "fetched")
    _require_sound(by_url)
    with pytest.raises(ValueError, match="must be folders beside each other"):
        _copy(s3_folder, f"{s3_folder}/", work_dir=work_dir)

    # Shards of another tool, for which verify wrote the index.
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for path in source.glob("train-*"):
        (foreign / path.name).write_bytes(path.read_bytes())
    adopted = verify.VerifyOptions(
        data_dir=str(foreign), write_index=True, num_workers=1
    )
    assert verify.verify(adopted).faults == []
    _copy(foreign, tmp_path / "copies")
    _require_sound(tmp_path / "copies")
    features = index.load(foreign).made_by["features"]
    assert index.load(tmp_path / "copies").made_by["features"] == features
