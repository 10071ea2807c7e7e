"""tfpipe.preflight on real Horovod ranks: all end with the same error, none hangs."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[4]

SCRIPT = """
import sys, time
import tfpipe
from benchmarks.distributed import ranks
world = ranks.connect()
data_dirs, seeds = sys.argv[1].split(","), [0, int(sys.argv[2])]
pipeline = tfpipe.imagenet_train(
    data_dirs[world.rank], batch_size=4, rank=world.rank, num_ranks=2,
    seed=seeds[world.rank],
)
world.gather(None)
start = time.monotonic()
try:
    tfpipe.preflight(pipeline, world.gather)
    print("AGREED")
except tfpipe.TfpipeError as error:
    lines = str(error).splitlines()[1:-1]
    print("DIFFER", f"{time.monotonic() - start:.0f}", "|".join(lines), flush=True)
    # The ranks end together: horovodrun would kill the other one before it speaks.
    world.gather(None)
    sys.exit(1)
"""


@pytest.mark.parametrize(
    ("other", "seed", "code", "message"),
    [
        (False, 0, 0, "AGREED"),
        (False, 7, 1, "seed must be the same on every rank, got 0 on rank 0, 7 on"),
        (True, 0, 1, "shards must be the same on every rank, got 24 records"),
    ],
)
def test_real_ranks_end_with_the_error_and_none_hangs(
    data_dir, tmp_path, other, seed, code, message
):
    shutil.copytree(data_dir, tmp_path / "copy")
    if other:  # an index of other shards
        path = tmp_path / "copy" / "index.json"
        path.write_text(path.read_text().replace('"digest": "', '"digest": "0', 1))
    program = pathlib.Path(sys.executable).with_name("horovodrun")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    arguments = [f"{data_dir},{tmp_path / 'copy'}", str(seed)]

    done = subprocess.run(
        [program, "-np", "2", sys.executable, "-c", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=120,
    )

    said = [line for line in done.stdout.splitlines() if message in line]
    assert sorted(line[:3] for line in said) == ["[0]", "[1]"], (
        done.stdout + done.stderr
    )
    assert (done.returncode != 0) == (code != 0)
