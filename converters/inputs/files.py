"""Small files of the input, read whole: class lists, label lists, annotations.

In: a path. Out: its bytes or its text, or an error that names the path. Only a regular
file is read, so that a pipe without a writer keeps no conversion waiting, and only up
to a size, so that a file that is something else does not fill the memory.
"""

import os
import pathlib
import stat

# Far above what a list of a million classes or images takes.
MAX_LIST_BYTES = 64 << 20


def open_file(path: str | pathlib.Path, *, pipe: bool = False) -> int:
    """A descriptor to read a regular file by; the caller closes it.

    Args:
        path: The file.
        pipe: Whether it may be a pipe, whose writer is then waited for.

    Raises:
        ValueError: If it is a folder, a pipe or the like.
        OSError: If it cannot be opened.
    """
    # Without waiting: a pipe that nobody writes to would be waited for.
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
    """The content of a regular file.

    Args:
        path: The file.
        max_bytes: Most bytes that it may have.
        pipe: Whether it may be a pipe.

    Raises:
        ValueError: If it is no regular file, or larger than `max_bytes`.
        OSError: If it cannot be read.
    """
    with open(open_file(path, pipe=pipe), "rb") as file:
        num_bytes = os.fstat(file.fileno()).st_size
        if num_bytes > max_bytes:
            raise ValueError(
                f"{path} must have at most {max_bytes:,} bytes, got {num_bytes:,}."
            )
        try:
            return file.read(max_bytes)
        except OSError as error:
            raise naming(error, path) from error


def read_text(path: pathlib.Path, *, errors: str = "strict", pipe: bool = False) -> str:
    """The text of a UTF-8 file, without the byte order mark that some editors write.

    Args:
        path: The file.
        errors: What to do with bytes that are no UTF-8, as `bytes.decode` has it.
        pipe: Whether it may be a pipe, as for a file that a user names.

    Raises:
        ValueError: If it is no regular file, too large, or no UTF-8.
        OSError: If it cannot be read.
    """
    return decode_text(read_bytes(path, pipe=pipe), str(path), errors=errors)


def decode_text(data: bytes, where: str, *, errors: str = "strict") -> str:
    """The text of UTF-8 bytes, without their byte order mark.

    Args:
        data: The bytes.
        where: What to call them in an error.
        errors: As `bytes.decode` has it.

    Raises:
        ValueError: If they are no UTF-8.
    """
    try:
        return data.decode("utf-8-sig", errors=errors)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where} must be text in UTF-8, got the byte 0x{data[error.start]:02x} at "
            f"byte {error.start:,}. Save it as UTF-8."
        ) from error


def naming(error: OSError, path: str | pathlib.Path) -> OSError:
    """The same error with the name of its file, which a read does not give."""
    return type(error)(error.errno, error.strerror, str(path))
