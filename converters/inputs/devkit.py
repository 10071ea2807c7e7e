"""Labels the validation images from a label list or from the development kit.

In: the folder with the images. Out: the synset of each image by name. The development
kit numbers the classes in its own order, which is not the label order: its `meta.mat`
gives the synset of each number. `kaggle` reads the list of Kaggle.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence

from converters.inputs import files, kaggle, matfile, tars
from converters.inputs.folders import Folder

LABELS_NAME = "synset_labels.txt"
FOLDER_NAME = "ILSVRC2012_devkit_t12"
TRUTH_NAME = "ILSVRC2012_validation_ground_truth.txt"
META_NAME = "meta.mat"
_KIT_NAMES = (TRUTH_NAME, META_NAME)
_ARCHIVE_NAME = f"{FOLDER_NAME}.tar.gz"

_NUM_CLASSES = 1000
_NUMBER_FIELD, _SYNSET_FIELD = "ILSVRC2012_ID", "WNID"
_NUMBER = re.compile(r"ILSVRC2012_val_(\d{8})\.")


def validation_synsets(
    folder: Folder, names: Sequence[str], listed: Sequence[str]
) -> Mapping[str, str]:
    """Returns the synset of each image of a validation split without class folders.

    `synset_labels.txt` is used if it exists: its lines are in the order of the names.
    Otherwise Kaggle's `LOC_val_solution.csv` is used, which names the images, or else
    the ground truth of the development kit: line N is the class of the image with
    number N in its name.

    Args:
        folder: Folder with the label list or the development kit.
        names: Names of the images, in order.
        listed: Names of the images and of other entries that are named like an image
            but are not files; the label list may have a line for these too.

    Raises:
        ValueError: If there is neither source, or if it does not fit the images.
    """
    path = folder.shown(LABELS_NAME)
    if folder.exists(LABELS_NAME):
        synsets = folder.read_text(LABELS_NAME).split()
        for owners in (listed, names):
            if len(owners) == len(synsets):
                return dict(zip(owners, synsets, strict=True))
        raise ValueError(
            f"{path} must have a line for each of the {len(names)} images in "
            f"{folder.shown('val')}, got {len(synsets)}."
        )
    if (synset_of := kaggle.validation_synsets(folder, names)) is not None:
        return synset_of
    truth = _truth(folder)
    if truth is None:
        raise ValueError(
            f"The validation images in {folder.shown('')} have no class folders, so "
            f"{path} must give the synset of each, one a line in the order of the file "
            f"names; got no such file, no {kaggle.SOLUTION_NAME}, and no {FOLDER_NAME} "
            f"or {FOLDER_NAME}.tar.gz with {TRUTH_NAME} and {META_NAME} either."
        )
    return {name: truth[_number(name, len(truth)) - 1] for name in names}


def _read_kit(folder: Folder) -> tuple[str, dict[str, bytes]] | None:
    """Returns the path of the development kit and its two files; None without a kit.

    Raises:
        ValueError: If the tar.gz is damaged or lacks one of the files.
    """
    for above in (f"{FOLDER_NAME}/data", ""):
        paths = {name: f"{above}/{name}".lstrip("/") for name in _KIT_NAMES}
        if all(map(folder.exists, paths.values())):
            return folder.shown(above), {n: folder.read(p) for n, p in paths.items()}
    if not folder.exists(_ARCHIVE_NAME):
        return None
    kit = {
        posixpath.basename(name): data
        for name, data in tars.stream_files(
            folder,
            _ARCHIVE_NAME,
            wanted=lambda name: posixpath.basename(name) in _KIT_NAMES,
        )
        if data
    }
    where = folder.shown(_ARCHIVE_NAME)
    for name in _KIT_NAMES:
        if name not in kit:
            raise ValueError(f"{where} must hold {name}, got no such file in it.")
    return where, kit


def _truth(folder: Folder) -> list[str] | None:
    """Returns the synset of validation image 1, 2 and so on; None without a kit."""
    kit = _read_kit(folder)
    if kit is None:
        return None
    where, content = kit
    try:
        rows = matfile.read_structs(content[META_NAME], "synsets")
    except ValueError as error:
        raise ValueError(f"{META_NAME} in {where}: {error}") from error
    # Numbers above 1000 are inner nodes of the hierarchy, not classes.
    synsets = {
        number: synset
        for number, synset in (_synset(row, where) for row in rows)
        if number <= _NUM_CLASSES
    }
    text = files.decode_text(content[TRUTH_NAME], f"{TRUTH_NAME} in {where}")
    truth = []
    for line_number, line in enumerate(text.split(), start=1):
        number = int(line) if line.isascii() and line.isdigit() else 0
        if number not in synsets:
            raise ValueError(
                f"{TRUTH_NAME} in {where} must hold numbers of classes in "
                f"{META_NAME}, got {ascii(line[:20])[1:-1]} as number {line_number}."
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
