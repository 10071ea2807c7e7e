"""Where modules stand and who imports what import-linter's contracts cannot say."""

import ast
import importlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

import tfpipe
from tests.house.code import MODULES, PACKAGES, ROOT, faults, imports, name_of, tree
from tests.support.data.trees import make_jpeg

# All that may stand at the top of a package: what its users touch.
AT_THE_TOP = {
    "tfpipe": {
        *("pipeline", "presets", "recipes", "mixture", "tuning", "view"),
        *("errors", "host", "at_exit", "renamed"),
    },
    "converters": {
        *("imagenet", "folder", "table", "webdataset", "tfrecord"),
        *("merge", "synthesize", "verify", "replicate", "query"),
        *("export", "stream"),
    },
    "benchmarks": {
        *("train", "input", "sweep", "report", "storage", "service", "advise"),
    },
}

KERAS_MODULES = {
    "benchmarks/models/architectures.py",
    "benchmarks/models/catalog.py",
    "benchmarks/training/loop.py",
    "benchmarks/training/steps.py",
    "tfpipe/consumers/for_keras.py",
    "tfpipe/training/callbacks.py",
    "tfpipe/training/sum_metrics.py",
}

NO_TENSORFLOW = {
    ("tfpipe", "shards"),
    ("tfpipe", "location"),
    ("tfpipe", "shard_cache"),
    ("tfpipe", "pages"),
}

# Public names of tfpipe, and the modules that the stub imports them from.
HOMES = {
    alias.name: f"tfpipe.{node.module}" if node.module else "tfpipe"
    for node in ast.walk(ast.parse((ROOT / "tfpipe/__init__.pyi").read_text()))
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}


def test_only_what_users_touch_stands_at_the_top() -> None:
    there = {
        package: {path.stem for path in (ROOT / package).glob("*.py")}
        - {"__init__", "__main__"}
        for package in PACKAGES
    }

    assert there == AT_THE_TOP


def test_a_room_says_what_it_is_for() -> None:
    rooms = sorted({path.parent for path in MODULES})
    texts = {
        name_of(room): ast.get_docstring(tree(room / "__init__.py")) or ""
        for room in rooms
    }

    assert [name for name, text in texts.items() if text.count("\n") < 2] == []


def test_keras_horovod_and_private_modules_stay_where_they_belong() -> None:
    assert not faults(_misplaced)


def _misplaced(path: pathlib.Path) -> Iterator[str]:
    names = imports(path)
    tops = {name.split(".")[0] for name in names}
    name = name_of(path)

    if name.startswith("benchmarks/"):
        private = {n for n in names if n.startswith("tfpipe.")}
        # docs/upgrading.md names the module of the workers of a service.
        public = ("tfpipe.errors", "tfpipe.cli", "tfpipe.pages")
        public += ("tfpipe.service.workers",)
        if any(not n.startswith(public) for n in private):
            yield f"not the public names of tfpipe: {private}"
    if name == "tfpipe/pipeline.py":
        # A pipeline takes any source and any stages.
        special = ("reading.source", "stages.basic", "stages.map")
        found = {
            n for n in names if n.startswith(tuple(f"tfpipe.{x}" for x in special))
        }
        if found:
            yield f"imports {found}"
    if "keras" in tops and name not in KERAS_MODULES:
        yield "imports Keras"
    if "horovod" in tops and name != "benchmarks/distributed/ranks.py":
        yield "imports Horovod"


def test_converters_and_shards_import_without_tensorflow() -> None:
    """The contract sees what is written; this sees what is loaded."""
    code = "import sys, importlib\n"
    for path in MODULES:
        parts = path.relative_to(ROOT).parts
        if parts[0] == "converters" or parts[:2] in NO_TENSORFLOW:
            module = name_of(path).removesuffix(".py").replace("/", ".")
            code += f"importlib.import_module({module.removesuffix('.__init__')!r})\n"
    code += "assert not {'tensorflow', 'keras', 'horovod'} & set(sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_commands_of_benchmarks_parse_flags_before_heavy_imports() -> None:
    """Their help comes within 2 s, because these packages take seconds to import."""
    names = [f"benchmarks.{name}" for name in sorted(AT_THE_TOP["benchmarks"])]
    for path in (ROOT / "studies").rglob("*.py"):
        if "cli.run(*COMMANDS)" in path.read_text():
            module = name_of(path).removesuffix(".py").replace("/", ".")
            names.append(module)
    code = f"""import importlib.util, sys
for name in {names}:
    importlib.import_module(name)
    for heavy in ("tensorflow", "keras", "horovod", "matplotlib"):
        found = type(sys.modules.get(heavy))
        assert found in (type(None), importlib.util._LazyModule), (name, heavy)
"""

    assert len(names) > 12
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# Packages that a small job does without, because their imports cost as much as the job.
DEFERRED = ("numpy", "tqdm", "duckdb", "PIL.Image", "multiprocessing", "asyncio")


@pytest.mark.parametrize(
    ("name", "more"),
    [
        *((name, ()) for name in ("imagenet", "folder", "table")),
        *((name, ()) for name in ("webdataset", "tfrecord", "verify", "export")),
        ("merge", ("numpy", "PIL.Image")),
    ],
)
def test_commands_of_converters_parse_flags_before_heavy_imports(
    name: str, more: tuple[str, ...]
) -> None:
    code = f"import sys, converters.{name}; print(*sys.modules)"

    assert not _loaded(["-c", code], without=more)


def test_a_small_conversion_needs_neither_numpy_nor_a_pool(
    tmp_path: pathlib.Path,
) -> None:
    for number in range(4):
        path = tmp_path / "raw" / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_jpeg(number))
    code = f"""import sys
from converters import folder
from converters.inputs.classtree import TreeReader
from converters.conversion import steps
from converters.options import job
reader = TreeReader(input_dir={str(tmp_path / "raw")!r})
options = job.ConvertOptions(output_dir={str(tmp_path / "out")!r})
steps.convert("converters.folder", options, reader)
print(*sys.modules)
"""

    assert not _loaded(["-c", code], without=("duckdb", "PIL.Image"))


def _loaded(arguments: list[str], *, without: tuple[str, ...]) -> set[str]:
    """The deferred packages that a process has loaded, but for some."""
    done = subprocess.run(
        [sys.executable, *arguments],
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return {*DEFERRED} & {*done.stdout.split()} - {*without}


def test_public_names_are_complete_and_importable() -> None:
    assert sorted(HOMES) == sorted(tfpipe.__all__)
    for name, home in HOMES.items():
        assert getattr(tfpipe, name) is getattr(importlib.import_module(home), name)
    with pytest.raises(AttributeError, match="attribute nonsense"):
        _ = tfpipe.nonsense


def test_no_module_takes_the_name_of_what_is_public() -> None:
    """Importing `tfpipe.x` binds the module to the name x of `tfpipe`."""
    directly = {path.stem for path in (ROOT / "tfpipe").iterdir()}

    # The names of these modules stand for the modules.
    public = {"errors", "host", "recipes", "view"}
    assert directly & set(tfpipe.__all__) == public
