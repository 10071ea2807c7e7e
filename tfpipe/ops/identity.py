"""The identity of an op: a text of its values, and digests of the code it reaches.

In: an op, or any other part of a pipeline. Out: a text that two values share only if
they are equal, and digests of the files that hold the op's code. The text also covers
what a `repr` leaves out, such as the middle of a long array.
"""

import ast
import dataclasses
import functools
import importlib.metadata
import importlib.util
import inspect
import os
import pathlib
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np
import xxhash

from tfpipe.shards import index

# In the metadata of a field: it says where something is, not what an op does.
PLACE = "tfpipe.place"

# Addresses in a repr differ between two processes.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def content(value: Any) -> str:
    """Returns a value as text, arrays and tensors as a digest of their elements.

    A function is given by its name, without its code; a dataclass by its compared
    fields, without those marked as `PLACE`; any other object by its `repr` and its
    attributes.
    """
    return _content(value, ())


def _content(value: Any, outer: tuple[int, ...]) -> str:
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if id(value) in outer:  # the object holds itself
        return "..."
    inner = (*outer, id(value))
    if isinstance(value, Mapping):
        items = sorted(
            (_content(k, inner), _content(v, inner)) for k, v in value.items()
        )
        return f"{{{', '.join(f'{key}: {item}' for key, item in items)}}}"
    if isinstance(value, (list, tuple)):
        return f"{_name(value)}({', '.join(_content(v, inner) for v in value)})"
    if isinstance(value, Set):
        return f"{_name(value)}({', '.join(sorted(_content(v, inner) for v in value))})"
    if (array := _array(value)) is not None:
        return _array_content(array, inner)
    if isinstance(value, functools.partial):
        return _content((value.func, value.args, value.keywords), inner)
    if inspect.isroutine(value) or isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    return f"{_name(value)}({_attributes(value, inner)})"


def _name(value: object) -> str:
    return type(value).__qualname__


def _array(value: Any) -> Any:
    """Returns an array, NumPy number or eager tensor as an array; otherwise None."""
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    is_tensor = hasattr(value, "shape") and callable(getattr(value, "numpy", None))
    return np.asarray(value.numpy()) if is_tensor else None


def _array_content(array: Any, outer: tuple[int, ...]) -> str:
    if array.dtype.hasobject:
        return f"array{array.shape}{_content(array.tolist(), outer)}"
    digest = xxhash.xxh3_128_hexdigest(np.ascontiguousarray(array).tobytes())
    return f"array({array.dtype}, {array.shape}, {digest})"


def _attributes(value: Any, outer: tuple[int, ...]) -> str:
    if dataclasses.is_dataclass(value):
        fields = [
            f.name
            for f in dataclasses.fields(value)
            if f.compare and not f.metadata.get(PLACE)
        ]
        parts = {name: getattr(value, name) for name in fields}
        return ", ".join(f"{k}={_content(v, outer)}" for k, v in parts.items())
    attributes = getattr(value, "__dict__", {})
    return f"{_ADDRESS.sub('', repr(value))}, {_content(attributes, outer)}"


def code(value: object) -> dict[str, str]:
    """Returns digests of the code that a value reaches, by its imports and names.

    A file outside of Python's standard library and of installed packages counts by its
    content, and its imports are followed, also those within functions. An installed
    package counts by its version. Code in no file, as in a notebook, counts by its
    bytecode and by the global values that it names.

    Args:
        value: A function, or an object, of which the class and the attributes count.

    Returns:
        A digest or a version by the name of a module, package or function.
    """
    found: dict[str, str] = {}
    left = [*_definitions(value, set())]
    names = set()
    while left:
        thing = left.pop()
        if inspect.ismodule(thing):
            names.add(thing.__name__)
        elif thing.__module__ in sys.builtin_module_names:
            continue
        elif _file(thing.__module__) is not None:
            names.add(thing.__module__)
        elif (name := f"{thing.__module__}.{thing.__qualname__}") not in found:
            found[name], reached = _bytecode(thing)
            left += reached
    return found | _files(names)


def _files(names: Iterable[str]) -> dict[str, str]:
    """Returns digests of modules and their imports, and versions of packages."""
    found: dict[str, str] = {}
    left = [*names]
    while left:
        name = left.pop()
        path = _file(name)
        if path is None or name in found:
            continue
        if package := _package(path, name):
            found[package[0]] = package[1]
        elif not path.is_relative_to(_STANDARD_LIBRARY):
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            found[name], imports = _read(path, name, stamp)
            left += imports
    return found


@functools.lru_cache(maxsize=1024)  # each build of a pipeline with a cache calls it
def _read(path: pathlib.Path, name: str, _: tuple[int, int]) -> tuple[str, list[str]]:
    """Returns a digest of a module's file, and its imports.

    The last argument, the file's time and size, makes the cache read a changed file.
    """
    return xxhash.xxh3_128_hexdigest(path.read_bytes()), _imports(path, name)


def _bytecode(value: Any) -> tuple[str, list[Any]]:
    """Returns a digest of a function or class, and the code that it names."""
    if isinstance(value, type):
        functions = [item for item in map(_function, vars(value).values()) if item]
        return index.digest(value.__qualname__), [*functions, *value.__bases__[:-1]]
    function = _function(value)
    parts: list[str] = []
    reached: list[Any] = []
    left = [function.__code__] if function else []
    while left:
        one = left.pop()
        left += [item for item in one.co_consts if inspect.iscode(item)]
        constants = [item for item in one.co_consts if not inspect.iscode(item)]
        parts += [one.co_code.hex(), content(constants), content(one.co_names)]
        for item in map(function.__globals__.get, one.co_names):
            if inspect.ismodule(item) or inspect.isclass(item) or _function(item):
                reached.append(item)
            else:
                parts.append(content(item))
    return index.digest(repr(parts)), reached


def _function(value: Any) -> Any:
    """Returns the Python function of a function, method or wrapper, or None."""
    value = getattr(value, "fget", None) or getattr(value, "__func__", value)
    value = inspect.unwrap(value) if callable(value) else value
    return value if inspect.isfunction(value) else None


_STANDARD_LIBRARY = pathlib.Path(sysconfig.get_path("stdlib")).resolve()
_PACKAGES = {
    pathlib.Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")
}


def _definitions(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yields the functions and classes of a value, its attributes and its items."""
    if id(value) in seen or isinstance(value, (str, bytes, np.ndarray)):
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        inner = [*value.values()]
    elif isinstance(value, (list, tuple, Set)):
        inner = [*value]
    elif isinstance(value, functools.partial):
        inner = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, type):
        yield from value.__mro__[:-1]
        return
    elif function := _function(value):
        yield function
        inner = [cell.cell_contents for cell in function.__closure__ or ()]
    else:
        inner = [type(value), *getattr(value, "__dict__", {}).values()]
    for item in inner:
        yield from _definitions(item, seen)


def _file(name: str) -> pathlib.Path | None:
    """Returns the file of a module that is loaded or that an import would find."""
    module = sys.modules.get(name)
    if module is not None:
        found = getattr(module, "__file__", None)
    else:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, AttributeError, ValueError):
            spec = None
        found = spec.origin if spec is not None and spec.has_location else None
    path = _resolved(found or "")
    return path if path.is_file() else None


@functools.lru_cache(maxsize=4096)  # each build of a pipeline with a cache calls it
def _resolved(path: str) -> pathlib.Path:
    return pathlib.Path(path).resolve()


@functools.lru_cache(maxsize=4096)
def _package(path: pathlib.Path, module: str) -> tuple[str, str] | None:
    """Returns name and version of the installed package that a file belongs to."""
    if not any(path.is_relative_to(folder) for folder in _PACKAGES):
        return None
    top = module.partition(".")[0]
    return top, _version(top, path)


@functools.cache
def _version(package: str, path: pathlib.Path) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        # The package has another name than the module; most modules know their version.
        version = getattr(sys.modules.get(package), "__version__", None)
        return str(version or xxhash.xxh3_128_hexdigest(path.read_bytes()))


def _imports(path: pathlib.Path, module: str) -> list[str]:
    """Returns the modules that a file imports, and the packages that contain them."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # compiled, not source
        return []
    is_package = path.name == "__init__.py"
    names = set()
    for node in _at_run_time(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            up = node.level - is_package
            base = parts[: len(parts) - up] if node.level else []
            start = ".".join([*base, *filter(None, [node.module])])
            names |= {start, *(f"{start}.{alias.name}" for alias in node.names)}
    dots = ((name, m.start()) for name in names for m in re.finditer(r"\.", name))
    return sorted(names | {name[:dot] for name, dot in dots})


def _at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields all nodes except those that only type checkers evaluate."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            left += node.orelse
        else:
            left += ast.iter_child_nodes(node)
