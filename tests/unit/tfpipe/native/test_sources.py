"""Rules for the C++ sources that no compiler and no linter checks."""

import collections
import pathlib
import re

import pytest

from tfpipe.native import libraries

_SOURCES = sorted(libraries.SOURCES[0].parent.glob("*.[ch]*"))


def _named(pattern: str) -> dict[str, list[str]]:
    """Returns the files of each name that the pattern matches, once a definition."""
    files = collections.defaultdict(list)
    for path in _SOURCES:
        for name in re.findall(pattern, path.read_text(), re.MULTILINE):
            files[name].append(path.name)
    return files


@pytest.mark.parametrize(
    "pattern",
    [
        r"\b(k[A-Z]\w*)(?:\[\w*\])? = ",
        r"^(?:struct|class|enum class) (\w+) (?:final )?[:{]",
    ],
)
def test_no_constant_and_no_type_is_defined_twice(pattern: str) -> None:
    """Two types of one name would be one type where the fuzzer links their files."""
    files = _named(pattern)

    assert len(files) > 20
    assert {name: where for name, where in files.items() if len(where) > 1} == {}


def test_ops_are_registered_in_cc_files() -> None:
    assert set(_named(r"^(REGISTER_\w+)\(")["REGISTER_OP"]) == {
        "crop.cc",
        "record_ops.cc",
        "run.cc",
    }


@pytest.mark.parametrize("path", _SOURCES, ids=lambda path: path.name)
def test_comments_fit_the_columns(path: pathlib.Path) -> None:
    """clang-format leaves comments alone, because they hold tables."""
    assert max(map(len, path.read_text().splitlines())) <= 88
