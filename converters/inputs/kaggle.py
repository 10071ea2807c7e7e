"""ImageNet in the layout of Kaggle.

In: an input folder. Out: the folder of its images, and the classes of the validation
images from `LOC_val_solution.csv`. The folder holds:

    ILSVRC/Data/CLS-LOC/train/<synset>/*.JPEG, val/*.JPEG, test/*.JPEG
    ILSVRC/Annotations/CLS-LOC/train/<synset>/*.xml
    LOC_synset_mapping.txt, LOC_val_solution.csv
"""

import csv
from collections.abc import Mapping

from tfpipe.location.browse import Folder

IMAGES = "ILSVRC/Data/CLS-LOC"
BOXES = "ILSVRC/Annotations/CLS-LOC/train"
MAPPING_NAME = "LOC_synset_mapping.txt"
SOLUTION_NAME = "LOC_val_solution.csv"
# The folders inside, which lack the lists.
_INSIDE = ("Data/CLS-LOC", "CLS-LOC/train")
_FIELDS = ["ImageId", "PredictionString"]


def refuse(source: Folder) -> None:
    """Refuses the layout of Kaggle where it is not the input of converters.imagenet."""
    for name in (IMAGES, *_INSIDE):
        if source.is_folder(name):
            raise ValueError(
                f"{source.shown(name)} is ImageNet as Kaggle packs the data set. "
                "converters.imagenet reads the folder above ILSVRC, with "
                f"{SOLUTION_NAME}: give this folder as its --input_dir."
            )


def validation_synsets(folder: Folder) -> Mapping[str, str]:
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
