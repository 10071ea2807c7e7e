"""All tiers in one sweep: a real S3 server, a real shared mount, a real disk.

As root it drops the page cache of this host.
"""

import json
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import IO, Any

import pytest

import tfpipe
from benchmarks import sweep
from benchmarks.planning import sweep_run
from benchmarks.planning.plan import TIERS
from tests.support.data.trees import convert
from tests.support.processes import commands
from tests.support.processes.warm_python import WarmPython

RUN = (
    *("--image_size=32", "--step_time_ms=0", "--num_steps=25", "--num_warmup_steps=1"),
    "--require=first_batch_seconds<=1000",  # in place of the gate of the preset
)

# Root would empty the caches of the whole host, under tests that run beside this one.
# The tests that run beside this one use the network of the host as well.
TRAIN = """
import json, os, runpy, sys
from unittest import mock
from benchmarks.system import probes
environment, sys.argv = json.loads(sys.argv[1])
os.environ.update(environment)
with mock.patch.object(os, "geteuid", return_value=1), \\
     mock.patch.object(probes, "received_bytes", return_value=0):
    runpy.run_module("benchmarks.train", run_name="__main__", alter_sys=True)
"""


def _start_runs_in(python: WarmPython, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts each run of a sweep as a process that has imported TensorFlow."""

    def run(
        command: Sequence[str], stdout: IO[bytes], stderr: IO[bytes], timeout: float
    ) -> int:
        environment = {k: v for k, v in os.environ.items() if k.startswith("AWS_")}
        words = json.dumps([environment, command[2:]])
        done = python.run("-c", TRAIN, words)
        stdout.write(done.stdout.encode())
        stderr.write(done.stderr.encode())
        return done.returncode

    monkeypatch.setattr(sweep_run, "_run", run)


@pytest.fixture(scope="module")
def tiny_dir(
    synthesized_dir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """1000 records in 40 shards, each of which is one piece of a shard cache."""
    folder = tmp_path_factory.mktemp("tiers") / "records"
    convert(synthesized_dir, folder, num_train_shards=40)
    return folder


def test_one_sweep_compares_all_tiers(
    tiny_dir: pathlib.Path,
    s3_folder: str,
    shared_mount_dir: pathlib.Path,
    warm_python: WarmPython,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = tfpipe.Files(f"{s3_folder}/records")
    for path in tiny_dir.iterdir():
        if path.is_file():
            files.upload(path.name, path)
    mount = shutil.copytree(tiny_dir, shared_mount_dir / "tiers" / "records")
    cache = tmp_path / "cache"

    _start_runs_in(warm_python, monkeypatch)

    done = commands.answer(
        sweep.COMMANDS,
        *("--", *RUN),
        sweep_dir=str(tmp_path / "out"),
        preset="tiers",
        data_dirs=[str(tiny_dir)],
        remote_url=files.location.text,
        mount_dir=str(mount),
        shard_cache_dir=str(cache),
        models=["tiny"],
        batch_sizes=["20"],
    )

    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out" / "sweep.json").read_text())
    rows = {row["tier"]: row for row in document["tiers"]}
    assert list(rows) == list(TIERS)
    _check_bytes(rows)
    # A cold run leaves nothing behind, and removes nothing that others fetched.
    assert [path.name for path in cache.glob("cold-*")] == []
    assert list(cache.glob("*/published/train-*"))


def _check_bytes(rows: Mapping[str, Mapping[str, Any]]) -> None:
    given = {
        name: tuple(
            row[f"bytes_from_{place}"]
            for place in ("server", "disk", "page_cache", "ram_cache")
        )
        for name, row in rows.items()
    }
    consumed = given["remote"][0]
    assert consumed > 1e6
    for name in ("remote", "shard_cache_cold", "mount_cold", "local_cold"):
        assert rows[name]["state"] == "cold"
    for name in ("shard_cache_warm", "mount_warm", "local_warm"):
        assert rows[name]["state"] == "warm"
    assert given["shard_cache_cold"][0] >= 0.95 * consumed
    assert given["shard_cache_warm"][0] == 0
    # The mount's files are in a folder of this machine: no network brought them.
    assert given["mount_cold"] == (None, None, 0, 0)
    assert given["local_cold"][1] >= 0.95 * consumed
    assert given["local_warm"][2] >= 0.95 * consumed
    assert given["ram"][3] == pytest.approx(consumed, rel=0.05)
    assert given["decoded_ram"][3] == pytest.approx(consumed, rel=0.05)
    assert given["synthetic"] == (0, 0, 0, 0)
