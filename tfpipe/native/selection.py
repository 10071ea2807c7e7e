"""Selects the op for crops, and builds the native op where the op is missing.

In: "auto", "native" or "stock". Out: the op that runs. The first pipeline on a host
compiles the native op, so that nobody needs to know a command to get the fastest path.
"""

import contextlib
import fcntl
import functools
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Literal, get_args

import tensorflow as tf

from tfpipe import errors
from tfpipe.native import build, op

CropOp = Literal["auto", "native", "stock"]

# "0" in the environment leaves a missing op as it is.
BUILDS = "TFPIPE_NATIVE_BUILD"


def resolve(crop_op: CropOp) -> Literal["native", "stock"]:
    """Returns the op for crops; "auto" is the native op wherever the op can be had.

    A missing op is compiled in about ten seconds; a line on stderr says so. The
    processes of a host compile the op once. If the compiler fails, or
    $TFPIPE_NATIVE_BUILD is 0, the stock ops make the crops, and a line on stderr says
    why, once for each process and reason.

    Raises:
        ValueError: If `crop_op` is not known.
        RuntimeError: If `crop_op` is "native" and the native op cannot be used.
    """
    errors.require_choice("", "crop_op", crop_op, get_args(CropOp))
    if crop_op == "stock":
        return "stock"
    module, reason = op.load()
    if module is None and os.environ.get(BUILDS) != "0":
        try:
            reason = _build_once(op.library())
        except OSError as error:
            reason = str(error)
    if not reason:
        return "native"
    if crop_op == "native":
        raise RuntimeError(
            f'crop_op="native" needs the op to be built, but {reason}. '
            "Run: python -m tfpipe.native"
        )
    errors.say_once(
        f"tfpipe: stock ops decode and crop, since {reason}. The native op takes less "
        "than half of the CPU time for 224 pixels: python -m tfpipe.native"
    )
    return "stock"


@functools.cache  # a failed build is not tried again for the next crop
def _build_once(path: pathlib.Path) -> str:
    """Builds the op; returns why the op cannot be used even so, or an empty text."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path):
            if not build.is_sound(path):
                print(
                    f"tfpipe: compiling the native op for TensorFlow {tf.__version__} "
                    f"into {path.parent}, once on this host: about ten seconds",
                    file=sys.stderr,
                    flush=True,
                )
                build.build_op(force=False)
    except build.CompilerError:  # the command shows the long message
        return "the C++ compiler failed"
    except OSError as error:
        if error.errno is None:  # a message of ours
            return str(error)
        return f"{path.parent} cannot be used: {error.strerror}"
    return op.load()[1]


@contextlib.contextmanager
def _alone(path: pathlib.Path) -> Iterator[None]:
    """Keeps other processes of the host from building the same library."""
    with open(path.with_suffix(".lock"), "w") as file:
        # Some network file systems have no locks: processes may then build at once.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
