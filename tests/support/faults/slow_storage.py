"""Storage that is as slow as a test wants: a library that delays a process's reads.

In: a folder and a rate. Out: environment variables, with which a process reads the
files of the folder no faster than that. They may be set for one rank alone.
"""

import functools
import os
import pathlib
import subprocess
import tempfile

_SOURCE = pathlib.Path(__file__).with_suffix(".cc")


def environment(
    folder: str | os.PathLike[str], *, bytes_per_second: float
) -> dict[str, str]:
    """Returns the variables that slow down the reads of one process.

    Args:
        folder: The files below this folder are slow, for read and pread; not for mmap.
        bytes_per_second: Rate that all threads of the process share, > 0.
    """
    return {
        "LD_PRELOAD": str(_library()),
        "SLOW_DIR": os.path.realpath(folder) + os.sep,
        "SLOW_BYTES_PER_SECOND": f"{bytes_per_second:f}",
    }


@functools.cache
def _library() -> pathlib.Path:
    """Compiles the library, once a process of tests."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="slow_storage"))
    library = folder / "slow_storage.so"
    subprocess.run(
        ["c++", "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(library), "-ldl"],
        check=True,
    )
    return library
