"""Sizes, documentation and flags: the rules that ruff does not know."""

import ast
import pathlib
import re

import pytest

from tests.house.code import MODULES, ROOT, name_of

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 40
MAX_CLASS_LINES = 120
# Signatures and docstrings of the presets list every argument of a run.
MAX_DOCUMENTED_FUNCTION_LINES = 80

_DOCUMENTED = ast.FunctionDef | ast.ClassDef


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_sizes(path: pathlib.Path) -> None:
    text = path.read_text()

    assert len(text.splitlines()) <= MAX_MODULE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            # Without its arguments, which are a table of one a line.
            code = _lines(node) - _docstring_lines(node) - _signature_lines(node)
            assert code <= MAX_FUNCTION_LINES, f"{node.name}: {code} lines"
            documented = _lines(node) - _signature_lines(node)
            assert documented <= MAX_DOCUMENTED_FUNCTION_LINES, node.name
        if isinstance(node, ast.ClassDef):
            parts = [n for n in ast.walk(node) if isinstance(n, _DOCUMENTED)]
            code = _lines(node) - sum(map(_docstring_lines, parts))
            assert code <= MAX_CLASS_LINES, f"{node.name}: {code} lines"


def _lines(node: ast.FunctionDef | ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _signature_lines(node: ast.FunctionDef) -> int:
    return node.body[0].lineno - node.lineno


def _docstring_lines(node: ast.FunctionDef | ast.ClassDef) -> int:
    first = node.body[0]
    if ast.get_docstring(node) is None or first.end_lineno is None:
        return 0
    return first.end_lineno - first.lineno + 1


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_public_names_are_documented_and_options_are_keyword_only(
    path: pathlib.Path,
) -> None:
    tree = ast.parse(path.read_text())

    assert ast.get_docstring(tree), "a module says what it is in its first line"
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_") or node.name in ("main",):
            continue
        assert ast.get_docstring(node), f"{node.name} has no docstring"
        if isinstance(node, ast.FunctionDef):
            assert not node.args.defaults, f"{node.name}: optional positional argument"


def test_every_flag_is_defined_once_and_in_the_documents() -> None:
    defined: dict[str, str] = {}
    for path in MODULES:
        for name in re.findall(r'flags\.DEFINE_\w+\(\s*"(\w+)"', path.read_text()):
            home = name_of(path)
            package = path.relative_to(ROOT).parts[0]
            key = f"{package}:{name}"
            assert key not in defined, f"--{name} in {home} and {defined[key]}"
            defined[key] = home
    pages = [ROOT / "README.md", ROOT / "BUILD.md", *(ROOT / "docs").glob("*.md")]
    documents = "".join(page.read_text() for page in pages)
    missing = {key for key in defined if f"--{key.partition(':')[2]}" not in documents}
    assert not missing


def test_no_todo_without_an_issue_and_no_print_of_debugging() -> None:
    for path in MODULES:
        text = path.read_text()
        assert not re.search(r"TODO(?!\(#\d+\))|FIXME|XXX|breakpoint\(\)", text), path


# A sentence begins with its subject, in the first line above all.
RIDDLES = re.compile(r"(Of|That|What)\b")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_docstrings_open_with_their_subject(path: pathlib.Path) -> None:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            assert not RIDDLES.match(text), text.splitlines()[0]
