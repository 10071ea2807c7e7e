"""The house rules as tests: who imports whom, sizes, names, documented flags."""

import ast
import configparser
import pathlib
import pkgutil
import re
import subprocess
import sys

import pytest

import tfpipe

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = ("tfpipe", "converters", "benchmarks")
MODULES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 40
MAX_CLASS_LINES = 120
# Signatures and docstrings of the presets list every argument of a run.
MAX_DOCUMENTED_FUNCTION_LINES = 80

TENSORFLOW = {"tensorflow", "keras", "horovod"}


def _name(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _imports(path: pathlib.Path) -> set[str]:
    """Dotted names that a module imports, anywhere in it but under TYPE_CHECKING."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _tops(path: pathlib.Path) -> set[str]:
    return {name.split(".")[0] for name in _imports(path)}


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_imports_follow_the_plan_of_the_house(path: pathlib.Path) -> None:
    tops, names = _tops(path), _imports(path)
    package = path.relative_to(ROOT).parts[0]

    if package == "tfpipe":
        assert not tops & {"converters", "benchmarks", "absl", "horovod"}
    if package == "converters":
        assert not tops & ({"benchmarks"} | TENSORFLOW)
    if package == "benchmarks":
        assert "converters" not in tops
        private = {n for n in names if n.startswith("tfpipe.")} - {"tfpipe.errors"}
        assert not private, "benchmarks uses the public names of tfpipe"
    if _name(path) in (
        "tfpipe/order.py",
        "tfpipe/index.py",
        "tfpipe/records.py",
        "tfpipe/image_record.py",
    ):
        assert not tops & TENSORFLOW
    if _name(path) == "tfpipe/pipeline.py":
        assert not names & {"tfpipe.stages", "tfpipe.source"}
    if "keras" in tops:
        # A Keras callback is a subclass of Keras' own. It is loaded by who names it.
        assert re.fullmatch(
            r"benchmarks/(architectures|compute|loop|models)\.py|tfpipe/callbacks\.py",
            _name(path),
        )
    if "horovod" in tops:
        assert _name(path) == "benchmarks/ranks.py"


def test_converters_import_without_tensorflow() -> None:
    """Also through tfpipe, whose names are imported when they are first used."""
    modules = [p.stem for p in MODULES if p.parent.name == "converters"]
    code = "import sys, importlib\n" + "".join(
        f"importlib.import_module('converters.{name}')\n"
        for name in modules
        if name != "__init__"
    )
    code += f"assert not {TENSORFLOW!r} & set(sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("path", MODULES, ids=_name)
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
            code = _lines(node) - _docstring_lines(node)
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


@pytest.mark.parametrize("path", MODULES, ids=_name)
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


def test_public_names_are_sorted_complete_and_importable() -> None:
    lazy = {name for names in tfpipe._MODULES.values() for name in names}

    assert sorted(lazy) == list(tfpipe.__all__)
    assert all(getattr(tfpipe, name) for name in tfpipe.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tfpipe.nonsense


def test_no_module_takes_the_name_of_what_is_public() -> None:
    """Importing `tfpipe.x` binds the module to the name x of `tfpipe`."""
    directly = {module.name for module in pkgutil.iter_modules(tfpipe.__path__)}

    assert not directly & set(tfpipe.__all__)


def test_public_names_stay_what_they_are_whatever_is_imported() -> None:
    code = """
import importlib, pkgutil, tfpipe
for module in pkgutil.walk_packages(tfpipe.__path__, "tfpipe."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for module, names in tfpipe._MODULES.items():
    home = importlib.import_module(f"tfpipe.{module}")
    for name in names:
        assert getattr(tfpipe, name) is getattr(home, name), name
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_setup_names_every_package() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    named = setup["options"]["packages"].replace(" ", "").split(",")
    there = {".".join(path.parent.relative_to(ROOT).parts) for path in MODULES}

    assert sorted(named) == sorted(there)


def test_every_flag_is_defined_once_and_in_the_documents() -> None:
    defined: dict[str, str] = {}
    for path in MODULES:
        for name in re.findall(r'flags\.DEFINE_\w+\(\s*"(\w+)"', path.read_text()):
            home = f"{path.parent.name} {path.stem}"
            package = path.parent.name
            key = f"{package}:{name}"
            assert key not in defined, f"--{name} in {home} and {defined[key]}"
            defined[key] = home
    documents = (ROOT / "README.md").read_text() + (ROOT / "BUILD.md").read_text()
    missing = {key for key in defined if f"--{key.partition(':')[2]}" not in documents}
    assert not missing


def test_no_todo_without_an_issue_and_no_print_of_debugging() -> None:
    for path in MODULES:
        text = path.read_text()
        assert not re.search(r"TODO(?!\(#\d+\))|FIXME|XXX|breakpoint\(\)", text), path


def test_readme_python_runs(data_dir: pathlib.Path) -> None:
    """Each python block of README, with the data set of the tests for "DIR"."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)

    assert blocks
    for block in blocks:
        code = block.replace('"DIR"', repr(str(data_dir)))
        exec(
            compile(
                code.replace("batch_size=256", "batch_size=4"), "README.md", "exec"
            ),
            {},
        )
