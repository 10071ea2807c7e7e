"""Counts words of docstrings and comments, empty names, and lines of code.

`python -m tests.house.words` prints the words by file, and class names with two homes.
`python -m tests.house.words size`, or `make size`, prints files and lines by room.
"""

import ast
import collections
import functools
import io
import pathlib
import re
import sys
import tokenize
from collections.abc import Iterator

from tests.house.code import MODULES, PACKAGES, ROOT, name_of, nodes

PRONOUNS = re.compile(r"\b(that|which|one|ones|those|each|this|it|what)\b", re.I)
# Names that do not say what the value is: an index, an offset, a record, a rank ...
EMPTY_NAMES = frozenset(
    ("found", "known", "one", "made", "given", "number", "place", "of")
)
NATIVE = tuple(sorted((ROOT / "tfpipe/native/src").glob("*.[ch]*")))
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER),
    *(tokenize.INDENT, tokenize.DEDENT),
}


def package_of(path: pathlib.Path) -> str:
    """The package of a module; "native" for C++."""
    return path.relative_to(ROOT).parts[0] if path.suffix == ".py" else "native"


def prose(path: pathlib.Path) -> str:
    """All docstrings and comments of a Python module, or all comments of a C++ file."""
    text = path.read_text()
    if path.suffix != ".py":
        return "\n".join(re.findall(r"//(.*)|/\*.*?\*/", text))
    comments = (
        token.string.lstrip("#")
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    )
    return "\n".join([*_docstrings(path), *comments])


def _docstrings(path: pathlib.Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, _DOCUMENTED):
            yield ast.get_docstring(node) or ""


@functools.cache  # two tests count the words of the same files
def word_counts(path: pathlib.Path) -> tuple[int, int]:
    """The numbers of words and of pronouns in the prose of a file."""
    text = prose(path)
    return len(re.findall(r"[A-Za-z][\w'-]*", text)), len(PRONOUNS.findall(text))


def empty_names(path: pathlib.Path) -> Iterator[str]:
    """Yields each variable, argument and function of a module with an empty name."""
    for node in nodes(path) if path.suffix == ".py" else ():
        name = None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.FunctionDef):
            name = node.name
        if name in EMPTY_NAMES:
            yield f"line {node.lineno}: {name}"


def class_homes(package: str) -> dict[str, list[str]]:
    """Modules of each class name of a package."""
    homes = collections.defaultdict(list)
    for path in MODULES:
        if package_of(path) == package:
            for node in nodes(path):
                if isinstance(node, ast.ClassDef):
                    homes[node.name].append(f"{name_of(path)}:{node.lineno}")
    return homes


def code_lines(path: pathlib.Path) -> int:
    """Lines of a module without blank lines, comments and docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type not in _NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in nodes(path):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            first = node.body[0]
            lines -= set(range(first.lineno, (first.end_lineno or 0) + 1))
    return len(lines)


def _print_words() -> None:
    rows = []
    for path in (*MODULES, *NATIVE):
        words, pronouns = word_counts(path)
        rows.append((pronouns, words, len([*empty_names(path)]), path))
    for package in (*PACKAGES, "native"):
        ours = [row for row in rows if package_of(row[-1]) == package]
        pronouns, words, names = (sum(row[i] for row in ours) for i in range(3))
        share = 100 * pronouns / words
        print(f"{package}: {share:.2f} pronouns in 100 words, {names} empty names")
        for pronouns, words, names, path in sorted(
            ours, key=lambda row: row[0] / max(row[1], 100), reverse=True
        ):
            share = 100 * pronouns / max(words, 1)
            print(f"  {share:5.1f} of {words:5}  {names:3} names  {name_of(path)}")
    for package in PACKAGES:
        for name, homes in sorted(class_homes(package).items()):
            if len(homes) > 1:
                print(f"class {name}: {', '.join(homes)}")


def _print_sizes() -> None:
    files: collections.Counter[str] = collections.Counter()
    lines: collections.Counter[str] = collections.Counter()
    for path in MODULES:
        parts = path.relative_to(ROOT).parts
        room = "/".join(parts[:2] if len(parts) > 2 else parts[:1])
        for key in (room, "without studies" if parts[0] != "studies" else ""):
            files[key] += 1
            lines[key] += code_lines(path)
    files["tfpipe/native/src, C++"] = len(NATIVE)
    lines["tfpipe/native/src, C++"] = sum(
        bool(line.strip()) and not line.lstrip().startswith("//")
        for path in NATIVE
        for line in path.read_text().splitlines()
    )
    for room in sorted(key for key in files if key):
        print(f"{files[room]:4} files {lines[room]:6} lines of code  {room}")


if __name__ == "__main__":
    _print_sizes() if sys.argv[1:] == ["size"] else _print_words()
