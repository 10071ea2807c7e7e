"""Reads the bounding boxes of the training images from the XML files of ILSVRC-2012.

In: the tar of XML files (ILSVRC2012_bbox_train_v2.tar.gz, or unpacked to .tar), or a
folder of XML files. Out: the boxes of an image by its base name, relative to the
displayed size in the XML; an image may have another size. Changed boxes and files, and
left-out boxes and files, are counted by decision; the names of the files are
listed too.
"""

import array
import bisect
import collections
import functools
import io
import itertools
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from converters.engines import processes
from converters.inputs import devkit, tars
from converters.inputs.image import Box
from converters.inputs.listing import LeftOut, Reason
from tfpipe.location.browse import Folder

if TYPE_CHECKING:
    import xml.etree.ElementTree as ElementTree

_File = tuple[str, bytes | None]  # name and content; None for other files

# Files of a task for a worker, of 0.1 s.
_CHUNK_FILES = 2048
_CHUNK_BYTES = 4 << 20
# An annotation has a few hundred bytes. These limits protect the memory from other
# files and from hostile ones: parsing 16 MB of tags takes 500 MB.
MAX_XML_BYTES = 16 << 20
_MAX_ELEMENTS, _MAX_DEPTH = 1_000_000, 100
_SMALL_XML_BYTES = 16 << 10

TAR_NAMES = ("ILSVRC2012_bbox_train_v2.tar.gz", "ILSVRC2012_bbox_train_v2.tar")
FOLDER_NAMES = ("bbox", "Annotation", devkit.BOXES)

# Decisions about boxes.
KEPT = "bbox_kept"
SWAPPED = "bbox_swapped_corners"
CLAMPED = "bbox_clamped"

_REASONS = {reason.slug: reason for reason in Reason}
_SIDES = ("xmin", "ymin", "xmax", "ymax")


class Boxes(NamedTuple):
    """Boxes of images by name; 24 bytes a box.

    Attributes:
        keys: uint64 [num_boxes], hash of the name of the image of each box, sorted.
        sides: float32 [4 * num_boxes], xmin, ymin, xmax and ymax of all boxes.
        decisions: Number of boxes and files by decision: kept, changed or left out.
        left_out: The left-out files, and the files of left-out boxes.
    """

    keys: "array.array[int]"
    sides: "array.array[float]"
    decisions: Mapping[str, int]
    left_out: Sequence[LeftOut]

    def of(self, name: str) -> list[Box]:
        """Returns the boxes of an image, 0 to 1, in the order of its XML file.

        Only the base name without the suffix matters. The boxes are those of train: a
        validation image in val/ may have the base name of another image.
        """
        if name.startswith("val/"):
            return []
        key = _key(name)
        first, end = bisect.bisect_left(self.keys, key), bisect.bisect(self.keys, key)
        sides = iter(self.sides[4 * first : 4 * end])
        return list(zip(sides, sides, sides, sides, strict=True))

    @property
    def num_boxes(self) -> int:
        """Number of boxes of all images."""
        return len(self.sides) // len(_SIDES)

    def digest(self) -> str:
        """Returns a digest of names and boxes; the order of the files has no effect."""
        counts = collections.Counter(self.keys)
        numbers = array.array("I", counts.values()).tobytes()
        digest = xxhash.xxh3_128(array.array("Q", counts).tobytes() + numbers)
        digest.update(self.sides.tobytes())
        return digest.hexdigest()


# By name of a file, the sides of its boxes, and decisions about its boxes.
_Parsed = list[tuple[str, "array.array[float] | None", "collections.Counter[str]"]]


def read_boxes(
    source: Folder, synsets: Collection[str], *, num_workers: int = 1
) -> Boxes:
    """Reads the boxes in an input folder; none if it has neither tar nor XML files.

    All boxes are read before the first shard is written, because the counts of
    decisions are needed as a whole. This process reads the files fast; the workers
    parse the files slowly. The synsets are those of all classes.
    """
    sides_of: dict[int, array.array[float]] = {}
    total: collections.Counter[str] = collections.Counter()
    left_out: list[LeftOut] = []
    parts = processes.stream(
        functools.partial(_parse_files, source.shown(""), frozenset(synsets)),
        _chunks(_xml_files(source)),
        num_workers=num_workers,
    )
    for name, sides, decisions in itertools.chain.from_iterable(parts):
        total.update(decisions)
        for slug in sorted(decisions.keys() & _REASONS.keys()):
            left_out += [LeftOut(name, _REASONS[slug])] * decisions[slug]
        if sides is not None and sides_of.setdefault(_key(name), sides) is not sides:
            raise ValueError(
                f"{source.shown('')} must hold one XML file an image, got a second one "
                f"for {_stem(name)}: {name}. Remove one of them."
            )
    boxes = Boxes(
        array.array("Q"), array.array("f"), dict(sorted(total.items())), left_out
    )
    for key in sorted(sides_of):
        boxes.keys.extend([key] * (len(sides_of[key]) // len(_SIDES)))
        boxes.sides.extend(sides_of[key])
    return boxes


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
    where: str, synsets: Collection[str], files: Sequence[_File]
) -> _Parsed:
    """Parses some XML files; runs in worker processes."""
    parsed: _Parsed = []
    for name, data in files:
        stem, sides = _stem(name), None
        decisions: collections.Counter[str] = collections.Counter()
        if data is None:
            decisions[Reason.BBOX_FILE_NOT_READ.slug] += 1
        elif stem.rpartition("_")[0] not in synsets:
            decisions[Reason.BBOX_FILE_OF_OTHER_CLASS.slug] += 1
        else:
            try:
                boxes = parse_xml(data, stem, synsets, decisions)
            except (SyntaxError, ValueError, LookupError) as error:
                raise ValueError(
                    f"{name} in {where} must be an annotation with xmin, ymin, xmax "
                    f"and ymax of each box: {error}. Restore it, or remove it."
                ) from error
            sides = array.array("f", itertools.chain.from_iterable(boxes))
        parsed.append((name, sides, +decisions))
    return parsed


def parse_xml(
    data: bytes,
    stem: str,
    synsets: Collection[str],
    decisions: "collections.Counter[str]",
) -> list[Box]:
    """Returns the usable boxes of an XML file, and adds to the counts of decisions.

    The stem is the base name of the file without its suffix: `<synset>_<number>`.

    Raises:
        LookupError: If the encoding of the file is unknown.
        SyntaxError: If the file is not XML.
    """
    root = _root(data)
    width, height = (_number(root, f"size/{side}", "0") for side in ("width", "height"))
    synset = stem.rpartition("_")[0]
    boxes = []
    for item in root.iter("object"):
        # In many files of dogs the label is a name, such as "Scottish_deerhound", and
        # not the synset. Only the synset of another class marks another object.
        label = item.findtext("name")
        for corners in item.iter("bndbox"):
            if label != synset and label in synsets:
                decisions[Reason.BBOX_DROPPED_OTHER_SYNSET.slug] += 1
            elif width <= 0 or height <= 0:
                decisions[Reason.BBOX_DROPPED_NO_SIZE.slug] += 1
            else:
                sides = [_number(corners, side, "") for side in _SIDES]
                box = _relative_box(sides, width, height, decisions)
                boxes += [] if box is None else [box]
    return boxes


def _root(data: bytes) -> "ElementTree.Element":
    """Returns the root of an XML file whose elements are few and in few others."""
    import xml.etree.ElementTree as ElementTree

    if len(data) <= _SMALL_XML_BYTES:
        return ElementTree.fromstring(data)
    events = ElementTree.iterparse(io.BytesIO(data), ("start", "end"))
    depth, root = 1, next(events)[1]
    for number, (event, _) in enumerate(events, 1):
        depth += 1 if event == "start" else -1
        if number >= 2 * _MAX_ELEMENTS or depth > _MAX_DEPTH:
            raise ValueError(
                f"it must have at most {_MAX_ELEMENTS:,} elements, nested at most "
                f"{_MAX_DEPTH} deep, got more"
            )
    return root  # type: ignore[no-any-return]


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
        decisions[Reason.BBOX_DROPPED_EMPTY.slug] += 1
        return None
    decisions[KEPT] += 1
    decisions[SWAPPED] += ordered != sides
    decisions[CLAMPED] += clamped != relative
    return left, top, right, bottom


def _xml_files(source: Folder) -> Iterator[_File]:
    """Yields name and content of each XML file, in any order."""
    # A link to nowhere counts as a folder, so that reading fails.
    folders = [
        name
        for name in FOLDER_NAMES
        if source.is_folder(name) or (source.exists(name) and not source.is_file(name))
    ]
    packed = [*filter(source.exists, TAR_NAMES)]
    if len(folders) + len(packed) > 1:
        raise ValueError(
            f"{source.shown('')} must hold the bounding boxes once, got "
            f"{' and '.join(packed + folders)}. Remove all but one of them."
        )
    if folders and not source.location.is_local:
        raise ValueError(
            f"{source.shown(folders[0])} holds bounding boxes as XML files, which are "
            f"read on a disk only. Pack the folder as {TAR_NAMES[0]}, put it beside "
            "train/, and remove the folder."
        )
    for above in folders:
        for base in source.files_below(above, follow=True):
            name = f"{above}/{base}"
            wanted = _is_xml(base) and source.is_file(name)
            yield name, source.read(name, max_bytes=MAX_XML_BYTES) if wanted else None
    for name in packed:
        members = tars.stream_files(
            source, name, wanted=_is_xml, max_bytes=MAX_XML_BYTES
        )
        yield from ((f"{name}/{member}", data) for member, data in members)


def _is_xml(name: str) -> bool:
    return name.lower().endswith(".xml")


def _stem(name: str) -> str:
    return os.path.splitext(os.path.basename(name))[0]


def _key(name: str) -> int:
    return xxhash.xxh3_64_intdigest(os.fsencode(_stem(name)))
