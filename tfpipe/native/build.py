"""Builds the native crop op with the C++ compiler that is there.

In: the sources beside this file, the headers in TensorFlow's wheel, the library in
Pillow's. Out: a shared library in `tfpipe.native.folder()`, and beside it a JSON file
that says which compiler made it.
"""

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

import tensorflow as tf

from tfpipe import native


def build(*, force: bool) -> pathlib.Path:
    """Compiles the op, unless it is there, made by the same compiler.

    Processes may do so at once: each makes a file of its own and renames it.

    Args:
        force: Compile in any case.

    Returns:
        The library.

    Raises:
        OSError: If there is no compiler or no libjpeg, the compiler fails, or the
            folder cannot be written; says what to do.
    """
    path = native.library()
    compiler = find_compiler()
    version = _version(compiler)
    record = path.with_suffix(".json")
    if not force and path.exists() and made_by(path) == version:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = pathlib.Path(folder) / path.name
        run_compiler(
            [
                *compiler,
                *native.FLAGS,
                *compile_flags(),
                *libjpeg_flags(native.SOURCES[0]),
                *tf.sysconfig.get_link_flags(),
            ],
            made,
        )
        described = made.with_suffix(".json")
        described.write_text(json.dumps({"compiler": version}) + "\n")
        os.replace(described, record)
        os.replace(made, path)
    return path


def made_by(library: pathlib.Path) -> str:
    """The compiler that made a library, or an empty string."""
    try:
        return str(json.loads(library.with_suffix(".json").read_text())["compiler"])
    except (OSError, ValueError, KeyError):
        return ""


def find_compiler() -> list[str]:
    """$CXX, otherwise c++, g++ or clang++, as the first words of a command.

    Raises:
        OSError: If there is none.
    """
    named = shlex.split(os.environ.get("CXX", ""))
    if named:
        return named
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise OSError("no C++ compiler: install one (apt-get install -y g++) or set CXX")


def compile_flags() -> list[str]:
    """What TensorFlow's headers need."""
    # Its headers warn; those of the sources are of interest.
    flags = tf.sysconfig.get_compile_flags()
    return [flag.replace("-I", "-isystem", 1) for flag in flags]


def libjpeg_flags(source: pathlib.Path) -> list[str]:
    """A source and libjpeg, where it is now; before other libraries that have one."""
    libjpeg = native.libjpeg()
    return [str(source), str(libjpeg), f"-Wl,-rpath,{libjpeg.parent}"]


def run_compiler(command: list[str], output: pathlib.Path) -> None:
    """Runs a compiler's command, with an output.

    Raises:
        OSError: If it fails; carries what it printed.
    """
    whole = [*command, "-o", str(output)]
    done = subprocess.run(whole, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{shlex.join(whole)} failed:\n{done.stderr}")


def _version(compiler: list[str]) -> str:
    try:
        done = subprocess.run(
            [*compiler, "--version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise OSError(f"no C++ compiler: {shlex.join(compiler)}: {error}") from error
    return done.stdout.splitlines()[0] if done.stdout else shlex.join(compiler)
