import dataclasses
import functools
import importlib
import pathlib
import sys
import types
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfpipe
from tfpipe.cache import cacheable
from tfpipe.ops import identity


@dataclasses.dataclass(frozen=True, eq=False)
class Holder:
    """An op that holds a value."""

    value: Any

    def __call__(self, example):
        return example


class Hidden:
    """An op that does not print what it holds."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return "Hidden()"


def long_array(position):
    values = np.zeros(5000, np.float32)
    values[position] = 1
    return values


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (long_array(2000), long_array(2001)),
        (tf.constant(long_array(2000)), tf.constant(long_array(2001))),
        ([long_array(2000)], [long_array(2001)]),
        ({"mean": long_array(2000)}, {"mean": long_array(2001)}),
        (np.zeros(3, np.float32), np.zeros(3, np.int32)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.array([{1}, {2}], object), np.array([{1}, {3}], object)),
        (Hidden(1), Hidden(2)),
        (Holder(long_array(2000)), Holder(long_array(2001))),
        (functools.partial(int, base=2), functools.partial(int, base=3)),
        ((1, 2), [1, 2]),
        (1, True),
        (1, 1.0),
        ("1", 1),
        (pathlib.Path("a"), pathlib.Path("b")),
        ({1, 2}, {1, 3}),
    ],
)
def test_values_that_differ_differ_in_content(one, other):
    assert identity.content(Holder(one)) != identity.content(Holder(other))


@pytest.mark.parametrize(
    "make",
    [
        lambda: long_array(7),
        lambda: {"b": 1, "a": {3, 2, 1}},
        lambda: Hidden([1, {"x": np.float32(2)}]),
        lambda: tfpipe.Reseed(tfpipe.Flip(), 1),
        lambda: len,
        object,
    ],
)
def test_equal_values_have_equal_content(make):
    assert identity.content(Holder(make())) == identity.content(Holder(make()))


def test_value_that_holds_itself_has_a_content():
    ring = [1]
    ring.append(ring)

    assert identity.content(ring) == "list(1, ...)"


OP = """
import dataclasses
import helpers
from helpers import deep

@dataclasses.dataclass(frozen=True)
class Op:
    def __call__(self, example):
        from helpers import late
        return helpers.scale(example)
"""


@pytest.fixture
def own_op(tmp_path, monkeypatch):
    """A module with an op that uses modules of a package beside it; reloads it."""
    package = tmp_path / "helpers"
    package.mkdir()
    (tmp_path / "own_op.py").write_text(OP)
    (package / "__init__.py").write_text("from helpers.shallow import scale\n")
    (package / "shallow.py").write_text("scale = dict\n")
    (package / "deep.py").write_text("from . import deepest\n")
    (package / "deepest.py").write_text("BIAS = 0\n")
    (package / "late.py").write_text("LATE = 0\n")
    (package / "other.py").write_text("UNUSED = 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def load():
        for name in [name for name in sys.modules if name.startswith("helpers")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.delitem(sys.modules, "own_op", raising=False)
        importlib.invalidate_caches()
        return importlib.import_module("own_op").Op()

    return load


@pytest.mark.parametrize(
    "name",
    ["own_op", *(f"helpers/{name}" for name in ("__init__", "shallow", "deep"))],
)
def test_edit_of_code_that_an_op_imports_is_seen(own_op, tmp_path, name):
    before = cacheable.made_by(own_op())
    path = tmp_path / f"{name}.py"
    path.write_text(path.read_text() + "# edited\n")

    assert cacheable.made_by(own_op()) != before


@pytest.mark.parametrize("name", ["deepest", "late"])
def test_edit_of_code_reached_by_relative_or_late_import_is_seen(
    own_op, tmp_path, name
):
    before = cacheable.made_by(own_op())
    (tmp_path / "helpers" / f"{name}.py").write_text("# edited\n")

    assert cacheable.made_by(own_op()) != before


def test_edit_of_other_code_is_none(own_op, tmp_path):
    before = cacheable.made_by(own_op())
    (tmp_path / "helpers" / "other.py").write_text("UNUSED = 1\n")

    assert cacheable.made_by(own_op()) == before
    assert cacheable.made_by(tfpipe.Reseed(own_op(), 1)) != before


def test_version_stands_for_the_code(own_op, tmp_path):
    def made_by(version):
        op = own_op()
        object.__setattr__(op, "version", version)
        return cacheable.made_by(op)

    before = made_by("1")
    (tmp_path / "helpers" / "deep.py").write_text("# edited\n")

    assert made_by("1") == before
    assert made_by("2") != before


def test_packages_count_by_their_version():
    reached = identity.code(np.mean)

    assert reached == {"numpy": np.__version__}


NOTEBOOK = """
import math
FACTOR = {factor}

def helper(x):
    return [x * {inner} for _ in range(3)]

class Op:
    def __call__(self, example):
        return helper(example) + FACTOR + math.pi
"""


def in_a_notebook(**values):
    """An op whose code is in no file."""
    module = types.ModuleType("notebook")
    values = {"factor": 1, "inner": 1, **values}
    exec(compile(NOTEBOOK.format(**values), "<cell>", "exec"), module.__dict__)
    return module.Op()


def test_code_in_no_file_counts_by_what_it_compiles_to():
    same = identity.code(in_a_notebook())

    assert identity.code(in_a_notebook()) == same
    assert identity.code(in_a_notebook(factor=2)) != same
    assert identity.code(in_a_notebook(inner=2)) != same
