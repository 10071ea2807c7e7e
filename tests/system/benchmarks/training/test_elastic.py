"""benchmarks.train --elastic: each record is used once although a rank is killed."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.support.processes import horovodrun
from tests.support.processes.warm_python import WarmPython


def _process_of_rank(rank: int, parent: int) -> int | None:
    """Returns the process id of a rank that horovodrun started for this test.

    It is the client of a `WarmPython`: when the client is killed, so is the rank.
    """
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "environ").read_bytes().split(b"\0")
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if (
            f"HOROVOD_RANK={rank}".encode() in words
            and f"TEST_OF={parent}".encode() in words
            and command.startswith(sys.executable.encode())
        ):
            return int(path.name)
    return None


@pytest.mark.parametrize("victim", [0, 1])
def test_other_rank_continues_and_each_record_is_used_once(
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    warm_python: WarmPython,
    victim: int,
) -> None:
    hosts = tmp_path / "hosts.sh"
    hosts.write_text("#!/bin/sh\necho localhost:1\necho 127.0.0.1:1\n")
    hosts.chmod(0o755)
    saved = tmp_path / "saved"
    num_epochs = 8
    options = ("--min-np", "1", "--max-np", "2")
    command = horovodrun.command(
        2,
        *("-m", "benchmarks.train", "--elastic", f"--data_dir={data_dir}"),
        *("--model=tiny", "--image_size=32", "--batch_size=2"),
        *(f"--num_epochs={num_epochs}", f"--checkpoint_dir={saved}"),
        options=(*options, "--host-discovery-script", str(hosts)),
        python=warm_python.command,
    )
    environment = horovodrun.environment(TEST_OF=str(os.getpid()))

    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as run:
        try:
            _wait_for(lambda: list(saved.glob("ckpt*.index")))
            process = _process_of_rank(victim, os.getpid())
            assert process is not None
            os.kill(process, signal.SIGKILL)
            output, _ = run.communicate(timeout=240)
        finally:
            run.kill()

    line = next(text for text in output.splitlines() if '"command"' in text)
    result = json.loads(line.partition("<stdout>:")[2] or line)
    records = result["records"]
    assert (result["num_ranks"], result["num_ranks_at_start"]) == (1, 2), output
    assert records["times_used_min"] == records["times_used_max"] == num_epochs
    assert records["num_used"] == 24 * num_epochs


def _wait_for(is_there: object) -> None:
    end = time.monotonic() + 120
    while not is_there():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)
