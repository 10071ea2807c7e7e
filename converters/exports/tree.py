"""A tree of image files: a folder for every class, and files for labels and boxes.

In: the records of a plan. Out: image files, as converters.folder and
converters.imagenet read them; boxes as PASCAL VOC XML, from which converters.imagenet
reads the same float32 numbers again; lists of classes and labels.
"""

import array
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from xml.sax import saxutils

import xxhash

from converters.exports import naming
from converters.exports.plan import ExportedRecord, ExportPlan, Part
from converters.inputs import devkit
from converters.jobs import side_files
from tfpipe.shards import index
from tfpipe.shards.sql import PARQUET, one_file

BOXES_NAME = "bbox"

_BOX_SIDES = ("xmin", "ymin", "xmax", "ymax")


def annotation(item: ExportedRecord, synsets: Mapping[int, str]) -> str:
    """Returns the annotation of an image with boxes.

    Args:
        item: The record.
        synsets: Synset of every label.
    """
    row = item.row
    sizes = (row.width, row.height, row.width, row.height)
    folder, _, base = item.path.rpartition("/")
    lines = [
        "<annotation>",
        f"\t<folder>{_xml_text(folder.rpartition('/')[2])}</folder>",
        f"\t<filename>{_xml_text(os.path.splitext(base)[0])}</filename>",
        "\t<size>",
        f"\t\t<width>{row.width}</width>",
        f"\t\t<height>{row.height}</height>",
        "\t\t<depth>3</depth>",
        "\t</size>",
    ]
    labels = item.box_labels or [row.label] * len(item.boxes)
    for box, label in zip(item.boxes, labels, strict=True):
        lines += ["\t<object>", f"\t\t<name>{_xml_text(synsets.get(label, ''))}</name>"]
        lines.append("\t\t<bndbox>")
        for name, side, size in zip(_BOX_SIDES, box, sizes, strict=True):
            lines.append(f"\t\t\t<{name}>{_pixels(side, size)}</{name}>")
        lines += ["\t\t</bndbox>", "\t</object>"]
    return "\n".join([*lines, "</annotation>", ""])


def _pixels(side: float, size: int) -> str:
    """Returns the shortest number of pixels that gives the same float32 again."""
    whole = round(side * size)
    if array.array("f", [whole / size])[0] == side:
        return str(whole)
    return repr(side * size)


def _xml_text(text: str) -> str:
    # Characters that XML cannot hold come from hostile names alone.
    printable = "".join(c if c.isprintable() else "?" for c in text)
    return saxutils.escape(printable.encode(errors="replace").decode())


SYNSETS_NAME, WORDS_NAME = "synsets.txt", "synset_words.txt"


def write_part(
    plan: ExportPlan,
    part: Part,
    items: Iterable[ExportedRecord],
    folder: pathlib.Path,
    *,
    fsync: bool,
) -> index.File:
    """Writes the image files of a part.

    Returns:
        The bytes of all images, and a digest of their paths and digests.

    Raises:
        OSError: If a file cannot be written.
    """
    synsets = {item.label: item.synset for item in plan.source.classes}
    digest, num_bytes = xxhash.xxh3_128(), 0
    made: set[str] = set()
    for item in items:
        path = naming.on_disk(item.path)
        _write(folder, path, item.encoded, made)
        if item.boxes:
            stem = os.path.splitext(os.path.basename(path))[0]
            name = f"{BOXES_NAME}/{_class_folder(item)}/{stem}.xml"
            text = annotation(item, synsets).encode()
            _write(folder, naming.on_disk(name), text, made)
        digest.update(f"{item.path}\0{item.row.digest}\n".encode())
        num_bytes += len(item.encoded)
    if fsync:
        os.sync()  # one call for thousands of small files
    return index.File(num_bytes=num_bytes, digest=digest.hexdigest())


def _class_folder(item: ExportedRecord) -> str:
    parts = [part for part in item.row.synset.split("/") if part not in ("", ".", "..")]
    return "/".join(parts) or f"class_{item.row.label:04d}"


def _write(folder: pathlib.Path, path: str, content: bytes, made: set[str]) -> None:
    """Writes a file below a folder; `made` has the folders that are there."""
    target = f"{folder}/{path}"
    parent = os.path.dirname(target)
    if parent not in made:
        os.makedirs(parent, exist_ok=True)
        made.add(parent)
    with open(target, "wb", buffering=0) as file:
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]


def side_files_of(plan: ExportPlan) -> dict[str, bytes]:
    """Returns the files that say which label a class has, by name."""
    known = plan.source.classes
    if not is_imagenet(plan):
        lines = side_files.as_lines(f"{item.label} {item.synset}" for item in known)
        return {side_files.LABELS_NAME: lines}
    files = {
        SYNSETS_NAME: side_files.as_lines([item.synset for item in known]),
        WORDS_NAME: side_files.as_lines(
            [f"{item.synset}\t{item.text}" for item in known]
        ),
    }
    flat = _flat_labels(plan)
    return files | ({devkit.LABELS_NAME: side_files.as_lines(flat)} if flat else {})


def is_imagenet(plan: ExportPlan) -> bool:
    """Whether converters.imagenet reads the tree; converters.folder reads any other."""
    return naming.is_imagenet(plan.source, {part.split for part in plan.parts})


def _flat_labels(plan: ExportPlan) -> Sequence[str]:
    """Returns the synset of every image of a val/ without class folders, by name."""
    query = (
        f"SELECT synset FROM {PARQUET} "
        "WHERE regexp_matches(path, '^val/[^/]*$') ORDER BY path"
    )
    with index.catalog_connection() as connection:
        rows = connection.execute(query, [one_file(plan.rows_path)]).fetchall()
    return [synset for (synset,) in rows]
