"""Files that cannot be opened or read: a library that gives a process an errno.

In: a part of a path and an errno. Out: a context in which opening or reading files of
such a path fails, whoever opens or reads: Python, TensorFlow, DuckDB or the native op.
The process must have been started with `environment`.
"""

import contextlib
import ctypes
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator

_SOURCE = pathlib.Path(__file__).with_suffix(".cc")


def environment() -> dict[str, str]:
    """Returns the variables with which a process can use `failing`."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="failing_files"))
    library = folder / "failing_files.so"
    subprocess.run(
        ["c++", "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(library), "-ldl"],
        check=True,
    )
    return {"LD_PRELOAD": str(library)}


@contextlib.contextmanager
def failing(part: str, error: int, *, at: str) -> Iterator[None]:
    """Lets files fail within the block.

    Args:
        part: Files fail whose path has this part.
        error: The errno.
        at: "open" or "read".
    """
    fail = ctypes.CDLL(None).fail_files
    fail(os.fsencode(part), error, at == "open")
    try:
        yield
    finally:
        fail(b"", 0, 0)
