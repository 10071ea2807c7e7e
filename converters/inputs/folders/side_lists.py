"""The small files of ImageNet that say what the images are: lists of classes and boxes.

In: an input folder. Out: a folder on the disk that holds these files.
"""

import contextlib
import pathlib
from collections.abc import Iterator

from converters.inputs import boxes, devkit
from converters.inputs.folders import folder
from converters.inputs.folders.on_disk import OnDisk

_KIT_FILES = (devkit.TRUTH_NAME, devkit.META_NAME)
_NAMES = (
    "synsets.txt",
    "synset_words.txt",
    devkit.LABELS_NAME,
    f"{devkit.FOLDER_NAME}.tar.gz",
    *_KIT_FILES,
    *(f"{devkit.FOLDER_NAME}/data/{name}" for name in _KIT_FILES),
    *boxes.TAR_NAMES,
)


@contextlib.contextmanager
def near(source: folder.Folder) -> Iterator[pathlib.Path]:
    """Yields a folder on the disk with the lists of an input folder.

    Args:
        source: The input folder.

    Raises:
        ValueError: If the boxes are XML files at a URL, or a file is too large.
        RemoteError: If the store cannot be read.
    """
    if not isinstance(source, OnDisk):
        for name in filter(source.is_folder, boxes.FOLDER_NAMES):
            raise ValueError(
                f"{source.shown(name)} holds bounding boxes as XML files, which are "
                f"read on a disk only. Pack the folder as {boxes.TAR_NAMES[0]}, put it "
                "beside train/, and remove the folder."
            )
    with folder.near(source, _NAMES) as lists_dir:
        yield lists_dir
