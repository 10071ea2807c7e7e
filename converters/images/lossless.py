"""Rewrites or turns a JPEG by its coefficients: no pixel is decoded, nothing is lost.

In: the bytes of a JPEG. Out: another JPEG, with one sequential scan.

`rewrite` gives the same coefficients, with a restart marker after every row of blocks
and Huffman tables fitted to the image. The restart markers let the native crop op find
the rows of its crop box without decoding the rows above. For other readers the result
is an ordinary JPEG with the same metadata.

`turn` moves the blocks, and changes signs in them. A side can only be mirrored if it
ends with a whole block.

The C library of `python -m tfpipe.native` does the work. The library keeps no state
between calls, so threads may share the library.
"""

from typing import NamedTuple

from converters.images.policy import Policy
from tfpipe.native import libraries


class Recoded(NamedTuple):
    """A JPEG after the attempt to rewrite or turn it.

    Attributes:
        encoded: The new JPEG, or the same bytes if there is no new JPEG.
        left: Why there is none: "damaged" (libjpeg fails or warns), "arithmetic",
            "precision" (not 8 bits), "too_many_pixels", "incomplete" (progressive,
            without the last bits), "unwritable" (cannot be a single scan); from
            `rewrite` also "late_markers" (metadata after the first scan); from `turn`
            also "edge" (a side to be mirrored ends within a block) and "components"
            (neither 1 nor 3). Empty if there is a new JPEG.
    """

    encoded: bytes
    left: str


def require(policy: Policy) -> None:
    """Checks whether the machine can do all that a policy asks for.

    Raises:
        ValueError: If the library is needed, and is not built or does not load; the
            message names the remedy.
    """
    flags = {
        "--restart_rows": policy.restart_rows,
        "--lossless_rotation": policy.lossless_rotation,
        "--entry_points": policy.entry_points,
        f"--corrupt={policy.corrupt}": policy.corrupt != "ignore",
    }
    for flag, is_set in flags.items():
        if is_set:
            libraries.load_rewrite_library(f"{flag} needs")


def rewrite(encoded: bytes) -> Recoded:
    """Rewrites a JPEG, unless a JPEG of its kind must stay as it is.

    Raises:
        ValueError: If the library is not built or does not load.
        MemoryError: If its coefficients do not fit into memory.
    """
    return _recode(encoded, "rewrite")


def turn(encoded: bytes, orientation: int) -> Recoded:
    """Turns and mirrors a JPEG to be upright, unless something would be lost.

    The result has no metadata except the colors and the density.

    Args:
        encoded: A JPEG of 1 or 3 components.
        orientation: EXIF orientation of its pixels, 1 to 8.

    Raises:
        ValueError: If the orientation is out of range, or the library is not built or
            does not load.
        MemoryError: If its coefficients do not fit into memory twice.
    """
    if not 1 <= orientation <= 8:
        raise ValueError(f"orientation must be 1 to 8, got {orientation}.")
    return _recode(encoded, "turn", orientation)


def vary(encoded: bytes, *, seed: int, mirror: bool) -> Recoded:
    """Writes the same coefficients of a JPEG with other Huffman codes.

    `replicas.vary` explains why.

    Raises:
        ValueError: If the seed is out of range, or the library is not built or does not
            load.
        MemoryError: If its coefficients do not fit into memory.
    """
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed must be 0 to 2 ** 64 - 1, got {seed}.")
    return _recode(encoded, "vary", seed, int(mirror))


def _recode(encoded: bytes, name: str, *values: int) -> Recoded:
    needing = "Rewriting a JPEG needs"
    result, left = libraries.made_of(
        encoded, f"tfpipe_{name}", *values, needing=needing
    )
    return Recoded(encoded if left else result, left)
