"""Samples of the chosen records: read, decoded, and drawn as a contact sheet.

In: the connection of a question and its data set. Out: random rows; their pictures with
faults and figures; and thumbnails in rows with class, size and file name below, as one
picture in a file or as a JPEG.
"""

import io
import math
import pathlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import PIL.Image
import PIL.ImageDraw

from converters.catalog import question
from converters.exports.source import Source
from converters.images import prepare
from converters.images.policy import Policy
from tfpipe import errors
from tfpipe.consumers import captions
from tfpipe.location import atomic, limits
from tfpipe.location.files import Files
from tfpipe.shards import example, records
from tfpipe.shards.example import Feature
from tfpipe.shards.image_record import ENCODED

if TYPE_CHECKING:
    import duckdb


_SUBSAMPLINGS = {0: "4:4:4", 1: "4:2:2", 2: "4:2:0"}
# Records of foreign data sets have the image under a key of their own.
_OTHER_KEYS = ("image", "jpeg", "image_raw", "jpg")
BOX_KEY = "image/object/bbox/xmin"


class SampleRow(NamedTuple):
    """A chosen record, as the catalog describes it."""

    split: str
    shard: int
    byte_offset: int
    num_bytes: int
    height: int
    width: int
    filename: str
    label: int
    name: str  # of the class, for people


class Sample(NamedTuple):
    """A chosen record that was read.

    Attributes:
        row: Its row in the catalog.
        picture: Its image, upright, scaled down, mode RGB; None if it cannot be read.
        fault: Why there is no picture, for people; "" if there is one.
        subsampling: Of its JPEG: 4:4:4, 4:2:2, 4:2:0, other or grayscale; "" if the
            image is no JPEG or cannot be read.
        num_boxes: Number of its bounding boxes.
    """

    row: SampleRow
    picture: PIL.Image.Image | None
    fault: str = ""
    subsampling: str = ""
    num_boxes: int = 0


def draw(
    connection: "duckdb.DuckDBPyConnection", number: int, *, seed: int
) -> list[SampleRow]:
    """Draws chosen records at random, no record twice.

    Args:
        connection: The connection of a question.
        number: Number of records, >= 1; all if fewer are chosen.
        seed: Decides the draw.
    """
    found = connection.execute(
        "SELECT c.split, c.shard, c.byte_offset, c.num_bytes, c.height, c.width, "
        "file.filename, c.label, coalesce(nullif(classes.text, ''), "
        "nullif(classes.class, ''), concat('label ', c.label)) "
        f"FROM (SELECT *, {question.random_order(seed)} AS draw FROM chosen ORDER BY "
        "draw LIMIT ?) c JOIN file ON c.place = file.file_row_number LEFT JOIN classes "
        "ON c.label = classes.number ORDER BY c.draw",
        [number],
    )
    return [SampleRow(*row) for row in found.fetchall()]


def read(source: Source, rows: list[SampleRow], *, side: int) -> list[Sample]:
    """Reads the records of some rows.

    Args:
        source: The data set.
        rows: The rows.
        side: Longest side of a picture in pixels.

    Raises:
        OSError: If a shard cannot be read.
        RemoteError: If a store cannot be read.
    """
    files = source.files or Files(str(source.folder.absolute()))
    policy = Policy(max_side=side, exif_orientation="apply", quality=90)
    with ThreadPoolExecutor(limits.connections()) as pool:
        found = [pool.submit(_read_record, source, files, row) for row in rows]
        # Pillow's settings are those of the process: one thread decodes.
        return [
            _sample(row, future.result(), policy)
            for row, future in zip(rows, found, strict=True)
        ]


def _read_record(source: Source, files: Files, row: SampleRow) -> bytes | str:
    """Returns the data of a record, or what is wrong with it."""
    name = source.known.splits[row.split][row.shard].name
    content = files.read_range(name, row.byte_offset, row.byte_offset + row.num_bytes)
    if records.record_bytes(content[: records.HEADER_BYTES]) != row.num_bytes:
        return "the header of the record is damaged"
    data = content[records.HEADER_BYTES : -records.FOOTER_BYTES]
    return records.data_fault(data, content[-records.FOOTER_BYTES :]) or data


def _sample(row: SampleRow, data: bytes | str, policy: Policy) -> Sample:
    if isinstance(data, str):
        return Sample(row, None, data)
    try:
        features = example.decode_example(data)
    except errors.BadRecordError as error:
        return Sample(row, None, str(error))
    encoded = _encoded(features)
    if encoded is None:
        return Sample(row, None, f"the record has no image under {ENCODED}")
    num_boxes = len(features[BOX_KEY].values) if BOX_KEY in features else 0
    prepared = prepare.prepare(encoded, policy)
    if isinstance(prepared, prepare.Rejected):
        return Sample(row, None, prepared.detail, num_boxes=num_boxes)
    with PIL.Image.open(io.BytesIO(prepared.encoded), formats=["JPEG"]) as image:
        picture = image.convert("RGB")
    return Sample(row, picture, "", subsampling(encoded), num_boxes)


def _encoded(features: dict[str, Feature]) -> bytes | None:
    """Returns the encoded image of a record."""
    for key in (ENCODED, *_OTHER_KEYS):
        feature = features.get(key)
        if feature and feature.kind == "bytes" and len(feature.values) == 1:
            encoded: bytes = feature.values[0]
            return encoded
    return None


def subsampling(encoded: bytes) -> str:
    """Returns the chroma subsampling of a JPEG; "" for other formats and bad bytes."""
    from PIL import JpegImagePlugin

    try:
        with PIL.Image.open(io.BytesIO(encoded), formats=["JPEG"]) as image:
            if not isinstance(image, JpegImagePlugin.JpegImageFile):
                return ""
            if image.mode == "L":
                return "grayscale"
            return _SUBSAMPLINGS.get(JpegImagePlugin.get_sampling(image), "other")
    except Exception:  # Pillow raises almost any exception on damaged bytes
        return ""


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


def draw_sheet(samples: Sequence[Sample]) -> PIL.Image.Image:
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
    atomic.write_chosen(path, encode(sheet, FORMATS[path.suffix.lower()]), fsync=False)


def encode(sheet: PIL.Image.Image, kind: str, *, quality: int = _QUALITY) -> bytes:
    """Returns a sheet in one of the formats of Pillow."""
    out = io.BytesIO()
    options = {} if kind == "PNG" else {"quality": quality}
    sheet.save(out, kind, **options)
    return out.getvalue()
