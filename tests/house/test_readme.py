"""The code in the documents runs; tests/system/test_readme.py runs that of README."""

import pathlib
import re

import pytest

from tests.house.code import ROOT


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted(ROOT.glob("docs/**/*.md"))
        if "```python" in path.read_text()
    ],
    ids=lambda path: path.name,
)
def test_python_of_a_document_runs(path: pathlib.Path, data_dir: pathlib.Path) -> None:
    """Runs each python block, with the data set of the tests for "DIR"."""
    for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.S):
        code = block.replace('"DIR"', repr(str(data_dir)))
        exec(compile(code, path.name, "exec"), {})
