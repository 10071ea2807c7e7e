"""The native crop op: decode, crop, resize, mirror and normalize in one C++ kernel.

In: nothing but what is installed. Out: the op, if it has been built for the TensorFlow,
the libjpeg and the machine that are here, otherwise the reason why not; and where the
library is that rewrites JPEGs for it, which needs no TensorFlow.

  python -m tfpipe.native

builds both; nothing is ever compiled without being asked. The libraries are kept in
`folder()`, by names that hold what they were made of, so that several environments and
releases share a folder. They are not in the package, which may be read-only. A JSON
file beside each says how long it is and its digest: a library that was cut off kills
the process that loads it, so nothing is loaded before it has been compared with them.
"""

import functools
import hashlib
import json
import os
import pathlib
import platform
import sys
from collections.abc import Iterable
from typing import Any, Literal

import PIL

# TensorFlow is imported where it is needed: the converters do without it.

CropOp = Literal["auto", "native", "stock"]

_HERE = pathlib.Path(__file__).parent / "src"

_NAMES = ("crop.cc", "crop_core.h", "decoder.h", "draw.h", "huffman.h", "pool.h")
SOURCES = tuple(_HERE / name for name in _NAMES)
REWRITE_SOURCES = tuple(
    _HERE / name for name in ("rewrite.cc", "rewrite.h", "decoder.h")
)

# Without contraction a product and a sum are rounded as TensorFlow rounds them.
FLAGS = ("-O3", "-shared", "-fPIC", "-ffp-contract=off")


def resolve(crop_op: CropOp) -> Literal["native", "stock"]:
    """Which op makes crops. "auto" is the native one if it is built.

    If it is not, a line on stderr says so, once a process and reason.

    Raises:
        ValueError: If `crop_op` is not known.
        RuntimeError: If it is "native" and that is not to be had.
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
    """The module of the op, which has `tfpipe_crop`, or None; and why it is None.

    Raises nothing: a library that is damaged or does not load is a reason as well.
    """
    try:
        return _load(library()), ""
    except OSError as error:
        return None, str(error)


def library() -> pathlib.Path:
    """Where the library of the op is, or will be when it is built.

    Raises:
        OSError: If it cannot be built here at all; says why.
    """
    import tensorflow as tf

    flags = (flag for flag in tf.sysconfig.get_compile_flags() if flag[:2] != "-I")
    digest = _digest(SOURCES, [tf.__version__, *flags])
    return folder() / f"crop-{tf.__version__}-{digest}.so"


def rewrite_library() -> pathlib.Path:
    """Where the library that rewrites JPEGs is, or will be when it is built.

    Its one function has C types only; `rewrite.h` describes it, `converters.images.restart`
    calls it.

    Raises:
        OSError: If it cannot be built here at all; says why.
    """
    return folder() / f"rewrite-{_digest(REWRITE_SOURCES, [])}.so"


def require_sound(path: pathlib.Path) -> None:
    """Checks that a library is there, with the bytes that it was built with.

    Raises:
        OSError: If it is not; says why.
    """
    if not path.exists():
        raise OSError(f"{path.name} is not built")
    known, named = description(path), path.with_suffix(".json").name
    for name, value in describe(path.read_bytes()).items():
        if name not in known:
            raise OSError(f"{path} cannot be checked: {named} must say its {name}")
        if known[name] != value:
            raise OSError(
                f"{path} is damaged: its {name} must be {known[name]}, as {named} "
                f"says, got {value}"
            )


def describe(library: bytes) -> dict[str, Any]:
    """What a library is compared with before it is loaded."""
    digest = hashlib.sha256(library).hexdigest()
    return {"num_bytes": len(library), "sha256": digest}


def description(path: pathlib.Path) -> dict[str, Any]:
    """What the JSON file beside a library says; empty if there is none."""
    try:
        content = json.loads(path.with_suffix(".json").read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _digest(sources: Iterable[pathlib.Path], others: Iterable[str]) -> str:
    """Of all that a library is made of."""
    made_of = [platform.machine(), *others, *FLAGS, str(libjpeg())]
    made_of += [path.read_text() for path in sources]
    return hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]


def folder() -> pathlib.Path:
    """$TFPIPE_NATIVE_DIR, otherwise `tfpipe` in the user's folder for caches."""
    given = os.environ.get("TFPIPE_NATIVE_DIR")
    if given:
        return pathlib.Path(given).absolute()
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(caches) / "tfpipe"


def libjpeg() -> pathlib.Path:
    """The libjpeg-turbo in Pillow's wheel, of the ABI of TensorFlow's headers.

    Raises:
        OSError: If there is none.
    """
    if sys.platform != "linux":
        raise OSError(f"the native op is for Linux, this is {sys.platform}")
    wheel = pathlib.Path(PIL.__file__).resolve().parent.parent / "pillow.libs"
    found = sorted(wheel.glob("libjpeg-*.so.62*"))
    if not found:
        raise OSError(f"no libjpeg*.so.62 in {wheel}; Pillow's wheel from PyPI has it")
    return found[0]


@functools.cache  # not of errors: the library may be built later
def _load(path: pathlib.Path) -> Any:
    import tensorflow as tf

    require_sound(path)
    try:
        return tf.load_op_library(str(path))
    except (tf.errors.OpError, RuntimeError) as error:
        raise OSError(f"{path} does not load: {error}") from error
