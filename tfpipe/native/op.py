"""Loads the native crop op, or says why it cannot be used.

In: the op's library, where `libraries` says it is, and the installed TensorFlow. Out:
the loaded op, or the reason why it cannot be used. Nothing is compiled here.
"""

import functools
import pathlib
from typing import Any

import tensorflow as tf

from tfpipe.native import libraries


def load() -> tuple[Any, str]:
    """Returns the op's module and "", or None and the reason why there is no module.

    The module has `tfpipe_crop`, `tfpipe_random_window`, `tfpipe_uniform`,
    `tfpipe_entry_points` and the ops of `record_op`. Nothing is raised: a library that
    is damaged or does not load is a reason as well.
    """
    try:
        return _load(library()), ""
    except OSError as error:
        return None, str(error)


def module() -> Any:
    """Returns the op's module.

    Raises:
        RuntimeError: If the native op cannot be used; says why.
    """
    found, reason = load()
    if found is None:
        raise RuntimeError(
            f"This needs the native op, but {reason}. Run: python -m tfpipe.native"
        )
    return found


def library() -> pathlib.Path:
    """Returns the path of the op's library, whether it is built already or not.

    Raises:
        OSError: If the op cannot be built on this machine; says why.
    """
    flags = (flag for flag in tf.sysconfig.get_compile_flags() if flag[:2] != "-I")
    digest = libraries.digest(libraries.SOURCES, [tf.__version__, *flags])
    return libraries.folder() / f"crop-{tf.__version__}-{digest}.so"


@functools.cache  # errors are not cached: the library may be built later
def _load(path: pathlib.Path) -> Any:
    libraries.require_sound(path)
    try:
        return tf.load_op_library(str(path))
    except (tf.errors.OpError, RuntimeError) as error:
        raise OSError(f"{path} does not load: {error}") from error
