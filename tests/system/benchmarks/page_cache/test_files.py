"""benchmarks.page_cache in a child process: real, as another user, hanging.

As root it drops the page cache of this host.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from benchmarks.distributed.ranks import Ranks
from benchmarks.page_cache import states
from benchmarks.system import child_process, mounts

ROOT = pathlib.Path(__file__).parents[4]


def _prepare(state, files):
    return states.prepare(state, files, Ranks(), drops_all=False)


def test_files_leave_memory_and_come_back(tmp_path):
    if mounts.beneath(tmp_path).is_memory:
        pytest.skip("a file system in memory cannot be emptied")
    path = tmp_path / "shard 0"
    path.write_bytes(os.urandom(300_000))

    (cold,) = _prepare("cold", [str(path)])
    (warm,) = _prepare("warm", [str(path)])

    assert (cold.resident_bytes, warm.resident_bytes) == (0, 300_000)
    assert cold.actions == {"evict": "done", "measure": "done"}
    with pytest.raises(
        ValueError, match=r"--cache=cold: host .* No such file.*nothing"
    ):
        _prepare("cold", ["/nothing"])


def test_residency_of_files_that_others_own_is_unknown():
    if os.geteuid():
        pytest.skip("only root can become somebody else")
    code = (
        "import json, os, sys; from benchmarks.page_cache import states;"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534);"
        "held = states.OpenFiles(sys.argv[1:]);"
        "print(json.dumps([held.num_bytes, held.resident_bytes(), held.remark]))"
    )
    # Nobody can enter the folders that pytest makes.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = pathlib.Path(folder) / "file"
        path.write_bytes(b"x" * 5000)
        path.chmod(0o644)
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
        )

    *found, remark = json.loads(done.stdout)
    assert found == [5000, None]
    assert "only to a process that owns it" in remark


def test_an_action_that_hangs_is_an_error(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # opening it for reading waits for a writer

    with pytest.raises(TimeoutError, match="did not come back within 1 s"):
        child_process.call(states.measure, [str(pipe)], seconds=1.0)
