"""Lists the images of a folder by name, and the names left out with the reason.

Out: a `Listing`, as `folders` fills it, and the reasons. Files are listed, not opened:
their format is decided from their bytes, later.
"""

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from converters.inputs.image import Image
from tfpipe.pictures import formats

# Names of JPEGs in ImageNet's own archives.
JPEG_SUFFIXES = (".jpeg", ".jpg")
OTHER_SUFFIXES = formats.OTHER_SUFFIXES  # converted to JPEG
IMAGE_SUFFIXES = (*formats.JPEG_SUFFIXES, *OTHER_SUFFIXES)

OTHER_NAME = "other_name"
NOT_A_FILE = "not_a_file"
DANGLING_LINK = "dangling_link"
SUBFOLDER = "in_subfolder"
NO_CLASS = "no_class_folder"
NOT_A_SPLIT = "not_a_split"
OTHER_CLASS = "other_class"
EMPTY_FOLDER = "empty_folder"
LINK_LOOP = "link_loop"
# About members of tars and records of others.
UNSAFE_NAME = "unsafe_name"
NO_IMAGE = "no_image"
SEVERAL_IMAGES = "several_images"
NO_LABEL = "no_label"
BAD_LABEL = "bad_label"
SEVERAL_LABELS = "several_labels"
FLOAT_LABEL = "float_label"
BAD_RECORD = "bad_record"
NOT_MAPPED = "class_not_mapped"
# About rows of tables.
NULL_IMAGE = "null_image"
NULL_LABEL = "null_label"
NULL_SPLIT = "null_split"
MISSING_FILE = "missing_file"
# About boxes.
BOX_EMPTY = "bbox_dropped_empty"
BOX_OTHER_SYNSET = "bbox_dropped_other_synset"
BOX_NO_SIZE = "bbox_dropped_no_size"
BOX_OTHER_CLASS = "bbox_file_of_other_class"
BOX_NO_XML = "bbox_file_not_read"

# Explanations of the reasons, for the reports.
DETAILS: Mapping[str, str] = {
    OTHER_NAME: "the name must end as that of an image or a tar that is read here",
    NOT_A_FILE: "a name like that of an image must be that of a file",
    DANGLING_LINK: "a link must lead to a file or a folder",
    SUBFOLDER: "images must lie in the folder of their class, not below it",
    NO_CLASS: "an image must lie in the folder of its class",
    NOT_A_SPLIT: (
        "beside train/ only val/ or validation/ is read, and test/ if it holds a "
        "folder for each class"
    ),
    OTHER_CLASS: "the class is not among --classes",
    EMPTY_FOLDER: "a folder of a class must hold images",
    NOT_MAPPED: "--class_map leaves the class out",
    LINK_LOOP: "a link must not lead to a folder that it is in",
    UNSAFE_NAME: "a name must be relative, without `..` and empty parts",
    NO_IMAGE: "a sample must have an image; see --image_part or --image_key",
    SEVERAL_IMAGES: "a sample must have one image; choose one with --image_part",
    NO_LABEL: "an image must have a class; see --label_key, or --label_from of tars",
    SEVERAL_LABELS: "an image must have one class, or a row of 0 and 1",
    FLOAT_LABEL: "a class must be a whole number or a text, and no number with a point",
    BAD_LABEL: (
        "a class must be a whole number, or a text in UTF-8 of at most 1,000 "
        "characters without a line break"
    ),
    BAD_RECORD: "a record must have right checksums and be a tf.train.Example",
    NULL_IMAGE: "a row must have an image, got NULL",
    NULL_LABEL: "a row must have a label, got none",
    NULL_SPLIT: "a row must have a split, got NULL",
    MISSING_FILE: "a row must have an image that exists",
    BOX_EMPTY: "a box must have an area inside of the image",
    BOX_OTHER_SYNSET: "a box must be of the class that the file is named after",
    BOX_NO_SIZE: "an annotation with boxes must give width and height of the image",
    BOX_OTHER_CLASS: "an annotation must be of a class in the class list",
    BOX_NO_XML: "an annotation must be a file that ends in .xml",
}

# macOS writes such files with metadata into tars and onto disks of other systems. They
# have the suffix of the image but hold no image.
_APPLE_DOUBLE_PREFIX = "._"


# Folders that operating systems and network drives make beside the images.
_SYSTEM_FOLDERS = {
    *("__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found"),
}


def is_hidden(name: str) -> bool:
    """Whether a name is that of a file or folder that is no part of a data set."""
    return not name or name.startswith(".") or name in _SYSTEM_FOLDERS


class LeftOut(NamedTuple):
    """A name without a record, for the reports.

    Attributes:
        name: Path relative to the listed folder; a folder ends in "/".
        reason: A constant above, in snake case, as in the summary.
    """

    name: str
    reason: str

    def under(self, prefix: str) -> "LeftOut":
        """Returns the same entry with a prefix before its name."""
        return LeftOut(prefix + self.name, self.reason)


class Listing(NamedTuple):
    """Entries of a folder, or of a tar in its place, sorted by name.

    Attributes:
        images: The files with a suffix of the list, by their names in the input folder.
        folders: Names of the folders.
        names: All names with such a suffix, also of folders, pipes and the like.
        left_out: Names in neither `images` nor `folders`, with the reason.
    """

    images: list[Image]
    folders: list[str]
    names: list[str]
    left_out: list[LeftOut]


@dataclasses.dataclass
class Report:
    """The names that were read so far, for the check that no name is lost."""

    left_out: list[LeftOut] = dataclasses.field(default_factory=list)
    num_names: int = 0  # of files, and of the folders among `left_out`

    def read(self, here: Listing, prefix: str) -> None:
        """Adds the files of a folder, and the names in the folder that are left out."""
        self.num_names += len(here.images)
        self.leave_out(item.under(prefix) for item in here.left_out)

    def leave_out(self, lines: Iterable[LeftOut]) -> None:
        """Adds names that are left out and were not read as files."""
        before = len(self.left_out)
        self.left_out += lines
        self.num_names += len(self.left_out) - before


def count(left_out: Iterable[LeftOut]) -> dict[str, int]:
    """Counts the names left out, by reason."""
    return dict(sorted(collections.Counter(item.reason for item in left_out).items()))


def has_suffix(name: str, suffixes: tuple[str, ...]) -> bool:
    """Whether a file name, in upper or lower case, has a suffix of the list."""
    return name.lower().endswith(suffixes) and not name.startswith(_APPLE_DOUBLE_PREFIX)
