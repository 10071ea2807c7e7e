"""PyTorch trains on the batches of a pipeline, as the example shows."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[4]
needs_torch = pytest.mark.skipif(
    not importlib.util.find_spec("torch"), reason="needs PyTorch's build for the CPU"
)


def run(*arguments: object) -> str:
    """Runs Python with the folder of the checkout on its path; returns its stdout."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "nothing has normalized" not in done.stderr
    return done.stdout


def losses(printed: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)", printed)]


@needs_torch
def test_a_pytorch_model_learns_from_a_pipeline(data_dir: pathlib.Path) -> None:
    printed = run("examples/torch_dataset.py", data_dir, 2)

    assert re.findall(r"epoch \d: \d+ steps", printed) == [
        "epoch 0: 6 steps",
        "epoch 1: 6 steps",
    ]
    first, last = losses(printed)
    assert last < first


@needs_torch
def test_two_ranks_of_torchrun_share_the_records(data_dir: pathlib.Path) -> None:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")

    printed = run(*torchrun, "examples/torch_dataset.py", data_dir)

    lines = sorted(re.findall(r"rank \d epoch \d: \d steps", printed))
    assert lines == ["rank 0 epoch 0: 3 steps", "rank 1 epoch 0: 3 steps"]


# Prints nothing; fails unless a spawned worker makes the batches of this process.
SPAWNED = """
import sys, torch, tfpipe
from examples.torch_dataset import PipelineDataset

pipeline = tfpipe.imagenet_train(sys.argv[1], image_size=8, batch_size=4)
loaders = [
    torch.utils.data.DataLoader(PipelineDataset(pipeline), batch_size=None, **options)
    for options in ({}, {"num_workers": 1, "multiprocessing_context": "spawn"})
]
here, there = [[(label.tolist(), image.sum()) for image, label in e] for e in loaders]
assert len(here) == 6
assert here == there, (here, there)
"""


@needs_torch
def test_a_spawned_worker_makes_the_same_batches(data_dir: pathlib.Path) -> None:
    run("-c", SPAWNED, data_dir)


@pytest.mark.parametrize("name", ["torch_dataset", "jax_training"])
def test_an_example_fits_on_a_page(name: str) -> None:
    lines = (ROOT / "examples" / f"{name}.py").read_text().splitlines()

    assert len(lines) < 60
