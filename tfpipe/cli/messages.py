"""Messages of TensorFlow and absl that a command hides, on all TensorFlow releases.

In: --verbosity and TF_CPP_MIN_LOG_LEVEL. Out: an stderr without start-up messages.

| TensorFlow    | start-up messages at TF_CPP_MIN_LOG_LEVEL=3             |
|---------------|---------------------------------------------------------|
| 2.16, 2.17    | none                                                    |
| 2.18 and more | some, written before TensorFlow reads the variable      |

The second row needs a filter. A process `grep` reads stderr while TensorFlow is
imported, and prints all other lines, also those of an import that ends the process.
"""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags, logging

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_NOTHING = "3"  # the level that hides all but fatal errors
_MOST_SECONDS = 1.0  # for the last lines of an import

# Notes and warnings of absl in C++, and errors about CUDA where there is no GPU.
NOTICES = (
    r"^WARNING: All log messages before absl::InitializeLog\(\) is called"
    r"|^[IW][0-9]{4} [0-9:.]+ +[0-9]+ [a-z0-9_]+\.cc:[0-9]+\]"
    r"|^E[0-9]{4} .*(Unable to register cu|failed call to cuInit)"
)


def hide() -> None:
    """Hides messages of TensorFlow and absl below --verbosity.

    TensorFlow reads its variable during its import. A level of the user is kept.
    """
    verbosity: Any = flags.FLAGS["verbosity"]
    if verbosity.present:
        # absl: 1 debug, 0 info, -1 warning, -2 error. TensorFlow: 0 info to 3 nothing.
        os.environ[_LEVEL] = str(min(max(-verbosity.value, 0), 3))
    else:
        logging.set_verbosity(logging.WARNING)
    is_hidden = os.environ.setdefault(_LEVEL, _NOTHING) == _NOTHING
    if is_hidden and "tensorflow" not in sys.modules:
        sys.meta_path[:] = [_FINDER, *(f for f in sys.meta_path if f is not _FINDER)]


class _Finder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow as Python does, and filters stderr while it is imported."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = _without_notices()(loader.exec_module)
        return spec


_FINDER = _Finder()


@contextlib.contextmanager
def _without_notices() -> Iterator[None]:
    """Keeps lines like `NOTICES` from stderr, of C++ too, during the block."""
    grep = shutil.which("grep")
    try:
        stderr = os.dup(2)
    except OSError:  # a closed stderr
        grep = None
    if grep is None:
        yield
        return
    filtering = subprocess.Popen(
        [grep, "--line-buffered", "-vE", NOTICES],
        stdin=subprocess.PIPE,
        stdout=stderr,
        start_new_session=True,  # Ctrl-C does not end it
    )
    assert filtering.stdin is not None
    os.dup2(filtering.stdin.fileno(), 2)
    filtering.stdin.close()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        # A process that another thread started meanwhile may hold the pipe for long.
        with contextlib.suppress(subprocess.TimeoutExpired):
            filtering.wait(_MOST_SECONDS)
