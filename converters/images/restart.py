"""Rewrites a JPEG so that a part of it decodes sooner, to the same pixels.

In: the bytes of a JPEG. Out: the same coefficients as one sequential scan, with a
restart marker after each row of blocks and Huffman tables fitted to the image. The
restart markers let the native crop op find the rows of its crop box without decoding
the rows above. For other readers the result is an ordinary JPEG with the same metadata.
The C library that `python -m tfpipe.native` builds does the work; it keeps no state
between calls, so that threads may share it.
"""

import ctypes
import functools
from typing import NamedTuple

from tfpipe import native


class Rewritten(NamedTuple):
    """A JPEG after the attempt to rewrite it.

    Attributes:
        encoded: The rewritten JPEG, or the same bytes if it was not rewritten.
        left: Why it was not rewritten: "damaged" (libjpeg fails or warns),
            "arithmetic", "precision" (not 8 bits), "too_many_pixels", "late_markers"
            (metadata after the first scan), "incomplete" (progressive, without the last
            bits), "unwritable" (cannot be one scan). Empty if it was rewritten.
    """

    encoded: bytes
    left: str


def require() -> None:
    """Checks that JPEGs can be rewritten on this machine.

    Raises:
        ValueError: If the library is not built or does not load; the message says what
            to do.
    """
    _load()


def rewrite(encoded: bytes) -> Rewritten:
    """Rewrites a JPEG, unless it is of a kind that must stay as it is.

    Raises:
        ValueError: If the library is not built or does not load.
        MemoryError: If its coefficients do not fit into memory.
    """
    library = _library()
    made, size = ctypes.c_void_p(), ctypes.c_size_t()
    left = library.tfpipe_rewrite(
        encoded, len(encoded), ctypes.byref(made), ctypes.byref(size)
    )
    if left == b"no_memory":
        raise MemoryError(f"a JPEG of {len(encoded)} bytes does not fit into memory")
    if left is not None:
        return Rewritten(encoded, left.decode())
    try:
        return Rewritten(ctypes.string_at(made, size.value), "")
    finally:
        library.tfpipe_free(made)


@functools.cache
def _library() -> ctypes.CDLL:
    return _load()


def _load() -> ctypes.CDLL:
    try:
        path = native.rewrite_library()
        native.require_sound(path)
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ValueError(
            f"--restart_rows needs a native library, but {error}. "
            "Run: python -m tfpipe.native"
        ) from error
    library.tfpipe_rewrite.restype = ctypes.c_char_p
    library.tfpipe_rewrite.argtypes = (
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.POINTER(ctypes.c_size_t),
    )
    library.tfpipe_free.restype = None
    library.tfpipe_free.argtypes = (ctypes.c_void_p,)
    return library
