"""Labels the validation images of ILSVRC-2012 from a list.

In: the folder with the lists. Out: the synset of each image by name. The development
kit numbers the classes in its own order, other than the label order:
`data/devkit_synsets.txt` has the synset of each number. The folder of Kaggle holds:

    ILSVRC/Data/CLS-LOC/train/<synset>/*.JPEG, val/*.JPEG, test/*.JPEG
    ILSVRC/Annotations/CLS-LOC/train/<synset>/*.xml
    LOC_synset_mapping.txt, LOC_val_solution.csv
"""

import csv
import pathlib
import posixpath
from collections.abc import Mapping, Sequence

from converters.inputs import tars
from tfpipe.location import parts
from tfpipe.location.browse import Folder

LABELS_NAME = "synset_labels.txt"
FOLDER_NAME = "ILSVRC2012_devkit_t12"
TRUTH_NAME = "ILSVRC2012_validation_ground_truth.txt"
_ARCHIVE_NAME = f"{FOLDER_NAME}.tar.gz"
_SYNSETS = pathlib.Path(__file__).with_name("data") / "devkit_synsets.txt"
# Names of Kaggle.
IMAGES = "ILSVRC/Data/CLS-LOC"
BOXES = "ILSVRC/Annotations/CLS-LOC/train"
MAPPING_NAME = "LOC_synset_mapping.txt"
SOLUTION_NAME = "LOC_val_solution.csv"
# The folders inside, which lack the lists.
_INSIDE = ("Data/CLS-LOC", "CLS-LOC/train")
_FIELDS = ["ImageId", "PredictionString"]


def validation_synsets(
    folder: Folder, names: Sequence[str], listed: Sequence[str]
) -> Mapping[str, str]:
    """Returns the synset of each image of a validation split without class folders.

    | file | its lines |
    |---|---|
    | `synset_labels.txt`, if it exists | in the order of the names |
    | else Kaggle's `LOC_val_solution.csv` | name the images |
    | else the ground truth of the development kit | line N is of the image number N |

    The label list may also have a line for all names in `listed`: the names of images
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
    if folder.exists(source := SOLUTION_NAME):
        synset_of = _solution(folder)
    else:
        source = TRUTH_NAME
        numbered = enumerate(_truth(folder), start=1)
        synset_of = {f"ILSVRC2012_val_{n:08d}": synset for n, synset in numbered}
    stems = {name: name.partition(".")[0] for name in names}
    if missing := [name for name in names if stems[name] not in synset_of]:
        raise ValueError(
            f"{folder.shown(source)} must have a line for each of the {len(names)} "
            f"images in val, got none for {missing[0]}. The last line is of "
            f"{max(synset_of, default='no image')}. Rename the image, or list the "
            f"synset of every image in {LABELS_NAME}."
        )
    return {name: synset_of[stem] for name, stem in stems.items()}


def _truth(folder: Folder) -> list[str]:
    """Returns the synset of validation image 1, 2 and so on."""
    beside = (f"{FOLDER_NAME}/data/{TRUTH_NAME}", TRUTH_NAME)
    if name := next(filter(folder.exists, beside), None):
        where, contents = folder.shown(name), [folder.read(name)]
    elif folder.exists(_ARCHIVE_NAME):
        where = f"{TRUTH_NAME} in {folder.shown(_ARCHIVE_NAME)}"
        members = tars.stream_files(
            folder,
            _ARCHIVE_NAME,
            wanted=lambda name: posixpath.basename(name) == TRUTH_NAME,
        )
        contents = [data for _, data in members if data is not None]
    else:
        raise ValueError(
            f"The validation images in {folder.shown('')} have no class folders, so "
            f"{folder.shown(LABELS_NAME)} must give the synset of each, one a line in "
            "the order of the file names; got no such file, no "
            f"{SOLUTION_NAME}, and no {FOLDER_NAME} or {_ARCHIVE_NAME} with "
            f"{TRUTH_NAME} either."
        )
    if not contents:
        raise ValueError(f"{where} is missing. Download the archive again.")
    synsets = _SYNSETS.read_text(encoding="utf-8").split()
    lines = parts.decode_text(contents[0], where).split()
    for row, line in enumerate(lines, start=1):
        if not (line.isascii() and line.isdigit() and 0 < int(line) <= len(synsets)):
            raise ValueError(
                f"{where} must hold numbers of classes, 1 to {len(synsets):,}, got "
                f"{ascii(line[:20])[1:-1]} as number {row}."
            )
    return [synsets[int(line) - 1] for line in lines]


def refuse(source: Folder) -> None:
    """Refuses the layout of Kaggle where it is not the input of converters.imagenet."""
    for name in (IMAGES, *_INSIDE):
        if source.is_folder(name):
            raise ValueError(
                f"{source.shown(name)} is ImageNet as Kaggle packs the data set. "
                "converters.imagenet reads the folder above ILSVRC, with "
                f"{SOLUTION_NAME}: give this folder as its --input_dir."
            )


def _solution(folder: Folder) -> Mapping[str, str]:
    """Returns the synset of each validation image by its name without the suffix.

    A line is such as `ILSVRC2012_val_00000007,n02825657 9 1 62 71 n02825657 0 0 5 9`:
    each box has the synset.
    """
    path = folder.shown(SOLUTION_NAME)
    header, *rows = csv.reader(folder.read_text(SOLUTION_NAME).splitlines())
    if header != _FIELDS:
        raise ValueError(
            f"{path} must begin with the line {','.join(_FIELDS)}, got "
            f"{','.join(header)[:80]!r}."
        )
    synset_of: dict[str, str] = {}
    for row in filter(None, rows):
        synsets = {*row[1].split()[::5]} if len(row) == len(_FIELDS) else set()
        if len(synsets) != 1:
            raise ValueError(
                f"{path} must give each image one class, as in `<image>,<synset> "
                f"<xmin> <ymin> <xmax> <ymax>`, got {','.join(row)[:80]!r}."
            )
        (synset_of[row[0]],) = synsets
    return synset_of
