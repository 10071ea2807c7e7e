"""python -m tfpipe.native with a real compiler, in interpreters of its own."""

import json
import os
import shlex
import subprocess

import pytest

from tests.support.data.native_op import native_op, needs_native  # noqa: F401
from tests.unit.tfpipe.native.test_native import DAMAGES
from tfpipe.native import build, libraries, op
from tfpipe.native.libraries import find_compiler


@pytest.fixture
def python(warm_python):
    """Runs Python in a new process."""

    def run(*arguments, **environment):
        return subprocess.run(
            [*warm_python.command, *arguments],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_auto_is_stock_where_nothing_is_built_and_says_so_once(python, tmp_path):
    code = (
        "import tfpipe\n"
        "ops = [tfpipe.RandomCrop(image_size=8), tfpipe.Resize(image_size=8)]\n"
        "print([op.crop_op for op in ops])\n"
        "try: tfpipe.Resize(image_size=8, crop_op='native')\n"
        "except RuntimeError as error: print(error)\n"
    )

    done = python("-c", code, TFPIPE_NATIVE_DIR=str(tmp_path))

    choices, error = done.stdout.splitlines()
    assert choices == "['stock', 'stock']"
    assert "is not built. Run: python -m tfpipe.native" in error
    said = [line for line in done.stderr.splitlines() if "tfpipe: stock" in line]
    assert len(said) == 1
    assert "python -m tfpipe.native" in said[0]
    assert not any(tmp_path.iterdir())


@pytest.fixture
def quick_compiler(tmp_path):
    """The compiler of this host, which optimizes nothing, and copies the op.

    TensorFlow's headers take most of the time; `make venv` compiles the op with them.
    """
    path = tmp_path / "compiler"
    compiler, library = shlex.join(find_compiler()), shlex.quote(str(op.library()))
    path.write_text(
        "#!/bin/sh\n"
        "for last; do :; done\n"
        f'case "$*" in *crop.cc*) exec cp {library} "$last" ;; esac\n'
        f'exec {compiler} "$@" -O0\n'
    )
    path.chmod(0o755)
    return str(path)


_MAKE_CROPS = """
import tfpipe
print([tfpipe.Resize(image_size=8).crop_op for _ in range(2)])
"""


@needs_native
@pytest.mark.parametrize("damage", [None, "cut"])
def test_the_first_pipelines_of_a_host_build_the_op_once(
    warm_python, quick_compiler, tmp_path, damage
):
    """Two ranks that start together, where no library is, or a damaged one."""
    folder = tmp_path / "new"
    if damage is not None:
        folder.mkdir()
        for path in (op.library(), op.library().with_suffix(".json")):
            (folder / path.name).write_bytes(path.read_bytes())
        found = folder / op.library().name
        found.write_bytes(DAMAGES[damage](found.read_bytes()))
    environment = os.environ | {
        "TFPIPE_NATIVE_BUILD": "1",
        "TFPIPE_NATIVE_DIR": str(folder),
        "CXX": quick_compiler,
    }
    command = [*warm_python.command, "-c", _MAKE_CROPS]
    pipe = subprocess.PIPE
    ranks = [
        subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)
        for _ in range(2)
    ]
    said = [rank.communicate() for rank in ranks]

    assert [out for out, _ in said] == ["['native', 'native']\n"] * 2, said
    assert "".join(error for _, error in said).count("compiling the native op") == 1
    libraries.require_sound(folder / op.library().name)
    assert not (folder / libraries.rewrite_library().name).exists()


@needs_native
def test_the_command_builds_damaged_libraries_again_and_reports_in_one_line(
    python, quick_compiler, tmp_path
):
    """Runs in its own process: loading a library that was cut off kills the process."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    damages = {op.library(): "cut", libraries.rewrite_library(): "changed"}
    for path, damage in damages.items():
        library = path.read_bytes()
        (folder / path.name).write_bytes(DAMAGES[damage](library))
        described = path.with_suffix(".json")
        (folder / described.name).write_bytes(described.read_bytes())

    done = python(
        "-m", "tfpipe.native", TFPIPE_NATIVE_DIR=str(folder), CXX=quick_compiler
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["command"] == "tfpipe.native"
    assert report["library"] == str(folder / op.library().name)
    assert report["max_difference"] == 0
    assert report["native_cpu_seconds_per_1000_crops"] > 0
    for path in damages:
        libraries.require_sound(folder / path.name)


def test_the_sources_compile_without_warnings():
    """-Werror is for this test only: a user's compiler may know other warnings."""
    sources = sorted(libraries.SOURCES[0].parent.glob("*.cc"))
    crop, *included = (path for path in libraries.SOURCES if path.suffix == ".cc")
    alone = [path for path in sources if path not in libraries.SOURCES]
    command = [*find_compiler(), "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    command += build.compile_flags()

    for inputs in (*(["-include", path, crop] for path in included), alone):
        done = subprocess.run(
            [*command, *map(str, inputs)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


# Loads the libraries cut off at many places, with every fault that a power loss leaves.
_LOAD_DAMAGED = """
import os, pathlib, sys
from tfpipe.native import libraries, op
from tfpipe.native import libraries

def reasons():
    try:
        libraries.load_rewrite_library("This needs")
    except ValueError as error:
        return op.load()[1], str(error)
    return op.load()[1], ""

paths = [op.library(), libraries.rewrite_library()]
whole = {path.name: path.read_bytes() for path in paths}
described = {path.name: path.with_suffix(".json").read_bytes() for path in paths}
os.environ["TFPIPE_NATIVE_DIR"] = sys.argv[1]
folder = pathlib.Path(sys.argv[1])
for number in range(16):
    for name, library in whole.items():
        cut = library[: number if number < 2 else len(library) * number // 16]
        if number % 2:  # the file has its length, and holes in it
            cut = cut.ljust(len(library), bytes(1))
        (folder / name).write_bytes(cut)
        (folder / name).with_suffix(".json").write_bytes(described[name])
    for reason in reasons():
        assert "is damaged" in reason, (number, reason)
for name, library in whole.items():
    (folder / name).write_bytes(library)
for content in (b"", b"{", b"null", b"{}"):
    for name in whole:
        (folder / name).with_suffix(".json").write_bytes(content)
    for reason in reasons():
        assert "cannot be checked" in reason, (content, reason)
assert "python -m tfpipe.native" in reasons()[1]
"""


@needs_native
def test_no_damaged_library_is_loaded(python, tmp_path):
    """Loading one would end the process with a signal."""
    done = python("-c", _LOAD_DAMAGED, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


@needs_native
def test_what_is_built_is_kept_until_the_sources_change(monkeypatch, tmp_path):
    path = op.library()
    assert build.build(force=False) == path
    assert build.made_by(path)
    changed = tmp_path / "crop.cc"
    changed.write_text(libraries.SOURCES[0].read_text() + "\n")

    monkeypatch.setattr(libraries, "SOURCES", (changed, *libraries.SOURCES[1:]))

    assert op.library() != path
