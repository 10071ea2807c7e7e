"""Duplicates: images with the same bytes, found by their digest.

In: the catalog, or the images before they are planned. Out: a group for every content
that several images have, and their counts; or the images without their copies. Images
that look alike but differ in a byte are not found.
"""

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import xxhash

from converters.engines import processes
from converters.inputs.image import Image, catalog_name, read_image
from tfpipe.errors import count_of
from tfpipe.location.location import Location
from tfpipe.shards.split_names import TEST, VALIDATION
from tfpipe.shards.sql import PARQUET, one_file

if TYPE_CHECKING:
    import duckdb

NAME = "duplicates.jsonl"
_CHUNK_IMAGES = 512
_PIECE_BYTES = 64 << 20
# Splits whose copy of an image stays. Training on an image of theirs spoils results.
_KEPT_FIRST = {TEST: 0, VALIDATION: 1}

# Most data sets have few copies, so that lists are made for copies alone. Grouping by
# the hash of a digest takes a third of the memory that grouping by the digest takes.
_CATALOG = PARQUET.replace("?", "$catalog")
_GROUPS = f"""
    SELECT digest,
           list(filename ORDER BY split, shard, record),
           list(split ORDER BY split, shard, record),
           list(synset ORDER BY split, shard, record)
    FROM {_CATALOG} WHERE hash(digest) IN (
        SELECT hash(digest) FROM {_CATALOG}
        GROUP BY hash(digest) HAVING count(*) > 1
    )
    GROUP BY digest HAVING count(*) > 1
    ORDER BY min(split), min(shard), min(record), digest
"""


class Duplicates(NamedTuple):
    """Equal images.

    Attributes:
        groups: The images of every content that several images have.
        summary: Counts of the groups.
        across: Two equal images of different splits, as `<name> (<split>)`, if any.
    """

    groups: Sequence[Mapping[str, Any]]
    summary: Mapping[str, int]
    across: Sequence[str] = ()


def _summary(groups: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {
        "num_groups": len(groups),
        "num_copies": sum(len(group["names"]) - 1 for group in groups),
        "num_groups_across_splits": sum(len(group["splits"]) > 1 for group in groups),
        "num_groups_with_several_classes": sum(
            len(group["synsets"]) > 1 for group in groups
        ),
    }


NONE = Duplicates((), _summary(()))


def find(connection: "duckdb.DuckDBPyConnection", catalog: pathlib.Path) -> Duplicates:
    """Finds the images of a catalog that are equal byte for byte.

    The summary counts `num_groups`, `num_copies` (images beyond the first of their
    group), `num_groups_across_splits` (a leak from training into validation) and
    `num_groups_with_several_classes` (at least one of the labels is wrong).

    Args:
        connection: An `index.catalog_connection`.
        catalog: Path of the catalog.
    """
    rows = connection.execute(_GROUPS, {"catalog": one_file(catalog)}).fetchall()
    groups = [
        {
            "digest": digest,
            "names": names,
            "splits": sorted(set(splits)),
            "synsets": sorted(set(synsets)),
        }
        for digest, names, splits, synsets in rows
    ]
    return Duplicates(groups, _summary(groups), _across(rows))


def _across(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Returns the first two images of the first group with several splits."""
    for _, names, splits, _ in rows:
        first = dict(zip(reversed(splits), reversed(names), strict=True))
        if len(first) > 1:
            return [f"{first[split]} ({split})" for split in sorted(first)][:2]
    return []


def warnings(copies: Duplicates) -> list[str]:
    """Returns the warning about images that are in several splits, if there are any."""
    if not (count := copies.summary.get("num_groups_across_splits", 0)):
        return []
    several = copies.summary["num_groups_with_several_classes"]
    which = "all" if several else "same_class"
    such = f", such as {' and '.join(copies.across)}" if copies.across else ""
    return [
        f"{count_of(count, 'image')} {'is' if count == 1 else 'are'} in several splits"
        f"{such}: results on test or "
        f"validation images that are trained on mean little. --drop_duplicates={which} "
        "keeps the copy of the test split, or else the copy of the validation split; "
        f"{NAME} names all copies."
    ]


class Unique(NamedTuple):
    """Images of every split without copies, and reports on the images left out."""

    splits: Mapping[str, Sequence[Image]]
    rejects: Sequence[Mapping[str, str]]


def drop(
    input_dir: Location,
    splits: Mapping[str, Sequence[Image]],
    which: Literal["same_class", "all"],
    num_workers: int,
) -> Unique:
    """Leaves copies out before the plan is made; reads every image once for this.

    The first of equal images by name is kept. An image of the test split is kept before
    an image of the validation split, and both before an image of the train split, so
    that the splits for measurements stay complete.

    Args:
        input_dir: Folder that the images' files are relative to.
        splits: Images of every split.
        which: "same_class" keeps copies with another label; "all" leaves them out.
        num_workers: Processes that read.

    Raises:
        OSError: If an image cannot be read.
    """
    ordered = [
        (split, image)
        for split in sorted(splits, key=lambda split: _KEPT_FIRST.get(split, 2))
        for image in sorted(splits[split], key=lambda image: image.name)
    ]
    digests = _digests(input_dir, [image for _, image in ordered], num_workers)
    first: dict[object, Image] = {}
    kept: dict[str, list[Image]] = {split: [] for split in splits}
    rejects = []
    for (split, image), digest in zip(ordered, digests, strict=True):
        same = digest if which == "all" else (digest, image.class_index)
        original = first.setdefault(same, image)
        if original is image:
            kept[split].append(image)
        else:
            detail = f"equal to {catalog_name(original.name)}"
            rejects.append(
                {
                    "name": catalog_name(image.name),
                    "action": "skipped",
                    "reason": "duplicate",
                    "detail": detail,
                }
            )
    return Unique(kept, rejects)


def _digests(
    input_dir: Location, images: Sequence[Image], num_workers: int
) -> list[bytes]:
    chunks = [
        images[start : start + _CHUNK_IMAGES]
        for start in range(0, len(images), _CHUNK_IMAGES)
    ]
    parts = processes.run(
        functools.partial(_digest_chunk, input_dir),
        chunks,
        num_workers=num_workers,
        num_images=len(images),
    )
    return [digest for part in parts for digest in part]


def _digest_chunk(input_dir: Location, images: Sequence[Image]) -> list[bytes]:
    digests = []
    for image in images:
        digests.append(_digest(input_dir, image))
        processes.image_done()
    return digests


def _digest(input_dir: Location, image: Image) -> bytes:
    """Returns the digest of a file of any size, read in pieces.

    Files that are too large to be stored are compared too.
    """
    digest = xxhash.xxh3_128()
    for start in range(0, image.num_bytes, _PIECE_BYTES):
        num_bytes = min(_PIECE_BYTES, image.num_bytes - start)
        piece = image._replace(offset=image.offset + start, num_bytes=num_bytes)
        digest.update(read_image(input_dir, piece))
    return digest.digest()
