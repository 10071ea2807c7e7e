"""Bounding boxes of the training images, from the XML files of ILSVRC-2012.

In: the tar of XML files (ILSVRC2012_bbox_train_v2.tar.gz, packed or not), or a folder
of them. Out: the boxes of an image by its base name, relative to the displayed size
that the XML states, which is not always the size of the image. Every box and file that
is not taken as it stands is counted under the name of the decision.
"""

import array
import bisect
import collections
import dataclasses
import functools
import itertools
import os
import pathlib
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import xxhash

from converters import classes, tars, workers

Box = tuple[float, float, float, float]
_File = tuple[str, bytes]  # name and content

# Files that a worker parses at a time: 0.1 s of work.
_CHUNK_FILES = 2048

TAR_NAMES = ("ILSVRC2012_bbox_train_v2.tar.gz", "ILSVRC2012_bbox_train_v2.tar")
FOLDER_NAMES = ("bbox", "Annotation")

# Decisions about boxes.
KEPT = "bbox_kept"
SWAPPED = "bbox_swapped_corners"
CLAMPED = "bbox_clamped"
EMPTY = "bbox_dropped_empty"
OTHER_SYNSET = "bbox_dropped_other_synset"
NO_SIZE = "bbox_dropped_no_size"
# Decision about a file.
OTHER_CLASS = "bbox_file_of_other_class"

_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclasses.dataclass(frozen=True)
class Boxes:
    """Boxes of images by name, in 14 bytes an image and 16 a box.

    Attributes:
        keys: Hash of the name of each image that has a box, ascending.
        starts: Number of its first box.
        counts: How many it has.
        sides: The sides of all boxes, four a box.
        decisions: How many boxes were kept; how many were changed or dropped, and why.
    """

    keys: "array.array[int]"
    starts: "array.array[int]"
    counts: "array.array[int]"
    sides: "array.array[float]"
    decisions: Mapping[str, int]

    def of(self, name: str) -> list[Box]:
        """(xmin, ymin, xmax, ymax) of each object, 0 to 1, in the order of the XML.

        Args:
            name: Path of an image; only its base name, without the ending, counts.
        """
        if not self.keys:
            return []
        key = _key(name)
        place = bisect.bisect_left(self.keys, key)
        if place == len(self.keys) or self.keys[place] != key:
            return []
        start, count = self.starts[place], self.counts[place]
        sides = iter(self.sides[4 * start : 4 * (start + count)])
        return list(zip(sides, sides, sides, sides, strict=True))

    @property
    def num_boxes(self) -> int:
        """Boxes of all images."""
        return len(self.sides) // len(_SIDES)


class _Part(NamedTuple):
    """What some XML files hold; `keys` and `counts` are one a file, boxes or not."""

    keys: "array.array[int]"
    counts: "array.array[int]"
    sides: "array.array[float]"
    decisions: "collections.Counter[str]"


def read_boxes(input_dir: pathlib.Path, *, num_workers: int = 1) -> Boxes:
    """The boxes in an input folder; none if it holds neither the tar nor XML files.

    All are read before the first shard, because what was decided about them, and how
    many they are, is known of the whole only. One process reads the files, which is
    fast, and the others parse them, which is not.

    Args:
        input_dir: Folder with the tar or the XML files.
        num_workers: Processes that parse.

    Raises:
        ValueError: If there are two sources, or one is damaged or not as it must be.
        OSError: If something cannot be read.
    """
    synsets = frozenset(item.synset for item in classes.read_classes(input_dir))
    whole = _empty_part()
    for part in workers.stream(
        functools.partial(_parse_files, input_dir, synsets),
        _chunks(_xml_files(input_dir)),
        num_workers=num_workers,
    ):
        whole.keys.extend(part.keys)
        whole.counts.extend(part.counts)
        whole.sides.extend(part.sides)
        whole.decisions.update(part.decisions)
    return _by_key(input_dir, whole)


def _empty_part() -> _Part:
    return _Part(
        keys=array.array("Q"),
        counts=array.array("H"),
        sides=array.array("f"),
        decisions=collections.Counter(),
    )


def _chunks(files: Iterator[_File]) -> Iterator[list[_File]]:
    while chunk := list(itertools.islice(files, _CHUNK_FILES)):
        yield chunk


def _parse_files(
    input_dir: pathlib.Path, synsets: Collection[str], files: Sequence[_File]
) -> _Part:
    """The boxes of some XML files. Runs in worker processes."""
    part = _empty_part()
    for name, data in files:
        stem = os.path.splitext(os.path.basename(name))[0]
        if stem.rpartition("_")[0] not in synsets:
            part.decisions[OTHER_CLASS] += 1
            continue
        try:
            boxes = parse_xml(data, stem, synsets, part.decisions)
        except (ElementTree.ParseError, ValueError) as error:
            raise ValueError(
                f"{name} in {input_dir} must be an annotation with xmin, ymin, xmax "
                f"and ymax of each box: {error}. Restore it, or remove it."
            ) from error
        part.keys.append(_key(stem))
        part.counts.append(len(boxes))
        part.sides.extend(itertools.chain.from_iterable(boxes))
    return part


def _by_key(input_dir: pathlib.Path, whole: _Part) -> Boxes:
    decisions = dict(sorted((+whole.decisions).items()))
    if not whole.keys:
        return Boxes(whole.keys, array.array("I"), whole.counts, whole.sides, decisions)
    import numpy as np  # which workers and inputs without boxes need not load

    keys = np.array(whole.keys, np.uint64)
    counts = np.array(whole.counts, np.uint16)
    ends = np.cumsum(counts, dtype=np.uint32)
    order = np.argsort(keys)
    same = keys[order][1:] == keys[order][:-1]
    if same.any():
        raise _second_file(input_dir, int(keys[order][1:][same][0]))
    order = order[counts[order] > 0]
    return Boxes(
        keys=array.array("Q", keys[order].tobytes()),
        starts=array.array("I", (ends - counts)[order].astype(np.uint32).tobytes()),
        counts=array.array("H", counts[order].tobytes()),
        sides=whole.sides,
        decisions=decisions,
    )


def _second_file(input_dir: pathlib.Path, key: int) -> ValueError:
    names = [name for name, _ in _xml_files(input_dir) if _key(name) == key]
    stem = os.path.splitext(os.path.basename(names[-1]))[0]
    return ValueError(
        f"{input_dir} must hold one XML file an image, got a second one for {stem}: "
        f"{names[-1]}. Remove one of them."
    )


def parse_xml(
    data: bytes,
    stem: str,
    synsets: Collection[str],
    decisions: "collections.Counter[str]",
) -> list[Box]:
    """The boxes of one XML file that are of use; counts what is decided.

    Args:
        data: The file.
        stem: Its base name without the ending: `<synset>_<number>`.
        synsets: All classes.
        decisions: Counts to add to.

    Raises:
        ValueError: If a side of a box is missing or not a number.
        ParseError: If it is no XML.
    """
    root = ElementTree.fromstring(data)
    width = float(root.findtext("size/width") or 0)
    height = float(root.findtext("size/height") or 0)
    synset = stem.rpartition("_")[0]
    boxes = []
    for item in root.iter("object"):
        # Many dogs are labeled "Scottish_deerhound" instead of with their synset; only
        # the synset of another class says that the box is of something else.
        label = item.findtext("name")
        for corners in item.iter("bndbox"):
            if label != synset and label in synsets:
                decisions[OTHER_SYNSET] += 1
            elif width <= 0 or height <= 0:
                decisions[NO_SIZE] += 1
            else:
                sides = [float(corners.findtext(side) or "") for side in _SIDES]
                box = _relative_box(sides, width, height, decisions)
                boxes += [] if box is None else [box]
    return boxes


def _relative_box(
    sides: list[float],
    width: float,
    height: float,
    decisions: "collections.Counter[str]",
) -> Box | None:
    """A box in pixels as fractions of the size, or None for an empty one."""
    xmin, ymin, xmax, ymax = sides
    ordered = [min(xmin, xmax), min(ymin, ymax), max(xmin, xmax), max(ymin, ymax)]
    relative = [
        side / size
        for side, size in zip(ordered, (width, height, width, height), strict=True)
    ]
    left, top, right, bottom = (min(max(side, 0.0), 1.0) for side in relative)
    if left >= right or top >= bottom:
        decisions[EMPTY] += 1
        return None
    decisions[KEPT] += 1
    decisions[SWAPPED] += ordered != sides
    decisions[CLAMPED] += [left, top, right, bottom] != relative
    return left, top, right, bottom


def _xml_files(input_dir: pathlib.Path) -> Iterator[_File]:
    """Name and content of each XML file, in an order that does not matter."""
    found = [name for name in TAR_NAMES if (input_dir / name).is_file()]
    found += [name for name in FOLDER_NAMES if (input_dir / name).is_dir()]
    if len(found) > 1:
        raise ValueError(
            f"{input_dir} must hold the bounding boxes once, got "
            f"{' and '.join(found)}. Remove all but one of them."
        )
    for name in found:
        if name in TAR_NAMES:
            files = tars.stream_files(input_dir / name)
            yield from (file for file in files if file[0].lower().endswith(".xml"))
            continue
        for folder, _, names in os.walk(input_dir / name):
            for path in (pathlib.Path(folder, name) for name in sorted(names)):
                if path.suffix.lower() == ".xml":
                    yield str(path.relative_to(input_dir)), path.read_bytes()


def _key(name: str) -> int:
    stem = os.path.splitext(os.path.basename(name))[0]
    return xxhash.xxh3_64_intdigest(os.fsencode(stem))
