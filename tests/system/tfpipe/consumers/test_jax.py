"""JAX trains on the batches of a pipeline, as the example shows.

`make test-tf-2.21` runs these tests: JAX needs a newer NumPy than the reference stack.
"""

import importlib.util
import pathlib

import pytest

from tests.system.tfpipe.consumers.test_torch import losses, run


@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="needs jax")
@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
def test_a_jax_model_learns_from_a_pipeline(data_dir: pathlib.Path, dtype: str) -> None:
    printed = run("examples/jax_training.py", data_dir, dtype)

    assert f"epoch 1: 6 steps of {dtype}" in printed
    first, last = losses(printed)
    assert last < first
