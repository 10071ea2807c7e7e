"""Hostile shards without an index, and their check by several processes."""

import json
import pathlib
import subprocess
import sys

import pytest

import tfpipe
from converters import verify
from tests.unit.converters.checks.test_foreign import inception, write

# Numbers in a file name or a record that would fill the memory: file name, label of a
# record, expected fault.
CLAIMS = [
    ("train-00000-of-9999999999", 1, "9,999,999,998 of these 9,999,999,999 shards are"),
    (f"train-00000-of-{'9' * 200}", 1, "shards are missing, the first is number 1"),
    ("train-00000-of-00001", 10**7, "label must be 0 to 500,000, got 10000000"),
    ("train-00000-of-00001", 2**63 - 1, "label must be 0 to 500,000, got 92233720368"),
]


@pytest.mark.parametrize(("name", "label", "fault"), CLAIMS, ids=range(len(CLAIMS)))
def test_huge_numbers_in_a_name_or_a_record_take_no_memory(
    tmp_path: pathlib.Path, name: str, label: int, fault: str
) -> None:
    """Runs in a process with a limit of memory, because a failure fills the machine."""
    write(tmp_path / name, [inception(0, 1), inception(1, label)])
    code = (
        "import resource, sys, runpy\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30))\n"
        "runpy.run_module('converters.verify', run_name='__main__')\n"
    )
    flags = ["--num_workers=1", "--write_index"]

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (1, "")
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["num_faults"] == 1
    assert fault in summary["faults"][0]["fault"]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_many_workers_find_what_one_finds(tmp_path: pathlib.Path) -> None:
    for number in range(3):
        data = [inception(number, 1), b"\xff"]
        write(tmp_path / f"train-{number:05d}-of-00003", data)

    one, many = (
        verify.verify(verify.VerifyOptions(data_dir=str(tmp_path), num_workers=n))
        for n in (1, 2)
    )

    assert one.num_faults == 3
    assert (one.faults, one.details) == (many.faults, many.details)


def test_pipeline_reads_shards_through_a_written_index(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "validation-00000-of-00001", [inception(0, 1), inception(7, 3)])
    config = verify.VerifyOptions(
        data_dir=str(tmp_path), num_workers=1, write_index=True
    )
    verify.verify(config)

    pipeline = tfpipe.imagenet_eval(
        str(tmp_path), split="validation", image_size=32, batch_size=2
    )

    (batch,) = pipeline.build()
    assert batch["label"].numpy().tolist() == [0, 2]
