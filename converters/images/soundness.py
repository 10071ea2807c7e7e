"""Checks that a JPEG decodes, and that its codes have no damage.

In: the bytes of a JPEG whose header was read. Out: nothing, or the fault. libjpeg
judges where `python -m tfpipe.native` has built its library: TensorFlow decodes with
libjpeg too. Without the library Pillow judges, and passes over damage that decodes.
"""

from converters.images import jpeg_header
from tfpipe.native import codes, libraries

_SHOULD = "the codes of a JPEG must be sound up to its end marker"


def is_sound(data: bytes) -> bool:
    """Whether libjpeg finds no fault up to the end marker of a JPEG.

    False where the library is not built: other checks must judge.
    """
    return libraries.is_built() and codes.check(data).word == "sound"


def check_jpeg(data: bytes, *, damage: bool) -> None:
    """Checks that a JPEG decodes. No pixel is computed where the library is built.

    Args:
        data: The JPEG.
        damage: Whether damage that decodes to wrong pixels is a fault too. Without the
            library such damage is not seen.

    Raises:
        BadImageError: "corrupt" if it decodes to wrong pixels; "truncated" or
            "undecodable" if it does not decode.
        MemoryError: If there is not enough memory.
    """
    found = codes.Verdict("failed", "")
    if libraries.is_built():
        found = codes.check(data)
    if found.word == "corrupt" and damage:
        raise jpeg_header.BadImageError(
            "corrupt", f"{_SHOULD}, libjpeg says: {found.message}"
        )
    if found.word != "failed":
        return
    from converters.images import pillow

    pillow.check_jpeg(data)
    if found.message:  # Pillow takes the end of the data for the end of the image
        raise jpeg_header.BadImageError(
            "undecodable", f"the image must decode, libjpeg says: {found.message}"
        )
