"""Labels the validation images from a label list or from the development kit.

In: the folder with the images. Out: the synset of each image by name. The development
kit numbers the classes in its own order, which is not the label order: the package
comes with the synset of each number (`devkit_synsets.txt`), as `meta.mat` of the kit
gives the same numbers to everybody. `kaggle` reads the list of Kaggle.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence

from converters.inputs import classes, files, kaggle, tars
from converters.inputs.folders import Folder

LABELS_NAME = "synset_labels.txt"
FOLDER_NAME = "ILSVRC2012_devkit_t12"
TRUTH_NAME = "ILSVRC2012_validation_ground_truth.txt"
_ARCHIVE_NAME = f"{FOLDER_NAME}.tar.gz"
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
    if (truth := _truth(folder)) is None:
        raise ValueError(
            f"The validation images in {folder.shown('')} have no class folders, so "
            f"{path} must give the synset of each, one a line in the order of the file "
            f"names; got no such file, no {kaggle.SOLUTION_NAME}, and no {TRUTH_NAME} "
            f"or {_ARCHIVE_NAME} either."
        )
    return {name: truth[_number(name, len(truth)) - 1] for name in names}


def _truth(folder: Folder) -> list[str] | None:
    """Returns the synset of validation image 1, 2 and so on; None without a kit."""
    if (kit := _read_truth(folder)) is None:
        return None
    where, data = kit
    synset_of = dict(enumerate(classes.packaged("devkit_synsets.txt").split(), start=1))
    truth = []
    for line_number, line in enumerate(files.decode_text(data, where).split(), start=1):
        number = int(line) if line.isascii() and line.isdigit() else 0
        if number not in synset_of:
            raise ValueError(
                f"{where} must hold numbers of classes, 1 to {len(synset_of)}, got "
                f"{ascii(line[:20])[1:-1]} as number {line_number}. Take the kit of "
                f"ILSVRC-2012, or list the synset of every image in {LABELS_NAME}."
            )
        truth.append(synset_of[number])
    return truth


def _read_truth(folder: Folder) -> tuple[str, bytes] | None:
    """Returns the path of the ground truth and its bytes; None without a kit."""
    for name in (f"{FOLDER_NAME}/data/{TRUTH_NAME}", TRUTH_NAME):
        if folder.exists(name):
            return folder.shown(name), folder.read(name)
    if not folder.exists(_ARCHIVE_NAME):
        return None
    where = folder.shown(_ARCHIVE_NAME)
    for _, data in tars.stream_files(
        folder,
        _ARCHIVE_NAME,
        wanted=lambda name: posixpath.basename(name) == TRUTH_NAME,
    ):
        if data:
            return f"{TRUTH_NAME} in {where}", data
    raise ValueError(f"{where} must hold {TRUTH_NAME}, got no such file in it.")


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
