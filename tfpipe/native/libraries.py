"""Paths of the native libraries, and checks that their bytes are those built.

In: the C++ sources, Pillow's libjpeg, the folder for caches. Out: paths, digests and
checks. Imports no TensorFlow: the converters use one of the libraries.

`python -m tfpipe.native` builds two libraries, the op and the one that rewrites and
turns JPEGs, and keeps them in `folder()`: the package itself may be read-only. A
library's name holds a digest of all that it is made of, so that several environments
and releases share a folder. A JSON file beside each library holds its size and digest.
Both are compared before the library is loaded: a library that was cut off kills the
process that loads it.
"""

import functools
import hashlib
import json
import os
import pathlib
import platform
import sys
from collections.abc import Iterable
from typing import Any

import PIL

_HERE = pathlib.Path(__file__).parent / "src"

_NAMES = (
    *("crop.cc", "record_ops.cc", "ops.h", "crop_core.h", "mcu_rows.h", "resize.h"),
    *("decoder.h", "huffman.h", "skip.h", "codes.h", "idct.h", "platform.h"),
    *("draw.h", "entry_points.h", "entry_file.h", "pool.h"),
    *("record_file.h", "example.h", "crc32c.h"),
)
SOURCES = tuple(_HERE / name for name in _NAMES)
_REWRITE_NAMES = (
    *("rewrite.cc", "turn.cc", "vary.cc", "entry_points.cc"),
    *("rewrite.h", "transcoder.h", "scan.h", "tokens.h", "decoder.h"),
    *("entry_points.h", "huffman.h", "codes.h", "skip.h", "platform.h"),
)
REWRITE_SOURCES = tuple(_HERE / name for name in _REWRITE_NAMES)

# -ffp-contract=off: a product and a sum are rounded one by one, as TensorFlow does.
FLAGS = ("-O3", "-shared", "-fPIC", "-ffp-contract=off")


def rewrite_library() -> pathlib.Path:
    """Returns the path of the library that rewrites and turns JPEGs, built or not.

    `rewrite.h` describes its functions, which have C types only;
    `converters.images.lossless` calls them.

    Raises:
        OSError: If it cannot be built on this machine; says why.
    """
    return folder() / f"rewrite-{digest(REWRITE_SOURCES, [])}.so"


def require_sound(path: pathlib.Path) -> None:
    """Checks that a library exists and has the bytes that it was built with.

    Raises:
        OSError: If the library is missing, changed or cannot be checked; says why.
    """
    try:
        _require_sound(path)
    except OSError:
        # Another process may have replaced one of the two files, and then the other.
        _require_sound(path)


def _require_sound(path: pathlib.Path) -> None:
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
    """Returns the size and digest that a library must have, for its JSON file."""
    sha256 = hashlib.sha256(library).hexdigest()
    return {"num_bytes": len(library), "sha256": sha256}


def description(path: pathlib.Path) -> dict[str, Any]:
    """Returns the content of the JSON file beside a library; empty if unreadable."""
    try:
        content = json.loads(path.with_suffix(".json").read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def digest(sources: Iterable[pathlib.Path], others: Iterable[str]) -> str:
    """Returns 16 hexadecimal digits that change with anything a library is made of.

    Args:
        sources: The C++ files.
        others: Further texts: versions and compiler flags.

    Raises:
        OSError: If there is no libjpeg to link with; says why.
    """
    made_of = (platform.machine(), *others, *FLAGS, str(libjpeg()))
    return _digest(tuple(sources), made_of)


@functools.cache  # each build of a pipeline asks several times, and takes 1 ms to read
def _digest(sources: tuple[pathlib.Path, ...], others: tuple[str, ...]) -> str:
    made_of = [*others, *(path.read_text() for path in sources)]
    return hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]


def folder() -> pathlib.Path:
    """Returns $TFPIPE_NATIVE_DIR, or else `tfpipe` in the user's folder for caches."""
    given = os.environ.get("TFPIPE_NATIVE_DIR")
    if given:
        return pathlib.Path(given).absolute()
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(caches) / "tfpipe"


def libjpeg() -> pathlib.Path:
    """Returns the libjpeg-turbo in Pillow's wheel; TensorFlow's headers fit its ABI.

    Raises:
        OSError: If there is none, or this is not Linux.
    """
    if sys.platform != "linux":
        raise OSError(f"the native op is for Linux, this is {sys.platform}")
    return _libjpeg(PIL.__file__)


@functools.cache  # an error is not cached
def _libjpeg(pillow: str) -> pathlib.Path:
    wheel = pathlib.Path(pillow).resolve().parent.parent / "pillow.libs"
    found = sorted(wheel.glob("libjpeg-*.so.62*"))
    if not found:
        raise OSError(f"no libjpeg*.so.62 in {wheel}; Pillow's wheel from PyPI has it")
    return found[0]
