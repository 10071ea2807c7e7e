"""Pairs of hashes that differ in few bits, found without comparing all of them.

In: hashes of images, and a distance. Out: groups of images, as lines of a report. Two
hashes that differ in at most d bits are equal in one of d + 1 bands of bits, so that
only hashes with an equal band are compared.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from converters.near.hashes import BITS, Hashed
from tfpipe.shards import index

NAME = "near_duplicates.jsonl"
MAX_DISTANCE = 8

# One row an image of other bytes than all before it; then one row a hash.
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
    """Returns the groups of images that look alike, the nearest first.

    Images with equal bytes count as one, because duplicates.jsonl names them.

    Args:
        hashed: The hash of each image.
        distance: Most bits that two hashes differ in, 0 to MAX_DISTANCE.

    Raises:
        ValueError: If the distance is out of range.
    """
    if not 0 <= distance <= MAX_DISTANCE:
        raise ValueError(
            f"--near_duplicates must be 0 to {MAX_DISTANCE} bits, got {distance}."
        )
    known = [item for item in hashed if item.hash is not None]
    columns: dict[str, Any] = {
        name: np.array([getattr(item, name) for item in known], object)
        for name in ("digest", "name", "split", "synset")
    }
    columns["hash"] = np.array([item.hash for item in known], np.uint64)
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
    images = sorted((*some, *others))  # DuckDB returns each (name, split, synset)
    names, splits, synsets = zip(*images, strict=True)
    return {
        "distance": distance,
        "names": list(names),
        "splits": sorted(set(splits)),
        "synsets": sorted(set(synsets)),
    }


def _order(line: Mapping[str, Any]) -> tuple[int, list[str]]:
    return line["distance"], line["names"]
