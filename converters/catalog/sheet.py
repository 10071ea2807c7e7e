"""The contact sheet: thumbnails in rows, with class, size and file name below each.

In: samples. Out: one picture, in a file or as a JPEG.
"""

import io
import math
import pathlib
from collections.abc import Sequence

import PIL.Image
import PIL.ImageDraw

from converters.catalog.samples import Sample
from tfpipe.consumers import captions
from tfpipe.shards import atomic

# Pixels.
TILE = 192
_GAP = 10
_LINES = 3
_COLUMNS = 8
_BACK, _MISSING = "white", "#dddddd"

# Formats of a sheet by the end of its name, as Pillow names them.
FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
_QUALITY = 85


def require_name(path: pathlib.Path) -> None:
    """Checks that the name of a sheet says its format.

    Raises:
        ValueError: If it does not.
    """
    if path.suffix.lower() not in FORMATS:
        raise ValueError(
            f"--sheet must end in one of {', '.join(FORMATS)}, got {path}. "
        )


def draw(samples: Sequence[Sample]) -> PIL.Image.Image:
    """Draws a contact sheet, as near to a square of tiles as it can be.

    Args:
        samples: The samples, at least one; pictures have sides of at most TILE.
    """
    columns = min(math.ceil(math.sqrt(len(samples))), _COLUMNS)
    rows = math.ceil(len(samples) / columns)
    width, height = TILE + _GAP, TILE + _GAP + _LINES * captions.LINE_HEIGHT
    sheet = PIL.Image.new("RGB", (columns * width + _GAP, rows * height + _GAP), _BACK)
    canvas = PIL.ImageDraw.Draw(sheet)
    for place, sample in enumerate(samples):
        row, column = divmod(place, columns)
        left, top = _GAP + column * width, _GAP + row * height
        _draw_tile(sheet, canvas, sample, left, top)
    return sheet


def _draw_tile(
    sheet: PIL.Image.Image,
    canvas: PIL.ImageDraw.ImageDraw,
    sample: Sample,
    left: int,
    top: int,
) -> None:
    picture, row = sample.picture, sample.row
    if picture is None:
        canvas.rectangle((left, top, left + TILE - 1, top + TILE - 1), fill=_MISSING)
        for number, part in enumerate(_wrapped(f"No picture: {sample.fault}")):
            place = left + 6, top + 6 + number * captions.LINE_HEIGHT
            captions.draw(canvas, place, part, TILE - 12)
    else:
        x = left + (TILE - picture.width) // 2
        sheet.paste(picture, (x, top + TILE - picture.height))
    texts = (row.name, f"{row.width} x {row.height}", row.filename.rpartition("/")[2])
    for number, text in enumerate(texts):
        place = left, top + TILE + 2 + number * captions.LINE_HEIGHT
        captions.draw(canvas, place, text, TILE)


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 30, max_lines=10)


def save(sheet: PIL.Image.Image, path: pathlib.Path) -> None:
    """Writes a sheet in one step, in the format that its name says.

    Raises:
        ValueError: If its name says none.
        OSError: If it cannot be written.
    """
    require_name(path)
    atomic.write(path, encode(sheet, FORMATS[path.suffix.lower()]), fsync=False)


def encode(sheet: PIL.Image.Image, kind: str, *, quality: int = _QUALITY) -> bytes:
    """Returns a sheet in one of the formats of Pillow."""
    out = io.BytesIO()
    options = {} if kind == "PNG" else {"quality": quality}
    sheet.save(out, kind, **options)
    return out.getvalue()
