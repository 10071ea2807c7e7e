"""Builds the native crop op and the JPEG rewriter with the installed compiler.

In: the sources in `src`, the headers in TensorFlow's wheel, libjpeg in Pillow's wheel.
Out: shared libraries in `libraries.folder()`, and beside each a JSON file with its
compiler, its size and its digest.
"""

import concurrent.futures
import contextlib
import errno
import fcntl
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

import tensorflow as tf

from tfpipe.native import libraries, op
from tfpipe.native.libraries import find_compiler

# Time for one library. Ten seconds are usual, minutes on a busy host.
MOST_SECONDS = 900

# Folders in which libraries are compiled, until they are complete.
_FOLDERS, _LOCK_NAME, _SECONDS_TO_LOCK = "building-", "lock", 10.0


class CompilerError(OSError):
    """A compiler was run and failed; the message has all that it printed."""


def build(*, force: bool) -> pathlib.Path:
    """Compiles each library that is missing, damaged or made by another compiler.

    Processes may build at once: each writes files of its own and renames them.

    Args:
        force: Whether to compile sound libraries again.

    Returns:
        The path of the op's library.

    Raises:
        OSError: If there is no compiler or no libjpeg, the compiler fails, or the
            folder cannot be written; says what to do.
    """
    sources = (path for path in libraries.REWRITE_SOURCES if path.suffix == ".cc")
    rewrite = libjpeg_flags(*sources)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        path = libraries.rewrite_library()
        rewriting = pool.submit(_build, path, rewrite, force=force)
        made = build_op(force=force)
    rewriting.result()
    return made


def build_op(*, force: bool) -> pathlib.Path:
    """Compiles the op's library alone; see `build`."""
    # One compilation reads TensorFlow's headers once; two would take twice the time.
    crop, *others = (path for path in libraries.SOURCES if path.suffix == ".cc")
    included = [word for path in others for word in ("-include", str(path))]
    inputs = [*included, *libjpeg_flags(crop), *tf.sysconfig.get_link_flags()]
    return _build(op.library(), inputs, force=force)


def _build(path: pathlib.Path, inputs: list[str], *, force: bool) -> pathlib.Path:
    compiler = find_compiler()
    version = _version(compiler)
    if not force and is_sound(path) and made_by(path) == version:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear(path.parent)
    with (
        tempfile.TemporaryDirectory(dir=path.parent, prefix=_FOLDERS) as folder,
        open(pathlib.Path(folder) / _LOCK_NAME, "w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = pathlib.Path(folder) / path.name
        run_compiler([*compiler, *libraries.FLAGS, *compile_flags(), *inputs], made)
        described = made.with_suffix(".json")
        content = {"compiler": version, **libraries.describe(made.read_bytes())}
        described.write_text(json.dumps(content) + "\n")
        os.replace(described, path.with_suffix(".json"))
        os.replace(made, path)
    return path


def _clear(folder: pathlib.Path) -> None:
    """Removes what killed compilations have left: folders without a locked file."""
    for left in folder.glob(f"{_FOLDERS}*"):
        with contextlib.suppress(OSError), open(left / _LOCK_NAME, "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A younger folder may be about to be locked.
            if time.time() - left.stat().st_mtime > _SECONDS_TO_LOCK:
                shutil.rmtree(left)


def is_sound(path: pathlib.Path) -> bool:
    """Checks whether a library is there, with the bytes that it was built with."""
    try:
        libraries.require_sound(path)
    except OSError:
        return False
    return True


def made_by(library: pathlib.Path) -> str:
    """Returns the compiler that made a library, or an empty string if unknown."""
    return str(libraries.description(library).get("compiler", ""))


def compile_flags() -> list[str]:
    """Returns the flags that TensorFlow's headers need."""
    # -isystem: warnings in TensorFlow's headers are hidden, those of the sources shown.
    flags = tf.sysconfig.get_compile_flags()
    return [flag.replace("-I", "-isystem", 1) for flag in flags]


def libjpeg_flags(*sources: pathlib.Path) -> list[str]:
    """Returns sources, libjpeg and its path at run time, as arguments of the compiler.

    They must come before other libraries that contain a libjpeg.
    """
    libjpeg = libraries.libjpeg()
    return [*map(str, sources), str(libjpeg), f"-Wl,-rpath,{libjpeg.parent}"]


def run_compiler(command: list[str], output: pathlib.Path) -> None:
    """Runs a compiler's command that writes `output`.

    Raises:
        CompilerError: If the command fails; carries what the compiler printed.
        OSError: If the disk is full, or the compiler runs longer than
            MOST_SECONDS; the compiler and its processes are then ended.
    """
    whole = [*command, "-o", str(output)]
    # The temporary files of the compiler are beside the output, and go with it.
    with subprocess.Popen(
        whole,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(output.parent)},
        start_new_session=True,
    ) as process:
        try:
            printed = process.communicate(timeout=MOST_SECONDS)[1]
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise OSError(
                    f"the C++ compiler {command[0]} did not end within "
                    f"{MOST_SECONDS} seconds. Set CXX to another compiler, or run "
                    "python -m tfpipe.native when the host is less busy"
                ) from None
            raise
    if "No space left on device" in printed:
        full = errno.ENOSPC
        raise OSError(full, os.strerror(full), str(output.parent.parent))
    if process.returncode:
        raise CompilerError(f"{shlex.join(whole)} failed:\n{printed}")


def _version(compiler: list[str]) -> str:
    try:
        done = subprocess.run(
            [*compiler, "--version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise OSError(f"no C++ compiler: {shlex.join(compiler)}: {error}") from error
    return done.stdout.splitlines()[0] if done.stdout else shlex.join(compiler)
