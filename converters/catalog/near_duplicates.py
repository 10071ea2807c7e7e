"""Images that look alike: compared by a hash of their pixels, and reported.

In: the folder of a data set with an index. Out: near_duplicates.jsonl in the folder,
and counts. No image is left out or changed.

A hash has 64 bits of an image of 9 x 8 pixels: a bit says whether a pixel is darker
than its neighbor, and stays nearly the same when the image is scaled. The bits are
those of the function dhash of the library ImageHash. If two hashes differ in at most d
bits, at least a band of d + 1 bands of bits is equal. Only hashes with an equal band
are compared.
"""

import functools
import json
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from converters.engines import processes
from converters.exports.plan import ExportPlan, Part, make_plan, read_items
from converters.exports.source import open_source
from converters.images import jpeg_header, pillow
from tfpipe.location import atomic
from tfpipe.location.location import Location
from tfpipe.shards import index

BITS = 64

# Height and width of a JPEG that is decoded for its hash.
_DECODED_SIZE = (64, 72)


class Hashed(NamedTuple):
    """The hash of an image.

    Attributes:
        hash: 0 to 2 ** 64 - 1; None if the image cannot be decoded.
        digest: Digest of its bytes.
        name: Its name in the catalog.
        split: Its split.
        synset: Its class.
    """

    hash: int | None
    digest: str
    name: str
    split: str
    synset: str


def hash_images(plan: ExportPlan, *, num_workers: int) -> Sequence[Hashed]:
    """Returns the hashes of the images of a plan.

    Raises:
        BadRecordError: If a record is damaged.
        OSError: If a shard cannot be read.
    """
    parts = processes.run(
        functools.partial(_hash_part, plan),
        plan.parts,
        num_workers=num_workers,
        num_images=plan.num_records,
    )
    return [hashed for part in parts for hashed in part]


def _hash_part(plan: ExportPlan, part: Part) -> list[Hashed]:
    return [
        Hashed(
            _hash(item.encoded),
            item.row.digest,
            item.row.filename,
            part.split,
            item.row.synset,
        )
        for item in read_items(plan, part)
    ]


def _hash(encoded: bytes) -> int | None:
    try:
        header = jpeg_header.read_header(encoded)
        picture = pillow.decode_jpeg(encoded, header, _DECODED_SIZE)
    except jpeg_header.BadImageError:
        return None
    gray = pillow.upright(picture).image.convert("L")
    pixels = np.asarray(gray.resize((9, 8), Image.Resampling.LANCZOS))
    return int.from_bytes(np.packbits(pixels[:, 1:] > pixels[:, :-1]).tobytes(), "big")


REPORT_NAME = "near_duplicates.jsonl"
MAX_DISTANCE = 8

# A row an image, without images of equal bytes; then a row a hash.
_IMAGES = """
CREATE TEMP TABLE images AS SELECT hash, min((name, split, synset)) AS image
FROM found GROUP BY hash, digest
"""
_HASHES = """
CREATE TEMP TABLE hashes AS SELECT hash, list(image ORDER BY image) AS images
FROM images GROUP BY hash
"""
_BANDS = """
CREATE TEMP TABLE bands AS SELECT hash, band,
    (hash >> (band * $width)) & ((1::UBIGINT << $width) - 1) AS bits
FROM hashes, range($count) AS bands(band)
"""
_PAIRS = """
SELECT bit_count(xor(one, other)) AS distance, a.images, b.images
FROM (SELECT DISTINCT x.hash AS one, y.hash AS other FROM bands AS x JOIN bands AS y
      ON x.band = y.band AND x.bits = y.bits AND x.hash < y.hash
      WHERE bit_count(xor(x.hash, y.hash)) <= $distance)
JOIN hashes AS a ON a.hash = one JOIN hashes AS b ON b.hash = other
UNION ALL SELECT 0, images, [] FROM hashes WHERE len(images) > 1
"""


def find(hashed: Sequence[Hashed], distance: int) -> list[Mapping[str, Any]]:
    """Returns the groups of similar images, the nearest first.

    Images with equal bytes count once, because duplicates.jsonl names the copies.

    Args:
        hashed: The hashes of the images.
        distance: Most bits by which two hashes differ, 0 to MAX_DISTANCE.

    Raises:
        ValueError: If the distance is out of range.
    """
    if not 0 <= distance <= MAX_DISTANCE:
        raise ValueError(
            f"--near_duplicates must be 0 to {MAX_DISTANCE} bits, got {distance}."
        )
    decoded = [item for item in hashed if item.hash is not None]
    columns: dict[str, Any] = {
        name: np.array([getattr(item, name) for item in decoded], object)
        for name in ("digest", "name", "split", "synset")
    }
    columns["hash"] = np.array([item.hash for item in decoded], np.uint64)
    width = BITS // (distance + 1)
    with index.catalog_connection() as connection:
        connection.register("found", columns)
        connection.execute(_IMAGES)
        connection.execute(_HASHES)
        values = {"width": width, "count": distance + 1}
        connection.execute(_BANDS, values)
        rows = connection.execute(_PAIRS, {"distance": distance}).fetchall()
    return sorted((_line(*row) for row in rows), key=_order)


def _line(
    distance: int, some: list[tuple[str, str, str]], others: list[tuple[str, str, str]]
) -> dict[str, Any]:
    images = sorted((*some, *others))  # DuckDB returns (name, split, synset)
    names, splits, synsets = zip(*images, strict=True)
    return {
        "distance": distance,
        "names": list(names),
        "splits": sorted(set(splits)),
        "synsets": sorted(set(synsets)),
    }


def _order(line: Mapping[str, Any]) -> tuple[int, list[str]]:
    return line["distance"], line["names"]


def write(data_dir: pathlib.Path, *, distance: int, num_workers: int) -> dict[str, Any]:
    """Finds similar images, and writes their report.

    Args:
        data_dir: Folder of the data set.
        distance: Most bits by which two hashes differ.
        num_workers: Number of processes that decode, >= 1.

    Returns:
        The counts under `near_duplicates`: groups, images without a decode.

    Raises:
        ValueError: If the distance is out of range, or there is no data set.
        BadRecordError: If a record is damaged.
        OSError: If a file cannot be read or written.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        source = open_source(Location(str(data_dir)), path, ())
        plan = make_plan(
            source, kind="webdataset", paths="auto", subset=None, folder=path
        )
        hashed = hash_images(plan, num_workers=num_workers)
    lines = find(hashed, distance)
    if lines:
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        atomic.write(data_dir / REPORT_NAME, text.encode())
    splits = sum(len(line["splits"]) > 1 for line in lines)
    return {
        "near_duplicates": {
            "num_groups": len(lines),
            "num_groups_across_splits": splits,
            "num_not_decoded": sum(item.hash is None for item in hashed),
        }
    }
