"""The native libraries: their paths, their checks, and the command that builds them.

In: the C++ sources, Pillow's libjpeg, the folder for caches, the compilers and package
managers of this host. Out: paths, digests, checks, the loaded library of the
converters, and a command for a shell. Imports no TensorFlow: converters use the module,
and the command also installs a missing TensorFlow.

`python -m tfpipe.native` builds two libraries, the op and the rewriter of JPEGs, and
keeps them in `folder()`: the package itself may be read-only. A library's name holds a
digest of its sources and flags: several environments and releases can share a folder. A
JSON file beside a library holds its size and digest. Both are compared before the
library is loaded, because loading a cut library kills the process.
"""

import ctypes
import functools
import hashlib
import importlib.util
import os
import pathlib
import shlex
import shutil
import sys
from collections.abc import Iterable
from typing import Any

import PIL

from tfpipe import errors

_HERE = pathlib.Path(__file__).parent / "src"

_NAMES = (
    "crop.cc record_ops.cc run.cc ops.h crop_core.h mcu_rows.h resize.h decoder.h "
    "huffman.h skip.h codes.h idct.h platform.h draw.h entry_points.h entry_file.h "
    "pool.h record_file.h example.h crc32c.h"
)
SOURCES = tuple(_HERE / name for name in _NAMES.split())
_REWRITE_NAMES = (
    "rewrite.cc turn.cc vary.cc entry_points.cc check.cc rewrite.h transcoder.h scan.h "
    "tokens.h decoder.h entry_points.h huffman.h codes.h skip.h platform.h"
)
REWRITE_SOURCES = tuple(_HERE / name for name in _REWRITE_NAMES.split())

# -ffp-contract=off: a product and a sum are rounded one by one, as TensorFlow does.
FLAGS = ("-O3", "-shared", "-fPIC", "-ffp-contract=off")


def rewrite_library() -> pathlib.Path:
    """Returns the path of the library that rewrites and turns JPEGs, built or not.

    `rewrite.h` describes its functions, which have C types only;
    `converters.images.lossless` calls them.

    Raises:
        OSError: If it cannot be built on this machine; says why.
    """
    return folder() / f"rewrite-{digest(REWRITE_SOURCES, [])}.so"


def require_sound(path: pathlib.Path) -> None:
    """Checks that a library exists and has the bytes of its building.

    Raises:
        OSError: If the library is missing, changed or cannot be checked; says why.
    """
    try:
        _require_sound(path)
    except OSError:
        # Another process may have replaced one of the two files, and then the other.
        _require_sound(path)


def _require_sound(path: pathlib.Path) -> None:
    if not path.exists():
        raise OSError(f"{path.name} is not built")
    stated, named = description(path), path.with_suffix(".json").name
    for name, value in describe(path.read_bytes()).items():
        if name not in stated:
            raise OSError(f"{path} cannot be checked: {named} must say its {name}")
        if stated[name] != value:
            raise OSError(
                f"{path} is damaged: its {name} must be {stated[name]}, as {named} "
                f"says, got {value}"
            )


def describe(library: bytes) -> dict[str, Any]:
    """Returns the size and digest of a library, for its JSON file."""
    sha256 = hashlib.sha256(library).hexdigest()
    return {"num_bytes": len(library), "sha256": sha256}


def description(path: pathlib.Path) -> dict[str, Any]:
    """Returns the content of the JSON file beside a library; empty if unreadable."""
    try:
        content = errors.from_json(path.with_suffix(".json").read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def digest(sources: Iterable[pathlib.Path], others: Iterable[str]) -> str:
    """Returns 16 hexadecimal digits, a digest of all inputs of a library.

    Args:
        sources: The C++ files.
        others: Further texts: versions and compiler flags.

    Raises:
        OSError: If there is no libjpeg to link with; says why.
    """
    made_of = (os.uname().machine, *others, *FLAGS, str(libjpeg()))
    return _digest(tuple(sources), made_of)


@functools.cache  # a pipeline asks several times, and reading takes 1 ms
def _digest(sources: tuple[pathlib.Path, ...], others: tuple[str, ...]) -> str:
    made_of = [*others, *(path.read_text() for path in sources)]
    return hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]


def folder() -> pathlib.Path:
    """Returns $TFPIPE_NATIVE_DIR, or else `tfpipe` in the user's folder for caches."""
    if chosen := os.environ.get("TFPIPE_NATIVE_DIR"):
        return pathlib.Path(chosen).absolute()
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(caches) / "tfpipe"


def libjpeg() -> pathlib.Path:
    """Returns the libjpeg-turbo in Pillow's wheel; TensorFlow's headers fit its ABI.

    Raises:
        OSError: Without such a library, or on another system than Linux.
    """
    if sys.platform != "linux":
        raise OSError(f"the native op is for Linux, this is {sys.platform}")
    return _libjpeg(PIL.__file__)


@functools.cache  # an error is not cached
def _libjpeg(pillow: str) -> pathlib.Path:
    wheel = pathlib.Path(pillow).resolve().parent.parent / "pillow.libs"
    paths = sorted(wheel.glob("libjpeg-*.so.62*"))
    if not paths:
        raise OSError(f"no libjpeg*.so.62 in {wheel}; Pillow's wheel from PyPI has it")
    return paths[0]


def load_rewrite_library(needing: str) -> ctypes.CDLL:
    """Loads the library.

    Args:
        needing: Subject and verb of the error, such as "Rewriting a JPEG needs".

    Raises:
        ValueError: If the library is not built or does not load; names the remedy.
    """
    try:
        path = rewrite_library()
        return _load(path, path.stat().st_mtime_ns if path.exists() else None)
    except OSError as error:
        raise ValueError(
            f"{needing} a native library, but {error}. {remedy()}"
        ) from error


@functools.cache  # is asked for each image; an error is not cached
def functions(needing: str) -> ctypes.CDLL:
    """Returns the library, loaded once; see `load_rewrite_library`."""
    return load_rewrite_library(needing)


def made_of(
    jpeg: bytes, function: str, *values: int, needing: str
) -> tuple[bytes, str]:
    """Makes bytes of a JPEG by a function of the library.

    Args:
        jpeg: The JPEG.
        function: Name of the function, see `rewrite.h`.
        values: Arguments between the JPEG and the result.
        needing: See `load_rewrite_library`.

    Returns:
        The bytes and ""; or b"" and the reason why the function refuses the JPEG.

    Raises:
        ValueError: If the library is not built or does not load; says what to do.
        MemoryError: If there is not enough memory.
    """
    library, result, size = functions(needing), ctypes.c_void_p(), ctypes.c_size_t()
    ends = ctypes.byref(result), ctypes.byref(size)
    reason = getattr(library, function)(jpeg, len(jpeg), *values, *ends)
    if reason == b"no_memory":
        raise MemoryError(f"a JPEG of {len(jpeg)} bytes does not fit into memory")
    if reason is not None:
        return b"", reason.decode()
    try:
        return ctypes.string_at(result, size.value), ""
    finally:
        library.tfpipe_free(result)


@functools.cache  # is asked for each image
def is_built() -> bool:
    """Whether the library of the converters is built and loads on this machine."""
    try:
        load_rewrite_library("Reading a JPEG needs")
    except ValueError:
        return False
    return True


@functools.cache  # an error is not cached
def _load(path: pathlib.Path, modified_ns: int | None) -> ctypes.CDLL:
    """Loads a library of C functions; another build has another time."""
    require_sound(path)
    library = ctypes.CDLL(str(path))
    results = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)
    jpeg = ctypes.c_char_p, ctypes.c_size_t
    options = {
        "tfpipe_rewrite": (),
        "tfpipe_turn": (ctypes.c_int,),
        "tfpipe_vary": (ctypes.c_uint64, ctypes.c_int),
        "tfpipe_find_entry_points": (ctypes.c_size_t,),
    }
    for name, kinds in options.items():
        function = getattr(library, name)
        function.restype = ctypes.c_char_p
        function.argtypes = (*jpeg, *kinds, *results)
    library.tfpipe_check.restype = ctypes.c_char_p
    library.tfpipe_check.argtypes = (*jpeg, ctypes.c_char_p)
    library.tfpipe_free.restype = None
    library.tfpipe_free.argtypes = (ctypes.c_void_p,)
    return library


# Commands of package managers for a C++ compiler.
_INSTALLERS = {
    "apt-get": "apt-get install -y g++",
    "dnf": "dnf install -y gcc-c++",
    "zypper": "zypper install -y gcc-c++",
    "apk": "apk add g++",
}


def remedy() -> str:
    """Returns a sentence with the shell command to build the libraries on this host.

    The command first installs missing parts: a C++ compiler, TensorFlow for its
    headers, Pillow's wheel for libjpeg. On other systems than Linux there is no
    command, and the sentence says so.
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
        libjpeg()
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
    """Returns "python" if a shell finds the running interpreter so, else its path."""
    python = shutil.which("python")
    running = pathlib.Path(sys.executable)
    if python is not None and pathlib.Path(python).parent == running.parent:
        return "python"
    return shlex.quote(sys.executable)
