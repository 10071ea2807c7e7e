"""Data sets at a URL: written to a real S3 server, and checked there."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from converters import verify
from converters.jobs import at_url, run
from tests.support.data import conversions
from tests.support.data.conversions import conversion
from tests.support.data.trees import JOB_X, JobDigests, convert, digests
from tests.support.faults.bad_proxy import BadProxy, Fault
from tests.support.processes import commands
from tests.support.processes.warm_python import WarmPython
from tfpipe import errors
from tfpipe.location.files import Files

FLAGS = [
    "--seed=1",
    "--num_train_shards=6",
    "--num_validation_shards=1",
    "--num_workers=2",
]

# Converts with one worker, and is killed when it uploads the fourth shard.
_KILLED = """
import json, os, signal, sys
from tests.support.data.trees import convert
from tfpipe.location.files import Files

def upload(self, name, path, whole=Files.upload):
    if name == "train-00003-of-00006":
        os.kill(os.getpid(), signal.SIGKILL)
    whole(self, name, path)

Files.upload = upload
raw_dir, url, options = json.loads(sys.argv[1])
convert(raw_dir, url, **options)
"""


def _at(url: str, folder: pathlib.Path) -> dict[str, str]:
    """Copies the files at a URL to a folder, and returns their digests."""
    files = Files(url)
    for name in files.names():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files.read(name))
    return digests(folder)


def _verify(url: str, level: str, raw_dir: pathlib.Path | None = None) -> verify.Result:
    config = verify.VerifyOptions(
        data_dir=url,
        level=level,
        num_workers=1,
        input_dir=None if raw_dir is None else str(raw_dir),
    )
    return verify.verify(config)


@pytest.fixture
def s3_data_set(raw_dir: pathlib.Path, s3_folder: str, tmp_path: pathlib.Path) -> str:
    """URL of the data set of job X."""
    convert(raw_dir, s3_folder, work_dir=str(tmp_path / "work"), **JOB_X)
    return s3_folder


def test_the_commands_write_the_bytes_of_a_folder_and_check_them(
    raw_dir: pathlib.Path,
    s3_folder: str,
    job_digests: JobDigests,
    tmp_path: pathlib.Path,
    warm_python: WarmPython,
) -> None:
    words = [f"--input_dir={raw_dir}", f"--output_dir={s3_folder}", *FLAGS]

    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    written = commands.run("converters.imagenet", *words, env=environment)
    checked = warm_python.run("-m", "converters.verify", s3_folder, "--level=decode")

    assert checked.returncode == 0, checked.stderr
    assert written.returncode == 0, written.stderr
    summary = written.result
    assert summary["config"]["output_dir"] == s3_folder
    assert summary["classes"]["train"]["num_classes"] == 4
    assert json.loads(checked.stdout.splitlines()[-1])["num_faults"] == 0
    assert _at(s3_folder, tmp_path / "copy") == job_digests["X"]
    assert [list(path.iterdir()) for path in tmp_path.glob("tfpipe-*")] == [[]]


def test_a_killed_conversion_goes_on_without_its_uploaded_shards(
    raw_dir: pathlib.Path,
    s3_folder: str,
    bad_proxy: BadProxy,
    job_digests: JobDigests,
    tmp_path: pathlib.Path,
) -> None:
    options = JOB_X | {"work_dir": str(tmp_path / "work")}
    values = json.dumps([str(raw_dir), s3_folder, options])
    killed = subprocess.run([sys.executable, "-c", _KILLED, values], check=False)
    left = set(Files(s3_folder).names())
    bad_proxy.requests.clear()

    with pytest.raises(FileExistsError, match="unfinished conversion that differs"):
        convert(raw_dir, s3_folder, **options | {"seed": 9, "num_workers": 1})
    convert(raw_dir, s3_folder, **options)

    shards = {f"train-{number:05d}-of-00006" for number in range(3)}
    # Each shard also has a file in dali_idx, which is uploaded at the end.
    assert killed.returncode == -signal.SIGKILL
    assert left == shards | {at_url.CLAIM_NAME}
    assert bad_proxy.num_requests("*/train-0000[0-2]-of-00006", "PUT") == 3
    assert bad_proxy.num_requests("*/train-0000[3-5]-of-00006", "PUT") == 6
    assert _at(s3_folder, tmp_path / "copy") == job_digests["X"]


def test_a_server_that_is_gone_costs_the_stated_time_and_no_shard(
    raw_dir: pathlib.Path,
    s3_folder: str,
    bad_proxy: BadProxy,
    job_digests: JobDigests,
    tmp_path: pathlib.Path,
) -> None:
    config = conversion(
        "imagenet",
        input_dir=str(raw_dir),
        output_dir=s3_folder,
        work_dir=str(tmp_path / "work"),
        num_workers=1,
        **JOB_X,
    )
    job = conversions.make_job(config)
    job = dataclasses.replace(job, files=Files(s3_folder, time_limit=3))
    bad_proxy.faults = [Fault(kind="reset", names="*/train-00004*", methods=("PUT",))]

    start = time.monotonic()
    with pytest.raises(errors.RemoteError, match=f"{s3_folder}/train-00004-of-00006"):
        run.run(job)
    seconds = time.monotonic() - start
    bad_proxy.faults = []
    run.run(job)

    assert seconds < 30
    assert bad_proxy.num_requests("*/train-00000-of-00006", "PUT") == 2
    assert _at(s3_folder, tmp_path / "copy") == job_digests["X"]


def test_damage_at_a_url_is_found_and_named(
    s3_data_set: str, raw_dir: pathlib.Path
) -> None:
    shard, missing, files = "train-00002-of-00006", "labels.txt", Files(s3_data_set)
    sound = _verify(s3_data_set, "source", raw_dir)
    content = bytearray(files.read(shard))
    content[200] ^= 1
    files.write(shard, bytes(content))
    files.write("train-00009-of-00010", b"stray")
    files.delete(missing)

    quick, whole = (_verify(s3_data_set, level) for level in ("quick", "crc"))

    assert sound.faults == []
    assert [fault.shard for fault in quick.faults] == ["train-00009-of-00010", missing]
    (fault,) = [fault for fault in whole.faults if fault.shard == shard]
    assert (fault.record, fault.byte_offset) == (0, 0)
    assert "the CRC of the data is wrong" in fault.fault


def test_bytes_that_the_network_alters_are_named(
    s3_data_set: str, bad_proxy: BadProxy
) -> None:
    shard = "train-00002-of-00006"
    bad_proxy.faults = [Fault(kind="alter", names=f"*/{shard}", after=200)]

    result = _verify(s3_data_set, "crc")

    assert {fault.shard for fault in result.faults} == {shard}


@pytest.mark.parametrize(
    ("url", "variables", "said"),
    [
        ("s3://no-such-bucket/x", {}, "Listing s3://no-such-bucket/x failed: .*NoSuch"),
        ("", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "Check the credentials"),
    ],
)
def test_a_place_that_cannot_be_used_is_named_before_the_input_is_listed(
    s3_folder: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    url: str,
    variables: dict[str, str],
    said: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(errors.RemoteError, match=said):
        convert(tmp_path / "no input", url or s3_folder)  # type: ignore[arg-type]


def test_a_folder_without_an_index_is_named(s3_folder: str) -> None:
    with pytest.raises(
        errors.BadIndexError, match=f"No data set in {s3_folder}: index"
    ):
        _verify(s3_folder, "quick")
