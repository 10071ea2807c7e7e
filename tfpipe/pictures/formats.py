"""Finds the format of an image from its first bytes, and whether Pillow can read it.

In: the first bytes of a file. Out: Pillow's name of the format; and, if the installed
Pillow cannot read that format, the command that installs what is missing. Formats of
plug-ins are read where the plug-in is installed: it is imported when it is needed.
"""

import contextlib
import importlib
import io
import warnings
from collections.abc import Mapping

# File names of JPEGs; .mpo is a JPEG with more pictures behind it.
JPEG_SUFFIXES = (".jpeg", ".jpg", ".jpe", ".jfif", ".jif", ".mpo")
# File names of the formats that Pillow opens, also by a plug-in. Whether the installed
# Pillow can read a file is found out when the file is read.
OTHER_SUFFIXES = (
    *(".png", ".apng", ".gif", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".avif"),
    *(".avifs", ".heic", ".heif", ".hif", ".jp2", ".j2k", ".j2c", ".jpc", ".jpf"),
    *(".jpx", ".ppm", ".pgm", ".pbm", ".pnm", ".pfm", ".tga", ".icb", ".vda", ".vst"),
    *(".blp", ".bw", ".cur", ".dcx", ".dds", ".fit", ".fits", ".flc", ".fli", ".ftc"),
    *(".ftu", ".gbr", ".icns", ".ico", ".im", ".msp", ".pcd", ".pcx", ".psd", ".pxr"),
    *(".qoi", ".ras", ".rgb", ".rgba", ".sgi", ".xbm", ".xpm"),
)
# Formats that Pillow only identifies, or opens with another program or on Windows only;
# and formats whose samples or signatures tell no picture: wrappers and measurements.
NOT_READ = frozenset(
    {"BUFR", "EPS", "GRIB", "HDF5", "IMT", "IPTC", "MPEG", "SPIDER", "WMF"}
)

# Formats other than JPEG: Pillow's name, the offset of the magic bytes, these bytes.
# Pillow may try no other format, because for some formats it runs other programs.
_MAGIC = (
    ("PNG", 0, b"\x89PNG\r\n\x1a\n"),
    ("GIF", 0, b"GIF8"),
    ("WEBP", 8, b"WEBPVP8"),
    ("TIFF", 0, b"II*\0"),
    ("TIFF", 0, b"MM\0*"),
    ("TIFF", 0, b"II+\0\x08\0\0\0"),
    ("TIFF", 0, b"MM\0+\0\x08\0\0"),
    ("JPEG2000", 0, b"\0\0\0\x0cjP  \r\n\x87\n"),
    ("JPEG2000", 0, b"\xff\x4f\xff\x51"),
    ("IM", 0, b"Image type: "),
    ("PCD", 2048, b"PCD_"),
)
# Formats in ISO base media files, by their brand. MP4 and QuickTime videos begin in the
# same way, with other brands.
_BRANDS = {
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx"), "HEIF"),
}
_MAX_BRANDS = 16
# Formats with a test here, which is stricter or quicker than that of Pillow.
_SNIFFED = frozenset(
    {"JPEG", "BMP", *(kind for kind, _, _ in _MAGIC), *_BRANDS.values()}
)

# Modules that add a format to Pillow by their `register_heif_opener`.
_HEIF_PLUGINS = ("pillow_heif", "pi_heif")
# What to do where Pillow cannot read a format.
_REMEDIES: Mapping[str, str] = {
    "HEIF": "pip install pillow-heif",
    "AVIF": "pip install 'pillow>=11.3'",
}


def sniff(data: bytes) -> str | None:
    """Returns Pillow's name of the format that the bytes of a file show.

    Returns:
        The name; None if the format is unknown or is not read. JPEG is not among the
        formats.
    """
    for name, position, magic in _MAGIC:
        if data.startswith(magic, position):
            return name
    # The two letters alone prove little: the size of the BMP header, a 32-bit number
    # at byte 14, must be below 256 too.
    if data.startswith(b"BM") and data[15:18] == b"\0\0\0":
        return "BMP"
    if data.startswith(b"ftyp", 4) and (kind := _brand(data)) is not None:
        return kind
    return _opened_by_pillow(data)


def _opened_by_pillow(data: bytes) -> str | None:
    """Returns the first rare format as which Pillow opens the bytes."""
    import PIL.Image

    from tfpipe.pictures import pixels

    PIL.Image.init()
    kinds = [
        kind
        for kind, (_, accepts) in PIL.Image.OPEN.items()
        if kind not in _SNIFFED | NOT_READ and (accepts or kind == "TGA")
    ]
    with contextlib.suppress(Exception), warnings.catch_warnings(), pixels.limits(None):
        warnings.simplefilter("ignore")
        with PIL.Image.open(io.BytesIO(data), formats=kinds) as image:
            return (image.format or "").upper() or None
    return None


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
