"""SIGTERM to horovodrun or to a rank: the ranks save, and the same command goes on.

TORTURE=1 runs the tests; `make test` ends two ranks at each of their steps, see
tests/system/benchmarks/training/test_sigterm.py.
"""

import os
import pathlib
import re
import signal
import subprocess
import time
from typing import Any

import pytest

from tests.support.faults.torture import IS_LONG
from tests.support.processes import horovodrun

pytestmark = pytest.mark.skipif(not IS_LONG, reason="TORTURE=1 runs them: a minute")

END_SECONDS = 200.0
TRAIN = ("-m", "benchmarks.train", "--model=tiny", "--image_size=32", "--batch_size=2")
MANY_EPOCHS = 10_000


def _train(*flags: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        horovodrun.command(2, *TRAIN, *flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=horovodrun.environment(TEST_OF=str(os.getpid())),
    )


def _process_of_rank(rank: int) -> int:
    """Returns the process id of a rank that this test started."""
    wanted = {f"HOROVOD_RANK={rank}", f"TEST_OF={os.getpid()}"}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            variables = (path / "environ").read_text(errors="replace").split("\0")
            command = (path / "cmdline").read_text(errors="replace").split("\0")
        except OSError:
            continue
        if wanted <= set(variables) and command[1:3] == list(TRAIN[:2]):
            return int(path.name)
    raise AssertionError(f"Rank {rank} does not run.")


@pytest.mark.parametrize("victim", ["launcher", 0, 1])
def test_the_same_command_goes_on(
    data_dir: pathlib.Path, tmp_path: pathlib.Path, victim: Any
) -> None:
    flags = (f"--data_dir={data_dir}", f"--checkpoint_dir={tmp_path}")
    process = _train(*flags, f"--num_epochs={MANY_EPOCHS}")
    end = time.monotonic() + END_SECONDS
    while not (tmp_path / "checkpoint").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
    target = process.pid if victim == "launcher" else _process_of_rank(victim)
    os.kill(target, signal.SIGTERM)
    _, stderr = process.communicate(timeout=END_SECONDS)

    found = re.search(r"SIGTERM ended epoch (\d+) after step (\d+)\.", stderr)
    assert found is not None, stderr
    assert process.returncode != 0
    epoch, step = map(int, found.groups())

    # Two epochs more than those that were begun, to have steps to time.
    process = _train(*flags, f"--num_epochs={epoch + 3}")
    stdout, stderr = process.communicate(timeout=END_SECONDS)
    done = subprocess.CompletedProcess([], process.returncode, stdout, stderr)

    records = horovodrun.result(done)["records"]
    assert records["num_used"] == 3 * 24 - 4 * step
    assert records["times_used_max"] == 3
