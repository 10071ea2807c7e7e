"""Files that cannot be opened or read are errors of the host, and never faults.

Each way of reading meets errnos: a run raises an error that says what the system said,
or its batches are those of sound files. Nothing counts as damage, no advice is to make
anything again, and a later run is right. In `make test` each errno meets a few ways.
"""

import errno
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.support.faults import error_table, failing_files
from tests.support.faults.torture import IS_LONG, rounds
from tests.support.processes.warm_python import WarmPython
from tfpipe.native import libraries

ROOT = pathlib.Path(__file__).parents[3]


def is_right(row: dict[str, Any]) -> bool:
    """Whether a pipeline did what its files allow."""
    if "later" in row:
        return row["later"] is True
    is_lost = row["errno"] == "ENOENT"
    error = row["error"]
    says_why = os.strerror(getattr(errno, row["errno"])) in error
    says_why |= is_lost and "is missing" in error
    blames = not is_lost and ("onvert" in error or "Make it again" in error)
    is_known = says_why and not blames if error else row["is_same"]
    return bool(is_known and not row["faults"])


@needs_native
@pytest.mark.parametrize("on_error", ["skip", "raise"] if IS_LONG else ["skip"])
def test_no_errno_is_a_fault(
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    warm_python: WarmPython,
    on_error: str,
) -> None:
    data = tmp_path / "data"
    made = warm_python.run(
        *("-m", "converters.replicate", data_dir, data, "--copies=1", "--entry_points")
    )
    assert made.returncode == 0, made.stderr
    own = {
        "PYTHONPATH": str(ROOT),
        "TFPIPE_NATIVE_DIR": str(libraries.folder()),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    (tmp_path / "work").mkdir()
    count = rounds(1, len(error_table.CALLS))

    done = subprocess.run(
        [
            *(sys.executable, "-m", error_table.__name__),
            *(data, tmp_path / "work", on_error, str(count)),
        ],
        env={**os.environ, **own, **failing_files.environment()},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    ways = error_table.ways(tmp_path, on_error)
    assert {row["way"] for row in rows} == {*ways}
    assert [row for row in rows if not is_right(row)] == []
    # The files did fail, where a run cannot go on without them.
    assert sum(bool(row.get("error")) for row in rows) >= len(ways) / 2
