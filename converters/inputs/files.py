"""Reads small files of the input as a whole: class lists, label lists, annotations.

In: a path. Out: its bytes or its text, or an error with the path. Only regular
files are read, because a pipe without a writer would block the conversion, and only up
to a limit, because a wrong file could fill the memory.
"""

import itertools
import os
import pathlib
import stat
from collections.abc import Sequence

from tfpipe.errors import require_local_path
from tfpipe.location.location import Location

# Far above the size of a list of a million classes or images.
MAX_LIST_BYTES = 64 << 20


def path_of(name: str, value: str) -> pathlib.Path:
    """Returns the path in the value of a flag, with ~ replaced by a home folder."""
    require_local_path("", name, value)
    if not value:
        raise ValueError(f"{name} must be a path, got nothing. Write . for here.")
    return Location.from_user(name, value, expand_user=True).path


def open_file(path: str | pathlib.Path, *, pipe: bool = False) -> int:
    """Opens a regular file and returns its descriptor, which the caller closes.

    With `pipe` the file may be a pipe too; opening then waits for its writer.
    """
    # O_NONBLOCK: opening a pipe without a writer would wait forever.
    descriptor = os.open(path, os.O_RDONLY | (0 if pipe else os.O_NONBLOCK))
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or (pipe and stat.S_ISFIFO(mode))):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise ValueError(f"{path} must be a file, got {kind}.")
    return descriptor


def read_bytes(
    path: pathlib.Path, *, max_bytes: int = MAX_LIST_BYTES, pipe: bool = False
) -> bytes:
    """Reads a regular file, or with `pipe` a pipe."""
    with open(open_file(path, pipe=pipe), "rb") as file:
        num_bytes = os.fstat(file.fileno()).st_size
        if num_bytes > max_bytes:
            raise ValueError(
                f"{path} must have at most {max_bytes:,} bytes, got {num_bytes:,}."
            )
        try:
            # A read takes memory for all that it may return; a pipe has no size.
            return file.read(num_bytes or max_bytes)
        except OSError as error:
            raise with_path(error, path) from error


def read_text(path: pathlib.Path, *, errors: str = "strict", pipe: bool = False) -> str:
    """Reads a UTF-8 file, or with `pipe` a pipe, as a shell passes for a flag.

    `errors` is as for `decode_text`.
    """
    return decode_text(read_bytes(path, pipe=pipe), str(path), errors=errors)


def decode_text(data: bytes, where: str, *, errors: str = "strict") -> str:
    """Decodes UTF-8 bytes without their byte order mark, like `bytes.decode`.

    Errors call the bytes `where`.
    """
    try:
        return data.decode("utf-8-sig", errors=errors)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where} must be text in UTF-8, got the byte 0x{data[error.start]:02x} at "
            f"byte {error.start:,}. Save it as UTF-8."
        ) from error


def with_path(error: OSError, path: str | pathlib.Path) -> OSError:
    """Returns the error with the name of its file, as a read error lacks the name."""
    return type(error)(error.errno, error.strerror, str(path))


def paths_below_one(files: Sequence[str]) -> list[str]:
    """Returns paths and URLs relative to the folder of all of them."""
    parts = [file.split("/") for file in files]
    levels = zip(*(path[:-1] for path in parts), strict=False)
    shared = itertools.takewhile(lambda names: len({*names}) == 1, levels)
    depth = len(list(shared))
    return ["/".join(path[depth:]) for path in parts]
