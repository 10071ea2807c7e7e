"""The modules of the repository, for the rules of the house."""

import ast
import pathlib

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ("tfpipe", "converters", "benchmarks")
MODULES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))


def name_of(path: pathlib.Path) -> str:
    """The path of a module below the root of the repository."""
    return path.relative_to(ROOT).as_posix()


def imports(path: pathlib.Path) -> set[str]:
    """Dotted names that a module imports anywhere, also within functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found
