"""Hashes of pixels: 64 bits that stay nearly the same when an image is scaled.

In: the records of a data set. Out: the hash of each image, by the library ImageHash. A
bit says whether a pixel of an image of 9 x 8 pixels is darker than its neighbor
(difference hash). Runs in worker processes.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

from converters.engines import processes
from converters.exports.items import read_items
from converters.exports.plan import Part, Plan
from converters.images import jpeg_header, pillow

BITS = 64

# Height and width to which a JPEG is decoded before it is hashed.
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


def require() -> None:
    """Checks that the library is installed.

    Raises:
        ValueError: If it is not.
    """
    try:
        import imagehash  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "--near_duplicates needs a package that is not installed: pip install "
            f"'tfpipe[near_duplicates]' ({error})."
        ) from error


def hash_images(plan: Plan, *, num_workers: int) -> Sequence[Hashed]:
    """Returns the hash of each image of a plan.

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


def _hash_part(plan: Plan, part: Part) -> list[Hashed]:
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
    import imagehash

    try:
        header = jpeg_header.read_header(encoded)
        picture = pillow.decode_jpeg(encoded, header, _DECODED_SIZE)
    except jpeg_header.BadImageError:
        return None
    image = pillow.upright(picture).image
    return int(str(imagehash.dhash(image)), 16)
