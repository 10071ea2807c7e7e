"""Labels the validation images from a label list or from the development kit.

In: the folder with the images. Out: the synset of each image by name. The development
kit numbers the classes in its own order, which is not the label order: its `meta.mat`
gives the synset of each number. `kaggle` reads the list of Kaggle.
"""

import os
import pathlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from converters.inputs import files, kaggle, matfile, tars

LABELS_NAME = "synset_labels.txt"
FOLDER_NAME = "ILSVRC2012_devkit_t12"
TRUTH_NAME = "ILSVRC2012_validation_ground_truth.txt"
META_NAME = "meta.mat"

_NUM_CLASSES = 1000
_NUMBER_FIELD, _SYNSET_FIELD = "ILSVRC2012_ID", "WNID"
_NUMBER = re.compile(r"ILSVRC2012_val_(\d{8})\.")


def validation_synsets(
    input_dir: pathlib.Path, names: Sequence[str], listed: Sequence[str]
) -> Mapping[str, str]:
    """Returns the synset of each image of a validation split without class folders.

    `synset_labels.txt` is used if it exists: its lines are in the order of the names.
    Otherwise Kaggle's `LOC_val_solution.csv` is used, which names the images, or else
    the ground truth of the development kit: line N is the class of the image with
    number N in its name.

    Args:
        input_dir: Folder with the label list or the development kit.
        names: Names of the images, in order.
        listed: Names of the images and of other entries that are named like an image
            but are not files; the label list may have a line for these too.

    Raises:
        ValueError: If there is neither source, or if it does not fit the images.
    """
    path = input_dir / LABELS_NAME
    if os.path.lexists(path):
        synsets = files.read_text(path).split()
        for owners in (listed, names):
            if len(owners) == len(synsets):
                return dict(zip(owners, synsets, strict=True))
        raise ValueError(
            f"{path} must have a line for each of the {len(names)} images in "
            f"{input_dir / 'val'}, got {len(synsets)}."
        )
    if (synset_of := kaggle.validation_synsets(input_dir, names)) is not None:
        return synset_of
    kit = _read_kit(input_dir)
    if kit is None:
        raise ValueError(
            f"The validation images in {input_dir} have no class folders, so {path} "
            "must give the synset of each, one a line in the order of the file names; "
            f"got no such file, no {kaggle.SOLUTION_NAME}, and no {FOLDER_NAME} or "
            f"{FOLDER_NAME}.tar.gz with {TRUTH_NAME} and {META_NAME} either."
        )
    truth = _truth(kit)
    return {name: truth[_number(name, len(truth)) - 1] for name in names}


class _Kit(NamedTuple):
    """The contents of two files of the development kit, and its path for errors."""

    where: str
    truth: bytes
    meta: bytes


def _read_kit(input_dir: pathlib.Path) -> _Kit | None:
    """Reads the two files from a folder or from the downloaded tar.gz; None if absent.

    Raises:
        ValueError: If the tar.gz is damaged or lacks one of the files.
    """
    for folder in (input_dir / FOLDER_NAME / "data", input_dir):
        paths = (folder / TRUTH_NAME, folder / META_NAME)
        if all(path.exists() for path in paths):
            return _Kit(str(folder), *map(files.read_bytes, paths))
    archive = input_dir / f"{FOLDER_NAME}.tar.gz"
    if not os.path.lexists(archive):
        return None
    wanted = {TRUTH_NAME: b"", META_NAME: b""}

    def is_wanted(name: str) -> bool:
        return posixpath.basename(name) in wanted

    for name, data in tars.stream_files(archive, wanted=is_wanted):
        if data is not None:
            wanted[posixpath.basename(name)] = data
    missing = [name for name, data in wanted.items() if not data]
    if missing:
        raise ValueError(f"{archive} must hold {missing[0]}, got no such file in it.")
    return _Kit(str(archive), wanted[TRUTH_NAME], wanted[META_NAME])


def _truth(kit: _Kit) -> list[str]:
    """Returns the synset of validation image 1, 2 and so on."""
    try:
        rows = matfile.read_structs(kit.meta, "synsets")
    except ValueError as error:
        raise ValueError(f"{META_NAME} in {kit.where}: {error}") from error
    synsets = dict(_synset(row, kit.where) for row in rows)
    # Numbers above 1000 are inner nodes of the hierarchy, not classes.
    synsets = {n: synset for n, synset in synsets.items() if n <= _NUM_CLASSES}
    text = files.decode_text(kit.truth, f"{TRUTH_NAME} in {kit.where}")
    truth = []
    for place, line in enumerate(text.split(), start=1):
        number = int(line) if line.isascii() and line.isdigit() else 0
        if number not in synsets:
            raise ValueError(
                f"{TRUTH_NAME} in {kit.where} must hold numbers of classes in "
                f"{META_NAME}, got {ascii(line[:20])[1:-1]} as number {place}."
            )
        truth.append(synsets[number])
    return truth


def _synset(row: matfile.Fields, where: str) -> tuple[int, str]:
    """Returns number and synset of a class from its row in meta.mat."""
    number, synset = row.get(_NUMBER_FIELD), row.get(_SYNSET_FIELD)
    whole = isinstance(number, float) and number.is_integer()
    if not whole or not isinstance(synset, str):
        raise ValueError(
            f"{META_NAME} in {where} must give {_NUMBER_FIELD}, a whole number, and "
            f"{_SYNSET_FIELD} of each class, got {row!r:.80}: it may be the kit of "
            "another year. Take that of ILSVRC-2012, or list the synset of every "
            f"image in {LABELS_NAME}."
        )
    return int(number or 0), synset


def _number(name: str, count: int) -> int:
    """Returns the number in the name of a validation image, from 1 to `count`."""
    match = _NUMBER.match(name)
    if not match or not 1 <= int(match[1]) <= count:
        raise ValueError(
            f"val/{name} must be named ILSVRC2012_val_<number>, from 00000001 to "
            f"{count:08d}, because {TRUTH_NAME} lists classes by this number. Rename "
            f"it, or list the synset of every image in {LABELS_NAME}."
        )
    return int(match[1])
