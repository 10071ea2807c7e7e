"""tfpipe.host within real control groups."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

_FIGURES = """
import json
from tfpipe import host
figures = host.cpu_quota(), host.num_cores(), host.ram_bytes(), host.ram_left()
print(json.dumps(figures))
"""


@pytest.fixture
def groups() -> Iterator[dict[str, pathlib.Path]]:
    """A new group of version 1 for the controllers cpu and memory."""
    with contextlib.ExitStack() as stack:
        made = {}
        for controller in ("cpu", "memory"):
            root = pathlib.Path("/sys/fs/cgroup", controller)
            try:
                made[controller] = pathlib.Path(tempfile.mkdtemp(dir=root))
            except OSError as error:
                pytest.skip(f"no group of version 1 can be made: {error}")
            stack.callback(made[controller].rmdir)
            if not (made[controller] / "cgroup.procs").exists():
                pytest.skip(f"{root} is no control group")
        yield made


def test_limits_of_version_1_are_seen(groups: dict[str, pathlib.Path]) -> None:
    limit = 1 << 30
    (groups["cpu"] / "cpu.cfs_quota_us").write_text("150000")
    (groups["memory"] / "memory.limit_in_bytes").write_text(str(limit))
    joins = [f"echo $$ > {group}/cgroup.procs" for group in groups.values()]

    done = subprocess.run(
        [
            "sh",
            "-ec",
            "; ".join([*joins, 'exec "$0" -c "$1"']),
            sys.executable,
            _FIGURES,
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    quota, cores, ram, left = json.loads(done.stdout)
    assert (quota, cores, ram) == (1, min(1, os.cpu_count() or 1), limit)
    assert 0 < left <= limit
