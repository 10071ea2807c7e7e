"""Finds the format of an image from its first bytes, and whether Pillow can read it.

In: the first bytes of a file. Out: Pillow's name of the format; and, if the installed
Pillow cannot read that format, the command that installs what is missing. Formats of
plug-ins are read where the plug-in is installed: it is imported when it is needed.
"""

import importlib
from collections.abc import Mapping

# Formats other than JPEG: Pillow's name, the offset of the magic bytes, these bytes.
# Pillow may try no other format, because for some formats it runs other programs.
_MAGIC = (
    ("PNG", 0, b"\x89PNG\r\n\x1a\n"),
    ("GIF", 0, b"GIF8"),
    ("WEBP", 8, b"WEBPVP8"),
    ("TIFF", 0, b"II*\0"),
    ("TIFF", 0, b"MM\0*"),
    ("JPEG2000", 0, b"\0\0\0\x0cjP  \r\n\x87\n"),
    ("JPEG2000", 0, b"\xff\x4f\xff\x51"),
)
# Formats in ISO base media files, by their brand. MP4 and QuickTime videos begin in the
# same way, with other brands.
_BRANDS = {
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx"), "HEIF"),
}
_MAX_BRANDS = 16

# Modules that add a format to Pillow by their `register_heif_opener`.
_HEIF_PLUGINS = ("pillow_heif", "pi_heif")
# What to do where Pillow cannot read a format.
_REMEDIES: Mapping[str, str] = {
    "HEIF": "pip install pillow-heif",
    "AVIF": "pip install 'pillow>=11.3'",
}


def sniff(data: bytes) -> str | None:
    """Returns Pillow's name of the format that the first bytes show; None if unknown.

    JPEG is not among the formats.
    """
    for name, position, magic in _MAGIC:
        if data.startswith(magic, position):
            return name
    # The two letters alone prove little: the size of the BMP header, a 32-bit number
    # at byte 14, must be below 256 too.
    if data.startswith(b"BM") and data[15:18] == b"\0\0\0":
        return "BMP"
    return _brand(data) if data.startswith(b"ftyp", 4) else None


def _brand(data: bytes) -> str | None:
    """Returns the format that the major brand or the compatible brands name."""
    end = min(int.from_bytes(data[:4], "big"), 16 + 4 * _MAX_BRANDS)
    brands = [data[8:12], *(data[start : start + 4] for start in range(16, end, 4))]
    return next((_BRANDS[brand] for brand in brands if brand in _BRANDS), None)


def remedy(kind: str) -> str | None:
    """Returns what to do so that Pillow can read a format; None if it already can.

    Args:
        kind: The format, from `sniff`.
    """
    import PIL.Image

    PIL.Image.preinit()
    if kind not in PIL.Image.OPEN:
        PIL.Image.init()
    if kind not in PIL.Image.OPEN and kind == "HEIF":
        _register_heif()
    if kind in PIL.Image.OPEN:
        return None
    return _REMEDIES.get(kind, "pip install --upgrade pillow")


def _register_heif() -> None:
    for name in _HEIF_PLUGINS:
        try:
            importlib.import_module(name).register_heif_opener()
        except ImportError:
            continue
        return
