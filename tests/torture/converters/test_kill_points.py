"""Conversions that are killed at chosen points; see `kill_points`.

KILL_POINTS=1 kills at every point, which takes half an hour; KILL_POINTS=N at every
N-th. The default is eight points, and some two hundred with TORTURE=1.
"""

import json
import os
import pathlib
import subprocess
import sys

from tests.support.faults.torture import RecordProperty, rounds

MODULE = "tests.torture.converters.kill_points"
EVERY = int(os.environ.get("KILL_POINTS", rounds(few=120, many=4)))


def test_conversion_that_is_killed_ends_as_one_whole_data_set_or_a_clear_refusal(
    tmp_path: pathlib.Path,
    record_property: RecordProperty,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", MODULE, tmp_path, str(EVERY)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    report = json.loads(done.stdout.splitlines()[-1])
    print(report)
    assert report["failures"] == []
    assert report["num_kills"] > 800 / EVERY
    record_property("injections", report["num_kills"])
    for outcome in ("same: done", "same with --overwrite: done", "another: refused"):
        assert report["outcomes"][outcome] > 0
