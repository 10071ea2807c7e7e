"""Loads the library that rewrites JPEGs and finds their entry points.

In: the name of what needs the library. Out: the library, with the types of its
functions. Imports no TensorFlow.
"""

import ctypes

from tfpipe.native import libraries, requirements


def load(needing: str) -> ctypes.CDLL:
    """Loads the library.

    Args:
        needing: What needs it, and the verb, such as "Rewriting a JPEG needs".

    Raises:
        ValueError: If it is not built or does not load; says what to do.
    """
    try:
        path = libraries.rewrite_library()
        libraries.require_sound(path)
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ValueError(
            f"{needing} a native library, but {error}. {requirements.remedy()}"
        ) from error
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
    library.tfpipe_free.restype = None
    library.tfpipe_free.argtypes = (ctypes.c_void_p,)
    return library
