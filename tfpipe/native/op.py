"""Loads the native crop op, or says why TensorFlow's own ops must do its work.

In: the op's library, where `libraries` says it is, and the installed TensorFlow. Out:
the loaded op, or the reason why it cannot be used. Nothing is compiled here.
"""

import functools
import pathlib
import sys
from typing import Any, Literal

import tensorflow as tf

from tfpipe.native import libraries

CropOp = Literal["auto", "native", "stock"]


def resolve(crop_op: CropOp) -> Literal["native", "stock"]:
    """Returns which op makes crops; "auto" is the native op if it is built.

    If it is not built, a line on stderr says so, once for each process and reason.

    Raises:
        ValueError: If `crop_op` is not known.
        RuntimeError: If `crop_op` is "native" and the native op cannot be used.
    """
    if crop_op not in ("auto", "native", "stock"):
        raise ValueError(f"crop_op must be auto, native or stock, got {crop_op!r}.")
    if crop_op == "stock":
        return "stock"
    module, reason = load()
    if module is not None:
        return "native"
    if crop_op == "native":
        raise RuntimeError(
            f'crop_op="native" needs the op to be built, but {reason}. '
            "Run: python -m tfpipe.native"
        )
    _say_stock(reason)
    return "stock"


@functools.cache
def _say_stock(reason: str) -> None:
    print(
        f"tfpipe: stock ops decode and crop, since {reason}. The native op takes "
        "three tenths less CPU time for 224 pixels: python -m tfpipe.native",
        file=sys.stderr,
    )


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
    resolve("native")
    return load()[0]


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
