"""Each public name of tfpipe has an example in its docstring, and the example runs."""

import doctest
import inspect
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

import tfpipe

MAX_LINES = 5
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", sorted(tfpipe.__all__))
def test_the_example_of_a_public_name_runs(
    name: str,
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The data set of the tests lies in DIR: 24 training and 7 validation images."""
    has_model = hasattr(tf.data.experimental, "get_model_proto")
    if name == "chosen_parallelism" and not has_model:
        pytest.skip("TensorFlow 2.16 has no get_model_proto")
    (tmp_path / "DIR").symlink_to(data_dir)
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(getattr(tfpipe, name)) or ""
    if name == "recipes":
        text = inspect.getdoc(tfpipe.recipes.keras) or ""
    names = {"tfpipe": tfpipe, "tf": tf, "np": np}
    example = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    lines = [line for e in example.examples for line in e.source.splitlines()]

    assert re.search(rf"\b{name}\b", "".join(lines)), "the example uses the name"
    assert len(lines) <= MAX_LINES
    said: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=said.append)

    assert not failed, "".join(said)
