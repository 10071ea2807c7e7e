"""Conversions that are killed at any moment, and the same command run again."""

import pathlib
import random
import subprocess
import time

from tests.support.data.trees import digests
from tests.support.faults.torture import RecordProperty, rounds
from tests.support.processes.long_conversion import Uninterrupted, command, num_complete
from tests.support.processes.warm_python import WarmPython, kill

NUM_ROUNDS = rounds(few=2, many=200)


def test_killed_at_any_moment_it_ends_with_the_same_bytes(
    uninterrupted: Uninterrupted,
    tmp_path: pathlib.Path,
    warm_python: WarmPython,
    record_property: RecordProperty,
) -> None:
    """Killed up to three times in a row, then left alone."""
    raw_dir, expected = uninterrupted
    generator = random.Random(0)
    kills = 0
    for number in range(NUM_ROUNDS):
        folder = tmp_path / str(number)
        for _ in range(3):
            process = subprocess.Popen(
                command(raw_dir, folder, python=warm_python.command),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            num_shards = generator.randint(0, 43)
            while process.poll() is None and num_complete(folder) < num_shards:
                time.sleep(0.002)
            time.sleep(generator.uniform(0.0, 0.05))
            kill(process)
            if process.returncode == 0:
                break
            kills += 1
        else:
            done = subprocess.run(
                command(raw_dir, folder, python=warm_python.command),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr

        assert digests(folder) == expected

    assert kills > NUM_ROUNDS
    record_property("injections", kills)
