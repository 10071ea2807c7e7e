"""The modules of the repository, for the rules of the house."""

import ast
import functools
import pathlib
from collections.abc import Callable, Iterable

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ("tfpipe", "converters", "benchmarks")
MODULES = sorted(
    path for name in (*PACKAGES, "studies") for path in (ROOT / name).rglob("*.py")
)


def name_of(path: pathlib.Path) -> str:
    """The path of a module below the root of the repository."""
    return path.relative_to(ROOT).as_posix()


def faults(find: Callable[[pathlib.Path], Iterable[str]]) -> list[str]:
    """All faults that `find` names in the modules, as `module: fault`.

    One test looks at all modules: a test of its own for each module takes ten times as
    long as the look at it.
    """
    return [f"{name_of(path)}: {fault}" for path in MODULES for fault in find(path)]


@functools.cache
def tree(path: pathlib.Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text())


@functools.cache
def nodes(path: pathlib.Path) -> list[ast.AST]:
    """All nodes of the syntax tree of a module."""
    return list(ast.walk(tree(path)))


def imports(path: pathlib.Path) -> set[str]:
    """Dotted names that a module imports anywhere, also within functions."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found
