"""A tree of image files: a folder for each class, and files for labels and boxes.

In: the records of a plan. Out: image files, as converters.folder and
converters.imagenet read them; boxes as XML; lists of classes and labels.
"""

import os
import pathlib
from collections.abc import Iterable, Sequence

import xxhash

from converters.exports import naming, voc
from converters.exports.items import ExportedRecord
from converters.exports.plan import ExportPlan, Part
from converters.inputs import classes, devkit
from converters.inputs.classes import Class
from converters.jobs import side_files
from tfpipe.shards import index
from tfpipe.shards.sql import one_file

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
        path = naming.on_disk(item.row.path)
        _write(folder, path, item.encoded, made)
        if item.boxes:
            stem = os.path.splitext(os.path.basename(path))[0]
            name = f"{voc.FOLDER_NAME}/{_class_folder(item)}/{stem}.xml"
            text = voc.annotation(item, synsets).encode()
            _write(folder, naming.on_disk(name), text, made)
        digest.update(f"{item.row.path}\0{item.row.digest}\n".encode())
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
        text = "".join(f"{item.label} {item.synset}\n" for item in known)
        return {side_files.LABELS_NAME: text.encode()}
    files = {
        SYNSETS_NAME: _lines([item.synset for item in known]),
        WORDS_NAME: _lines([f"{item.synset}\t{item.text}" for item in known]),
    }
    flat = _flat_labels(plan)
    return files | ({devkit.LABELS_NAME: _lines(flat)} if flat else {})


def is_imagenet(plan: ExportPlan) -> bool:
    """Whether converters.imagenet reads the tree; converters.folder reads any other."""
    command = plan.source.known.made_by.get("command")
    bad = [item for item in plan.source.classes if not _is_synset(item)]
    base = plan.source.known.label_base
    splits = {part.split for part in plan.parts}
    known = "train" in splits and splits <= {"train", "validation"}
    is_one = command == naming.IMAGENET and base == classes.LABEL_BASE
    return is_one and known and not bad


def _is_synset(item: Class) -> bool:
    return bool(item.synset) and item.synset.split() == [item.synset]


def _flat_labels(plan: ExportPlan) -> Sequence[str]:
    """Returns the synset of each image of a val/ without class folders, by name."""
    query = (
        "SELECT synset FROM read_parquet(?) "
        "WHERE regexp_matches(path, '^val/[^/]*$') ORDER BY path"
    )
    with index.catalog_connection() as connection:
        rows = connection.execute(query, [one_file(plan.rows_path)]).fetchall()
    return [synset for (synset,) in rows]


def _lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
