"""A JPEG written again so that a part of it decodes sooner, to the same pixels.

In: the bytes of a JPEG. Out: the same coefficients as one sequential scan, with a
restart marker after each row of blocks and Huffman tables fitted to the image, in which
the native crop op finds the rows of its crop box without decoding those above. To other
readers it is an ordinary JPEG with the same metadata. Done by the C library that
`python -m tfpipe.native` builds; it keeps nothing between calls, so threads may share
it.
"""

import ctypes
import functools
from typing import NamedTuple

from tfpipe.native import libraries


class Rewritten(NamedTuple):
    """A JPEG after the attempt to rewrite it.

    Attributes:
        encoded: Other bytes, or the same if it was left as it is.
        left: Why it was left: "damaged" (libjpeg fails or warns), "arithmetic",
            "precision" (not 8 bits), "too_many_pixels", "late_markers" (metadata after
            the first scan), "incomplete" (progressive, without the last bits),
            "unwritable" (not as one scan); empty if it was not.
    """

    encoded: bytes
    left: str


def require() -> None:
    """Checks that JPEGs can be rewritten here.

    Raises:
        ValueError: If the library is not built or does not load; says what to do.
    """
    _load()


def rewrite(encoded: bytes) -> Rewritten:
    """Writes a JPEG again, unless it is one that must stay as it is.

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
        path = libraries.rewrite_library()
        libraries.require_sound(path)
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
