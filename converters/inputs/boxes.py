"""Reads the bounding boxes of the training images from the XML files of ILSVRC-2012.

In: the tar of XML files (ILSVRC2012_bbox_train_v2.tar.gz, or unpacked to .tar), or a
folder of XML files. Out: the boxes of an image by its base name, relative to the
displayed size in the XML; an image may have another size. Changed boxes and files, and
boxes and files that are left out, are counted by decision; the latter are also listed
by name.
"""

import array
import bisect
import collections
import contextlib
import dataclasses
import functools
import itertools
import math
import os
import pathlib
import xml.parsers.expat
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from converters.engines import processes
from converters.inputs import classes, files, kaggle, listing, tars
from converters.inputs.listing import LeftOut

if TYPE_CHECKING:
    import xml.etree.ElementTree as ElementTree

Box = tuple[float, float, float, float]
_File = tuple[str, bytes | None]  # name and content; None if it is no XML file

# Files that a worker parses as one task, which takes 0.1 s.
_CHUNK_FILES = 2048
_CHUNK_BYTES = 4 << 20
# An annotation has a few hundred bytes. These limits protect the memory from other
# files and from hostile ones: parsing 16 MB of tags takes 500 MB.
MAX_XML_BYTES = 16 << 20
_MAX_ELEMENTS, _MAX_DEPTH = 1_000_000, 100
_SMALL_XML_BYTES = 16 << 10

TAR_NAMES = ("ILSVRC2012_bbox_train_v2.tar.gz", "ILSVRC2012_bbox_train_v2.tar")
FOLDER_NAMES = ("bbox", "Annotation", kaggle.BOXES)

# Decisions about boxes.
KEPT = "bbox_kept"
SWAPPED = "bbox_swapped_corners"
CLAMPED = "bbox_clamped"
# Decisions to leave a box or a file out.
_LEFT_OUT = (
    listing.BOX_EMPTY,
    listing.BOX_OTHER_SYNSET,
    listing.BOX_NO_SIZE,
    listing.BOX_OTHER_CLASS,
    listing.BOX_NO_XML,
)

_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclasses.dataclass(frozen=True)
class Boxes:
    """Boxes of images by name; 16 bytes an image and 16 bytes a box.

    Attributes:
        keys: uint64 [num_images], hashes of the names of images with a box, ascending.
        starts: uint32 [num_images], number of the first box of an image.
        counts: uint32 [num_images], number of boxes of an image.
        sides: float32 [4 * num_boxes], xmin, ymin, xmax and ymax of all boxes.
        decisions: Number of boxes and files by decision: kept, changed or left out.
        left_out: The files that were left out, and the files of boxes left out.
    """

    keys: "array.array[int]"
    starts: "array.array[int]"
    counts: "array.array[int]"
    sides: "array.array[float]"
    decisions: Mapping[str, int]
    left_out: Sequence[LeftOut] = ()

    def of(self, name: str) -> list[Box]:
        """Returns the boxes of an image in the order of its XML file.

        Args:
            name: Path of the image; only its base name without the suffix matters.

        Returns:
            (xmin, ymin, xmax, ymax) of each box, 0 to 1; empty if there are none.
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
        """Number of boxes of all images."""
        return len(self.sides) // len(_SIDES)

    def digest(self) -> str:
        """Returns a digest of names and boxes; the order of the files has no effect."""
        digest = xxhash.xxh3_128(self.keys.tobytes() + self.counts.tobytes())
        for start, count in zip(self.starts, self.counts, strict=True):
            digest.update(self.sides[4 * start : 4 * (start + count)].tobytes())
        return digest.hexdigest()


class _Part(NamedTuple):
    """The boxes of some XML files, with fields as in `Boxes`.

    `keys` and `counts` have an element a file, also of a file without a box.
    """

    keys: "array.array[int]"
    counts: "array.array[int]"
    sides: "array.array[float]"
    decisions: "collections.Counter[str]"
    left_out: list[LeftOut]


def read_boxes(input_dir: pathlib.Path, *, num_workers: int = 1) -> Boxes:
    """Reads the boxes in an input folder; none if it has neither tar nor XML files.

    All boxes are read before the first shard is written, because the counts of
    decisions are needed as a whole. A single process reads the files fast; the other
    processes parse the files slowly.

    Args:
        input_dir: Folder with the tar or the XML files.
        num_workers: Number of parsing processes.

    Raises:
        ValueError: If there are two sources, or if one is damaged or holds a file that
            is no annotation.
    """
    synsets = frozenset(item.synset for item in classes.read_classes(input_dir))
    whole = _empty_part()
    for part in processes.stream(
        functools.partial(_parse_files, input_dir, synsets),
        _chunks(_xml_files(input_dir)),
        num_workers=num_workers,
    ):
        whole.keys.extend(part.keys)
        whole.counts.extend(part.counts)
        whole.sides.extend(part.sides)
        whole.decisions.update(part.decisions)
        whole.left_out.extend(part.left_out)
    return _by_key(input_dir, whole)


def _empty_part() -> _Part:
    return _Part(
        keys=array.array("Q"),
        counts=array.array("I"),
        sides=array.array("f"),
        decisions=collections.Counter(),
        left_out=[],
    )


def _chunks(files: Iterator[_File]) -> Iterator[list[_File]]:
    chunk: list[_File] = []
    num_bytes = 0
    for name, data in files:
        chunk.append((name, data))
        num_bytes += len(data or b"")
        if len(chunk) >= _CHUNK_FILES or num_bytes >= _CHUNK_BYTES:
            yield chunk
            chunk, num_bytes = [], 0
    if chunk:
        yield chunk


def _parse_files(
    input_dir: pathlib.Path, synsets: Collection[str], files: Sequence[_File]
) -> _Part:
    """Parses some XML files; runs in worker processes."""
    part = _empty_part()
    for name, data in files:
        stem = os.path.splitext(os.path.basename(name))[0]
        decisions: collections.Counter[str] = collections.Counter()
        if data is None:
            decisions[listing.BOX_NO_XML] += 1
        elif stem.rpartition("_")[0] not in synsets:
            decisions[listing.BOX_OTHER_CLASS] += 1
        else:
            try:
                boxes = parse_xml(data, stem, synsets, decisions)
            except (SyntaxError, ValueError, LookupError) as error:
                raise ValueError(
                    f"{name} in {input_dir} must be an annotation with xmin, ymin, "
                    f"xmax and ymax of each box: {error}. Restore it, or remove it."
                ) from error
            part.keys.append(_key(stem))
            part.counts.append(len(boxes))
            part.sides.extend(itertools.chain.from_iterable(boxes))
        part.decisions.update(decisions)
        for reason in _LEFT_OUT:
            part.left_out.extend([LeftOut(name, reason)] * decisions[reason])
    return part


def _by_key(input_dir: pathlib.Path, whole: _Part) -> Boxes:
    """Sorts images by key and drops images without a box.

    Raises:
        ValueError: If two files have the same name.
    """
    decisions = dict(sorted((+whole.decisions).items()))
    if not whole.keys:
        starts = array.array("I")
        of_none = (whole.keys, starts, whole.counts, whole.sides)
        return Boxes(*of_none, decisions, whole.left_out)
    import numpy as np  # here, so that workers and inputs without boxes start sooner

    keys = np.array(whole.keys, np.uint64)
    counts = np.array(whole.counts, np.uint32)
    ends = np.cumsum(counts, dtype=np.uint32)
    order = np.argsort(keys)
    same = keys[order][1:] == keys[order][:-1]
    if same.any():
        raise _second_file_error(input_dir, int(keys[order][1:][same][0]))
    order = order[counts[order] > 0]
    return Boxes(
        keys=array.array("Q", keys[order].tobytes()),
        starts=array.array("I", (ends - counts)[order].astype(np.uint32).tobytes()),
        counts=array.array("I", counts[order].tobytes()),
        sides=whole.sides,
        decisions=decisions,
        left_out=whole.left_out,
    )


def _second_file_error(input_dir: pathlib.Path, key: int) -> ValueError:
    xml = (name for name, data in _xml_files(input_dir) if data is not None)
    names = [name for name in xml if _key(name) == key]
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
    """Parses one XML file and returns its usable boxes.

    Args:
        data: Content of the file.
        stem: Base name of the file without its suffix: `<synset>_<number>`.
        synsets: Synsets of all classes.
        decisions: Counts of boxes by decision; the function adds to the counts.

    Raises:
        ValueError: If a side of a box is missing or not a number, or if the XML has
            too many or too deeply nested elements.
        LookupError: If the encoding of the file is unknown.
        SyntaxError: If the file is not XML.
    """
    import xml.etree.ElementTree as ElementTree

    if len(data) > _SMALL_XML_BYTES:
        _require_flat(data)
    root = ElementTree.fromstring(data)
    width, height = (_number(root, f"size/{side}", "0") for side in ("width", "height"))
    synset = stem.rpartition("_")[0]
    boxes = []
    for item in root.iter("object"):
        # In many files of dogs the label is a name, such as "Scottish_deerhound", and
        # not the synset. Only the synset of another class marks another object.
        label = item.findtext("name")
        for corners in item.iter("bndbox"):
            if label != synset and label in synsets:
                decisions[listing.BOX_OTHER_SYNSET] += 1
            elif width <= 0 or height <= 0:
                decisions[listing.BOX_NO_SIZE] += 1
            else:
                sides = [_number(corners, side, "") for side in _SIDES]
                box = _relative_box(sides, width, height, decisions)
                boxes += [] if box is None else [box]
    return boxes


def _require_flat(data: bytes) -> None:
    """Checks number and depth of the elements before they become objects."""
    parser = xml.parsers.expat.ParserCreate()
    count = depth = 0

    def start(name: str, attributes: Mapping[str, str]) -> None:
        nonlocal count, depth
        count, depth = count + 1, depth + 1
        if count > _MAX_ELEMENTS or depth > _MAX_DEPTH:
            raise ValueError(
                f"it must have at most {_MAX_ELEMENTS:,} elements, nested at most "
                f"{_MAX_DEPTH} deep, got more"
            )

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1

    parser.StartElementHandler, parser.EndElementHandler = start, end
    # The caller parses the file again and reports a syntax error then.
    with contextlib.suppress(xml.parsers.expat.ExpatError):
        parser.Parse(data, True)


def _number(element: "ElementTree.Element", path: str, default: str) -> float:
    text = element.findtext(path) or default
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{path} must be a finite number, got {text!r}")
    return number


def _relative_box(
    sides: list[float],
    width: float,
    height: float,
    decisions: "collections.Counter[str]",
) -> Box | None:
    """Returns a box in pixels as fractions of the image's size; None if it is empty."""
    xmin, ymin, xmax, ymax = sides
    ordered = [min(xmin, xmax), min(ymin, ymax), max(xmin, xmax), max(ymin, ymax)]
    relative = [
        side / size
        for side, size in zip(ordered, (width, height, width, height), strict=True)
    ]
    clamped = [min(max(side, 0.0), 1.0) for side in relative]
    # Records store float32: a box must have an area after that rounding too.
    left, top, right, bottom = array.array("f", clamped)
    if left >= right or top >= bottom:
        decisions[listing.BOX_EMPTY] += 1
        return None
    decisions[KEPT] += 1
    decisions[SWAPPED] += ordered != sides
    decisions[CLAMPED] += clamped != relative
    return left, top, right, bottom


def _xml_files(input_dir: pathlib.Path) -> Iterator[_File]:
    """Yields name and content of each XML file, in any order."""
    found = [name for name in TAR_NAMES if os.path.lexists(input_dir / name)]
    found += [name for name in FOLDER_NAMES if _is_folder(input_dir / name)]
    if len(found) > 1:
        raise ValueError(
            f"{input_dir} must hold the bounding boxes once, got "
            f"{' and '.join(found)}. Remove all but one of them."
        )
    for name in found:
        if name in TAR_NAMES:
            members = tars.stream_files(
                input_dir / name, wanted=_is_xml, max_bytes=MAX_XML_BYTES
            )
            yield from ((f"{name}/{member}", data) for member, data in members)
        else:
            yield from _folder_files(input_dir, name)


def _is_folder(path: pathlib.Path) -> bool:
    """Whether to read a path as a folder.

    A link to nowhere counts as one, so that reading it fails instead of being skipped.
    """
    return path.is_dir() or (path.is_symlink() and not path.exists())


def _is_xml(name: str) -> bool:
    return name.lower().endswith(".xml")


def _folder_files(input_dir: pathlib.Path, name: str) -> Iterator[_File]:
    """Yields the files below a folder. Links are followed; each folder is read once."""
    seen = set()
    walk = os.walk(input_dir / name, followlinks=True, onerror=listing.fail)
    for folder, folders, names in walk:
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        for path in (pathlib.Path(folder, base) for base in sorted(names)):
            wanted = _is_xml(path.name) and path.is_file()
            data = files.read_bytes(path, max_bytes=MAX_XML_BYTES) if wanted else None
            yield str(path.relative_to(input_dir)), data


def _key(name: str) -> int:
    stem = os.path.splitext(os.path.basename(name))[0]
    return xxhash.xxh3_64_intdigest(os.fsencode(stem))
