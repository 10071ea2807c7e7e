"""Each public name of tfpipe has an example in its docstring, and the example runs."""

import doctest
import importlib
import inspect
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tfpipe import renamed

MAX_LINES = 5
# Public objects of tfpipe and of its public modules, without `tfpipe.`.
MODULES = ("errors", "host", "recipes", "view")
NAMES = sorted(
    {*tfpipe.__all__, *renamed.RENAMED.values(), "recipes.keras"} - {*MODULES}
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("path", NAMES)
def test_the_example_of_a_public_name_runs(
    path: str,
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The data set of the tests lies in DIR: 24 training and 7 validation images."""
    module, _, name = f"tfpipe.{path}".rpartition(".")
    has_model = hasattr(tf.data.experimental, "get_model_proto")
    if name == "chosen_parallelism" and not has_model:
        pytest.skip("TensorFlow 2.16 has no get_model_proto")
    (tmp_path / "DIR").symlink_to(data_dir)
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(getattr(importlib.import_module(module), name)) or ""
    names = {"tfpipe": tfpipe, "tf": tf, "np": np}
    example = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    lines = [line for e in example.examples for line in e.source.splitlines()]

    assert re.search(rf"\b{name}\b", "\n".join(lines)), "the example uses the name"
    assert len(lines) <= MAX_LINES
    said: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=said.append)

    assert not failed, "".join(said)
