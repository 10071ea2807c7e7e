"""horovodrun as the tests start it: with this Python, from any folder.

The program `horovodrun` imports TensorFlow twice before it starts a rank, to see what
Horovod was built with. `make venv` has proved that, so `main` leaves the two checks
out; all else is the code of horovodrun.
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

ROOT = pathlib.Path(__file__).parents[3]

# Horovod looks for work this often, also while the ranks wait: every 1 ms, its default,
# takes 15 % of a core, every 5 ms 11 %, every 50 ms 3 %.
_CYCLE_MILLISECONDS = "25"
_PROGRAMS = pathlib.Path(sys.executable).parent


def command(
    num_ranks: int,
    *arguments: object,
    options: tuple[str, ...] = (),
    python: Sequence[str] = (sys.executable,),
    last_rank: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Returns the command line that starts Python with arguments on every rank.

    Args:
        num_ranks: Number of ranks on this host.
        arguments: Arguments of Python.
        options: Further options of horovodrun.
        python: What starts Python, or a `WarmPython.command`.
        last_rank: Environment variables of the last rank alone.
    """
    if last_rank:
        settings = " ".join(
            shlex.quote(f"{name}={value}") for name, value in last_rank.items()
        )
        choice = f'test $HOROVOD_RANK = {num_ranks - 1} && set -- env {settings} "$@"'
        python = ("sh", "-c", f'{choice}; exec "$@"', "sh", *python)
    program = (sys.executable, "-m", __name__)
    words = (*program, "-np", num_ranks, *options, *python, *arguments)
    return [str(word) for word in words]


def environment(**variables: str) -> dict[str, str]:
    """Returns the environment in which ranks find horovodrun and this checkout."""
    return {
        **os.environ,
        "PATH": f"{_PROGRAMS}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "HOROVOD_CYCLE_TIME": _CYCLE_MILLISECONDS,
        **variables,
    }


def run(
    num_ranks: int, *arguments: object, python: Sequence[str] = (sys.executable,)
) -> "subprocess.CompletedProcess[str]":
    """Runs Python with arguments on every rank, and waits for the end."""
    return subprocess.run(
        command(num_ranks, *arguments, python=python),
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )


def result(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """Returns the JSON of rank 0's last line, before which horovodrun puts the rank."""
    assert done.returncode == 0, done.stderr + done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("[0]<stdout>:")
    found: dict[str, Any] = json.loads(last.partition(":")[2])
    return found


def main() -> None:
    from horovod.runner import launch

    launch.mpi_built = lambda verbose=False: False
    launch.gloo_built = lambda verbose=False: True
    launch.run_commandline()


if __name__ == "__main__":
    main()
