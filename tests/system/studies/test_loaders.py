"""studies.loaders with real loaders and processes."""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from studies import harness
from studies.loaders import (
    __main__,
    data,
    images as image_work,
    peers,
)
from studies.loaders.images import Job
from studies.loaders.peers import PEERS
from tests.support.data.colors import COLORS, NUM_IMAGES, make_color_data
from tests.support.faults.torture import IS_LONG
from tests.support.processes.warm_python import WarmPython

IMAGE_SIZE = 32

TENSORFLOW_PEERS = ["tfpipe", "garden"]
OTHER_PEERS = [name for name in PEERS if name not in TENSORFLOW_PEERS]
DTYPES = ("uint8", "float32")
# Each peer in one of the dtypes, in turn: each pair takes a process of its own.
OTHER_PAIRS = [
    (name, dtype)
    for number, name in enumerate(OTHER_PEERS)
    for dtype in (DTYPES if IS_LONG else (DTYPES[number % 2],))
]


@pytest.fixture(scope="module")
def color_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Records of images of one color each, in three shards."""
    return make_color_data(tmp_path_factory.mktemp("colors"))


@pytest.fixture(scope="module")
def peer_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("copies")


def make_job(color_dir: pathlib.Path, peer_dir: pathlib.Path, **fields: Any) -> Job:
    return Job(
        data_dir=str(color_dir),
        peer_dir=str(peer_dir),
        image_size=IMAGE_SIZE,
        batch_size=4,
        num_workers=2,
        **{"num_warmup_images": 4, "num_timed_images": 8, **fields},
    )


def check_batches(name: str, job: Job) -> None:
    """Shape, dtype and range of some batches, and that each label is its color's."""
    batches: Iterator[Any] = PEERS[name].load(job)
    # Records count from 1; tfpipe's labels from 0.
    base = 0 if name.startswith("tfpipe") else 1
    seen = []
    for _ in range(2 * NUM_IMAGES // job.batch_size):
        images, labels = (np.array(part) for part in next(batches))
        assert images.shape == (job.batch_size, job.image_size, job.image_size, 3)
        assert images.dtype == job.dtype
        assert nearest_color(images, job.dtype) == (labels - base).tolist()
        seen += (labels - base).tolist()
    batches.close()
    assert set(seen) == {0, 1, 2, 3}
    assert seen[:NUM_IMAGES] != seen[NUM_IMAGES:], "shuffled anew each epoch"


def main(argv: list[str]) -> None:
    """Checks one peer, alone in its process."""
    check_batches(argv[1], Job(**json.loads(argv[2])))


def nearest_color(images: npt.NDArray[Any], dtype: str) -> list[int]:
    means = images.mean(axis=(1, 2), dtype=np.float64)
    if dtype == "float32":
        means = means * image_work.STD + image_work.MEAN
    distances = np.abs(means[:, np.newaxis] - COLORS).max(axis=2)
    assert distances.min(axis=1).max() < 8
    return list(distances.argmin(axis=1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TENSORFLOW_PEERS)
def test_tensorflow_peers_deliver(
    name: str, dtype: str, color_dir: pathlib.Path
) -> None:
    check_batches(name, make_job(color_dir, pathlib.Path(), dtype=dtype))


@pytest.mark.parametrize(("name", "dtype"), OTHER_PAIRS)
def test_installed_peers_deliver(
    name: str,
    dtype: str,
    color_dir: pathlib.Path,
    peer_dir: pathlib.Path,
    warm_python: WarmPython,
) -> None:
    """Each in a process of its own: they do not all go together in one."""
    if reason := __main__.missing(name):
        pytest.skip(reason)
    folder = peer_dir / name
    if name == "tfpipe_entries":
        made = warm_python.run(
            *("-m", "converters.replicate", color_dir, folder),
            *("--copies=1", "--entry_points"),
        )
        assert made.returncode == 0, made.stderr
    job = make_job(color_dir, peer_dir, dtype=dtype, entries_data_dir=str(folder))
    if PEERS[name].data:
        data.make(PEERS[name].data, job)
    module = "tests.system.studies.test_loaders"
    code = f"import sys; from {module} import main; main(sys.argv)"
    own = name.startswith("tfpipe")  # the others begin without TensorFlow
    python = warm_python.command if own else [sys.executable]
    done = subprocess.run(
        [*python, "-c", code, name, json.dumps(vars(job))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if name == "tfpipe_native" and "python -m tfpipe.native" in done.stderr:
        pytest.skip("the native op is not built")
    assert not done.returncode, done.stderr


def test_cpu_time_counts_what_a_run_starts() -> None:
    """A child that is running, and one that has ended."""
    busy = "import time\nwhile time.process_time() < 0.2: pass\n"
    before = peers.tree_cpu_seconds()
    subprocess.run([sys.executable, "-c", busy], check=True)
    ended = peers.tree_cpu_seconds()
    waiting = busy + "print(flush=True)\nimport sys; sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", waiting], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        running = peers.tree_cpu_seconds()
        child.communicate()

    # Counted in ticks of 10 ms, apart for each mode of each process.
    assert ended - before > 0.15
    assert running - ended > 0.15


def test_a_run_that_fails_or_hangs_says_so(tmp_path: pathlib.Path) -> None:
    (tmp_path / "stub.py").write_text(
        "import time\n"
        "from studies.loaders.images import Job\n"
        "def measure(name, job):\n"
        "    if name == 'hang': time.sleep(60)\n"
        "    raise ValueError('no such thing')\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.getcwd()}")
        job = Job(data_dir="")

        with pytest.raises(OSError, match=r"(?s)fail ended with 1.*no such thing"):
            harness.run("stub", "fail", job, time_limit=30)
        with pytest.raises(OSError, match="hang took longer than 1 s"):
            harness.run("stub", "hang", job, time_limit=1)


def test_without_a_folder_for_copies_their_readers_are_skipped(
    color_dir: pathlib.Path,
) -> None:
    job = Job(data_dir=str(color_dir))

    reasons = __main__.without_data(["tfpipe", "torch_pil", "torch_cv"], job)

    assert reasons == dict.fromkeys(
        ["torch_pil", "torch_cv"],
        "its data cannot be made: ValueError: --peer_dir must name a folder for copies "
        "of the images.",
    )


# The command, which starts each of its runs with argv[1].
_COMMAND = """
import runpy, sys
sys.executable = sys.argv.pop(1)
runpy.run_module("studies.loaders", run_name="__main__", alter_sys=True)
"""


def test_command_measures(
    color_dir: pathlib.Path, tmp_path: pathlib.Path, warm_python: WarmPython
) -> None:
    result = tmp_path / "result.json"
    flags = ["--peers=garden,ffcv", "--num_rounds=1", "--num_timed_images=400"]
    flags += ["--image_size=32", "--batch_size=4", "--dtype=uint8"]

    done = warm_python.run(
        *("-c", _COMMAND, warm_python.program(tmp_path), f"--data_dir={color_dir}"),
        *(*flags, f"--save_result={result}"),
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert json.loads(result.read_text()) == report
    assert list(report["peers"]["uint8"]) == ["hand", "garden"]
    assert list(report["skipped"]) == ["ffcv"]
    assert report["config"]["data_dir"] == "records"
