"""The code in the documents about a data set "DIR" runs, and shows what it prints.

tests/system/docs/test_pages.py runs the other pages, and tests/system/test_readme.py
the code of README.
"""

import contextlib
import io
import pathlib

import pytest

from tests.house.code import ROOT
from tests.support.processes import pages


class _HereReader:
    """A reader who runs Python in this process, with the data set of the tests."""

    def __init__(self, data_dir: pathlib.Path) -> None:
        self.data_dir = str(data_dir)
        self.names: dict[str, object] = {}

    def python(self, code: str) -> str:
        code = code.replace('"DIR"', repr(self.data_dir))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, "page", "exec"), self.names)
        return printed.getvalue().replace(self.data_dir, "DIR")

    def shell(self, command: str) -> str:
        raise AssertionError(f"a page with DIR runs no commands, got {command}")

    def save(self, name: str, code: str) -> None:
        raise AssertionError(f"a page with DIR has no files, got {name}")


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted(ROOT.glob("docs/**/*.md"))
        if "```python" in path.read_text() and '"DIR"' in path.read_text()
        if "generated" not in path.parts
    ],
    ids=lambda path: path.name,
)
def test_python_of_a_document_runs(
    path: pathlib.Path,
    data_dir: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)

    pages.check(path, _HereReader(data_dir))
