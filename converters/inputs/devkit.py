"""Labels the validation images from a label list or from the development kit.

In: the folder with the images. Out: the synset of each image by name. The development
kit numbers the classes in its own order, which is not the label order: its `meta.mat`
gives the synset of each number. `kaggle` reads the list of Kaggle.
"""

import os
import posixpath
import re
from collections.abc import Mapping, Sequence

from converters.inputs import files, kaggle, matfile, tars
from converters.inputs.folders import Folder

LABELS_NAME = "synset_labels.txt"
FOLDER_NAME = "ILSVRC2012_devkit_t12"
TRUTH_NAME = "ILSVRC2012_validation_ground_truth.txt"
META_NAME = "meta.mat"
_KIT_NAMES = (META_NAME, TRUTH_NAME)
_ARCHIVE_NAME = f"{FOLDER_NAME}.tar.gz"

_NUM_CLASSES = 1000
_NUMBER_FIELD, _SYNSET_FIELD = "ILSVRC2012_ID", "WNID"
_NUMBER = re.compile(r"ILSVRC2012_val_(\d{8})\.")


def validation_synsets(
    folder: Folder, names: Sequence[str], listed: Sequence[str]
) -> Mapping[str, str]:
    """Returns the synset of each image of a validation split without class folders.

    | file | its lines |
    |---|---|
    | `synset_labels.txt`, if it exists | in the order of the names |
    | else Kaggle's `LOC_val_solution.csv` | name the images |
    | else the ground truth of the development kit | line N is of the image number N |

    The label list may also have a line for all names in `listed`: those of the images
    and of other entries with the name of an image.
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
    if folder.exists(kaggle.SOLUTION_NAME):
        synset_of = kaggle.validation_synsets(folder)
        stems = {name: os.path.splitext(name)[0] for name in names}
        if missing := [name for name in names if stems[name] not in synset_of]:
            raise ValueError(
                f"{folder.shown(kaggle.SOLUTION_NAME)} must have a line for each of "
                f"the {len(names)} images in val, got none for {missing[0]}."
            )
        return {name: synset_of[stem] for name, stem in stems.items()}
    if (kit := _read_kit(folder)) is None:
        raise ValueError(
            f"The validation images in {folder.shown('')} have no class folders, so "
            f"{path} must give the synset of each, one a line in the order of the file "
            f"names; got no such file, no {kaggle.SOLUTION_NAME}, and no {FOLDER_NAME} "
            f"or {_ARCHIVE_NAME} with {TRUTH_NAME} and {META_NAME} either."
        )
    truth = _truth(*kit)
    return {name: truth[_number(name, len(truth)) - 1] for name in names}


def _read_kit(folder: Folder) -> tuple[str, bytes, bytes] | None:
    """Returns the path of the development kit and its two files; None without a kit."""
    for above in (f"{FOLDER_NAME}/data", ""):
        meta, truth = (posixpath.join(above, name) for name in _KIT_NAMES)
        if folder.exists(meta) and folder.exists(truth):
            return folder.shown(above), folder.read(meta), folder.read(truth)
    if not folder.exists(_ARCHIVE_NAME):
        return None
    kit: dict[str, bytes] = {}
    for name, data in tars.stream_files(
        folder,
        _ARCHIVE_NAME,
        wanted=lambda name: posixpath.basename(name) in _KIT_NAMES,
    ):
        kit |= {posixpath.basename(name): data} if data else {}
    where = folder.shown(_ARCHIVE_NAME)
    for name in _KIT_NAMES:
        if name not in kit:
            raise ValueError(f"{where} must hold {name}, got no such file in it.")
    return where, kit[META_NAME], kit[TRUTH_NAME]


def _truth(where: str, meta: bytes, truth: bytes) -> list[str]:
    """Returns the synset of validation image 1, 2 and so on."""
    try:
        rows = matfile.read_structs(meta, "synsets")
    except ValueError as error:
        raise ValueError(f"{META_NAME} in {where}: {error}") from error
    synsets: dict[int, str] = {}
    for row in rows:
        number, synset = row.get(_NUMBER_FIELD), row.get(_SYNSET_FIELD)
        is_whole = isinstance(number, float) and number.is_integer()
        if not is_whole or not isinstance(synset, str):
            raise ValueError(
                f"{META_NAME} in {where} must give {_NUMBER_FIELD}, a whole number, "
                f"and {_SYNSET_FIELD} of each class, got {row!r:.80}: it may be the "
                "kit of another year. Take that of ILSVRC-2012, or list the synset of "
                f"every image in {LABELS_NAME}."
            )
        synsets[int(number or 0)] = synset
    # Numbers above 1000 are inner nodes of the hierarchy, not classes.
    synsets = {n: synset for n, synset in synsets.items() if n <= _NUM_CLASSES}
    lines = files.decode_text(truth, f"{TRUTH_NAME} in {where}").split()
    for line_number, line in enumerate(lines, start=1):
        if not (line.isascii() and line.isdigit() and int(line) in synsets):
            raise ValueError(
                f"{TRUTH_NAME} in {where} must hold numbers of classes in "
                f"{META_NAME}, got {ascii(line[:20])[1:-1]} as number {line_number}."
            )
    return [synsets[int(line)] for line in lines]


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
