r"""Two ranks under horovodrun that take steps under a watch, for tests that kill one.

horovodrun -np 2 python -m tests.support.processes.watched_ranks FOLDER TIMEOUT \
    [starve] [STEPS]

Each rank takes steps of 50 ms with a collective operation, and writes its process id to
FOLDER after step 5. With "starve", rank 1 gets no batch any more after step 20. The
ranks end after STEPS steps, 10,000 unless told otherwise.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

import tensorflow as tf

from benchmarks.distributed import ranks
from benchmarks.distributed.watch import Beat, watched
from tests.support.processes import horovodrun
from tests.support.processes.warm_python import WarmPython

STARVED_STEP = 20
START_SECONDS = 300
END_SECONDS = 120


class WatchedRanks:
    """The horovodrun of both ranks."""

    def __init__(
        self,
        python: WarmPython,
        folder: pathlib.Path,
        timeout: float,
        *words: str,
        **environment: str,
    ) -> None:
        self._folder = folder
        self.process = subprocess.Popen(
            horovodrun.command(
                2, "-m", __name__, folder, timeout, *words, python=python.command
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=horovodrun.environment(**environment),
        )

    def send(self, rank: int, number: signal.Signals) -> None:
        """Sends a signal to a rank when both ranks are at work."""
        files = [self._folder / f"rank{rank}" for rank in range(2)]
        end = time.monotonic() + START_SECONDS
        while not all(file.exists() and file.read_text() for file in files):
            assert time.monotonic() < end
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.05)
        os.kill(int(files[rank].read_text()), number)

    def errors(self) -> list[str]:
        """Waits for the end and returns the lines of stderr that begin with Error."""
        _, stderr = self.process.communicate(timeout=END_SECONDS)
        lines = [line.partition(">:")[2] for line in stderr.splitlines()]
        return [line for line in lines if line.startswith("Error: ")]

    def close(self) -> None:
        """Ends the ranks if a test has left them running."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


def take_steps(
    world: ranks.Ranks, beat: Beat, num_steps: int, folder: pathlib.Path, starve: bool
) -> None:
    """Takes the steps of one rank."""
    for step in range(num_steps):
        time.sleep(0.05)
        if starve and world.rank == 1 and step == STARVED_STEP:
            time.sleep(1000)
        beat.fed()
        world.average([tf.ones(1)])
        beat(step + 1)
        if step == 5:
            (folder / f"rank{world.rank}").write_text(str(os.getpid()))


def main() -> int:
    folder, timeout, *words = sys.argv[1:]
    world = ranks.connect()
    try:
        with watched(world, float(timeout)) as beat, beat.loop():
            num_steps = int(words[-1]) if words and words[-1].isdecimal() else 10_000
            take_steps(world, beat, num_steps, pathlib.Path(folder), "starve" in words)
    except Exception as error:
        print(f"Error: own {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
