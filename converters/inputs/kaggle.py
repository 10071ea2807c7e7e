"""ImageNet as Kaggle packs it.

In: an input folder. Out: the folder of its images, and the classes of the validation
images from `LOC_val_solution.csv`. The folder holds:

    ILSVRC/Data/CLS-LOC/train/<synset>/*.JPEG, val/*.JPEG, test/*.JPEG
    ILSVRC/Annotations/CLS-LOC/train/<synset>/*.xml
    LOC_synset_mapping.txt, LOC_val_solution.csv
"""

import csv
import os
from collections.abc import Mapping, Sequence

from converters.inputs.folders import Folder

IMAGES = "ILSVRC/Data/CLS-LOC"
BOXES = "ILSVRC/Annotations/CLS-LOC/train"
MAPPING_NAME = "LOC_synset_mapping.txt"
SOLUTION_NAME = "LOC_val_solution.csv"
# The folders inside, which lack the lists.
_INSIDE = ("Data/CLS-LOC", "CLS-LOC/train")
_FIELDS = ["ImageId", "PredictionString"]


def is_root(source: Folder) -> bool:
    """Whether an input folder has the layout of Kaggle."""
    return source.is_folder(IMAGES)


def refuse(source: Folder) -> None:
    """Refuses the layout of Kaggle where it is not the input of converters.imagenet.

    Raises:
        ValueError: If the folder has the layout, or is a folder inside of the layout.
    """
    for name in (IMAGES, *_INSIDE):
        if source.is_folder(name):
            raise ValueError(
                f"{source.shown(name)} is ImageNet as Kaggle packs the data set. "
                "converters.imagenet reads the folder above ILSVRC, with "
                f"{SOLUTION_NAME}: give this folder as its --input_dir."
            )


def validation_synsets(
    folder: Folder, names: Sequence[str]
) -> Mapping[str, str] | None:
    """Returns the synset of each validation image by name; None without the list.

    Raises:
        ValueError: If the list is damaged, or lacks an image.
    """
    if not folder.exists(SOLUTION_NAME):
        return None
    path = folder.shown(SOLUTION_NAME)
    header, *rows = csv.reader(folder.read_text(SOLUTION_NAME).splitlines())
    if header != _FIELDS:
        raise ValueError(
            f"{path} must begin with the line {','.join(_FIELDS)}, got "
            f"{','.join(header)[:80]!r}."
        )
    synset_of = dict(_image_and_synset(path, row) for row in rows if row)
    for name in names:
        if os.path.splitext(name)[0] not in synset_of:
            raise ValueError(
                f"{path} must have a line for each of the {len(names)} images in val, "
                f"got none for {name}."
            )
    return {name: synset_of[os.path.splitext(name)[0]] for name in names}


def _image_and_synset(path: str, row: Sequence[str]) -> tuple[str, str]:
    """Returns the name of an image, without the suffix, and the synset of its boxes.

    A row is such as `ILSVRC2012_val_00000007,n02825657 9 1 62 71 n02825657 0 0 5 9`.
    """
    words = row[1].split() if len(row) == len(_FIELDS) else []
    synsets = {*words[::5]}
    if len(synsets) != 1:
        raise ValueError(
            f"{path} must give each image one class, as in `<image>,<synset> <xmin> "
            f"<ymin> <xmax> <ymax>`, got {','.join(row)[:80]!r}."
        )
    return row[0], synsets.pop()
