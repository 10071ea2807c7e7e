"""Names the command that builds the native libraries on this host.

In: the host: its Python, compilers and package managers. Out: a command for a shell.
Imports no TensorFlow, because its absence is one of the answers.
"""

import importlib.util
import os
import pathlib
import shlex
import shutil
import sys

from tfpipe.native import libraries

# The command of each package manager that installs a C++ compiler.
_INSTALLERS = {
    "apt-get": "apt-get install -y g++",
    "dnf": "dnf install -y gcc-c++",
    "zypper": "zypper install -y gcc-c++",
    "apk": "apk add g++",
}


def remedy() -> str:
    """Returns a sentence with the shell command that builds the libraries on this host.

    The command first installs what is missing: a C++ compiler, TensorFlow for its
    headers, Pillow's wheel for libjpeg. Where it is not Linux, the sentence says so.
    """
    if sys.platform != "linux":
        return "It can be built on Linux only"
    python, steps = _python(), []
    try:
        find_compiler()
    except OSError:
        steps.append(_compiler_command())
    packages = []
    if importlib.util.find_spec("tensorflow") is None:
        packages.append("'tensorflow>=2.16,<2.22'")
    try:
        libraries.libjpeg()
    except OSError:
        packages.append("--force-reinstall --no-deps --only-binary=:all: pillow")
    steps += [f"{python} -m pip install {package}" for package in packages]
    return "Run: " + " && ".join([*steps, f"{python} -m tfpipe.native"])


def find_compiler() -> list[str]:
    """Returns $CXX, or else c++, g++ or clang++, as the first words of a command.

    Raises:
        OSError: If no compiler is found.
    """
    named = shlex.split(os.environ.get("CXX", ""))
    if named:
        return named
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise OSError(f"no C++ compiler: install one ({_compiler_command()}) or set CXX")


def _compiler_command() -> str:
    for name, command in _INSTALLERS.items():
        if shutil.which(name):
            return command if os.geteuid() == 0 else f"sudo {command}"
    return _INSTALLERS["apt-get"]


def _python() -> str:
    """Returns "python" where a shell finds this interpreter by it, or else its path."""
    found = shutil.which("python")
    this = pathlib.Path(sys.executable)
    if found is not None and pathlib.Path(found).parent == this.parent:
        return "python"
    return shlex.quote(sys.executable)
