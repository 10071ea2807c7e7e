"""Bounding boxes as PASCAL VOC XML, as ILSVRC-2012 comes with.

In: the boxes of a record. Out: the text of its annotation. converters.imagenet reads
from it the same float32 numbers again.
"""

import array
import os
from collections.abc import Mapping
from xml.sax import saxutils

from converters.exports.items import ExportedRecord

FOLDER_NAME = "bbox"

_SIDES = ("xmin", "ymin", "xmax", "ymax")


def annotation(item: ExportedRecord, synsets: Mapping[int, str]) -> str:
    """Returns the annotation of an image with boxes.

    Args:
        item: The record.
        synsets: Synset of each label.
    """
    row = item.row
    sizes = (row.width, row.height, row.width, row.height)
    folder, _, base = row.path.rpartition("/")
    lines = [
        "<annotation>",
        f"\t<folder>{_text(folder.rpartition('/')[2])}</folder>",
        f"\t<filename>{_text(os.path.splitext(base)[0])}</filename>",
        "\t<size>",
        f"\t\t<width>{row.width}</width>",
        f"\t\t<height>{row.height}</height>",
        "\t\t<depth>3</depth>",
        "\t</size>",
    ]
    labels = item.box_labels or [row.label] * len(item.boxes)
    for box, label in zip(item.boxes, labels, strict=True):
        lines += ["\t<object>", f"\t\t<name>{_text(synsets.get(label, ''))}</name>"]
        lines.append("\t\t<bndbox>")
        for name, side, size in zip(_SIDES, box, sizes, strict=True):
            lines.append(f"\t\t\t<{name}>{_pixels(side, size)}</{name}>")
        lines += ["\t\t</bndbox>", "\t</object>"]
    return "\n".join([*lines, "</annotation>", ""])


def _pixels(side: float, size: int) -> str:
    """Returns the shortest number of pixels that gives the same float32 again."""
    whole = round(side * size)
    if array.array("f", [whole / size])[0] == side:
        return str(whole)
    return repr(side * size)


def _text(text: str) -> str:
    # Characters that XML cannot hold come from hostile names alone.
    printable = "".join(c if c.isprintable() else "?" for c in text)
    return saxutils.escape(printable.encode(errors="replace").decode())
