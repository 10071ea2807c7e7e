"""An error of the system is never damage: verify ends with it, and names the file."""

import errno
import json
import os
import pathlib
import subprocess
import sys

from converters.checks.shard import LEVELS
from tests.support.faults import failing_files, verify_table
from tests.support.faults.torture import rounds

ROOT = pathlib.Path(__file__).parents[3]


def test_no_errno_is_a_fault_at_any_level(
    data_dir: pathlib.Path, raw_dir: pathlib.Path
) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", verify_table.__name__),
            *(data_dir, raw_dir, str(rounds(2, 9))),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), **failing_files.environment()},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row for row in rows if row["faults"]] == []
    raised = [row for row in rows if row["error"]]
    assert [row for row in raised if not _says(row, row["errno"])] == []
    # The level quick reads no shard, and the level source alone reads images.
    ends = {(row["level"], row["file"], row["has_index"]) for row in raised}
    assert {(level, verify_table.SHARD, True) for level in LEVELS[1:]} <= ends
    assert {(level, verify_table.SHARD, False) for level in LEVELS[1:4]} <= ends
    assert ("source", verify_table.IMAGES, True) in ends


def _says(row: dict[str, str], name: str) -> bool:
    """Whether an error has the words of the system and the name of the file."""
    text = os.strerror(getattr(errno, name))
    return text in row["error"] and row["file"] in row["error"]
